//! The token that browsers show.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

use crate::error::GatewayError;

/// The token that a browser must show for states: letters, digits, `-`, `_`, `.` and `~`, so that
/// it can be in a URL.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The fewest characters. 16 of base64 are 96 bits.
    const MIN_LEN: usize = 16;

    /// A new one, of 144 random bits.
    ///
    /// # Errors
    /// [`GatewayError::Random`] if the system gives none.
    pub fn random() -> Result<Self, GatewayError> {
        let mut bytes = [0; 18];
        getrandom::fill(&mut bytes).map_err(|error| GatewayError::Random(error.to_string()))?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// This one, of 16 to 255 characters.
    ///
    /// # Errors
    /// [`GatewayError::Token`] if it is too short or too long, or has other characters.
    pub fn new(token: impl Into<String>) -> Result<Self, GatewayError> {
        let token = token.into();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        let fits = (Self::MIN_LEN..256).contains(&token.len());
        if fits && token.bytes().all(is_plain) { Ok(Self(token)) } else { Err(GatewayError::Token) }
    }

    /// As text, for a URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `shown` is this token. The time of the comparison reveals neither the first
    /// difference nor the length.
    pub(crate) fn is(&self, shown: &str) -> bool {
        let of = |text: &str| digest(&SHA256, text.as_bytes());
        of(&self.0).as_ref().ct_eq(of(shown).as_ref()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_compared_whole() {
        let token = Token::random().expect("random bytes");
        assert!(token.as_str().len() == 24 && token.is(token.as_str()));
        assert!(!token.is("") && !token.is(&token.as_str()[..23]));
        assert_ne!(token.as_str(), Token::random().expect("random bytes").as_str());
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn tokens_that_are_guessed_or_break_a_url_are_refused() {
        assert!(Token::new("correct-horse_16").is_ok());
        for refused in ["", "short", "with a space 16 c", "with#a#fragment#16", "é-is-not-ascii-16"]
        {
            assert!(Token::new(refused).is_err(), "{refused}");
        }
    }
}
