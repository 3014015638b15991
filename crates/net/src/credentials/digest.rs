//! Tokens and their digests.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use subtle::ConstantTimeEq;
use thiserror::Error;

use crate::sha256::Sha256;

/// A secret that is presented when a session opens: printable, and hard to guess.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Random bytes in a token.
    const BYTES: usize = 32;

    /// A new token from the system's random numbers.
    ///
    /// # Errors
    /// [`NoRandom`] if the system gives none.
    pub fn generate() -> Result<Self, NoRandom> {
        let mut random = [0; Self::BYTES];
        getrandom::fill(&mut random).map_err(NoRandom)?;
        Ok(Self(BASE64_URL_SAFE_NO_PAD.encode(random)))
    }

    /// The secret itself.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The system gives no random numbers.
#[derive(Debug, Clone, Copy, Error)]
#[error("the system gives no random numbers: {0}")]
pub struct NoRandom(getrandom::Error);

/// SHA-256 of a token. Written `sha256:` and 64 hexadecimal digits; read also without `sha256:`, and in
/// base64.
#[derive(Clone, Copy)]
pub struct Digest(Sha256);

impl Digest {
    /// The digest of a token.
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::of(token))
    }

    /// Whether both are equal, by a comparison whose time does not depend on where they differ.
    pub fn is_equal(&self, other: &Self) -> bool {
        self.0.0.ct_eq(&other.0.0).into()
    }

    /// Its first 64 bits, which identify the token in tables.
    pub fn number(&self) -> u64 {
        self.0.number()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let text = text.strip_prefix("sha256:").unwrap_or(text);
        let digest = match text.len() {
            64 => Sha256::from_digits(text),
            43 | 44 => {
                let bytes = BASE64_STANDARD_NO_PAD.decode(text.strip_suffix('=').unwrap_or(text));
                bytes.ok().and_then(|bytes| bytes.try_into().ok()).map(Sha256)
            }
            _ => None,
        };
        digest.map(Self).ok_or(BadDigest)
    }
}

/// A text that is not a digest. It is not repeated, because it may be a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the third field is not the SHA-256 digest of a token: give `sha256:` and 64 hexadecimal digits, or \
     base64; `freshline token line` prints that of a token"
)]
pub struct BadDigest;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_in_each_of_its_forms() {
        // Of `test`, as sha256sum prints it.
        let hex = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let base64 = "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=";
        let digest = Digest::of(b"test");
        assert_eq!(digest.to_string(), format!("sha256:{hex}"));
        assert_eq!(digest.number(), 0x9f86_d081_884c_7d65);
        for text in [
            hex,
            &hex.to_uppercase(),
            &format!("sha256:{hex}"),
            base64,
            base64.trim_end_matches('='),
            &format!("sha256:{base64}"),
        ] {
            assert!(text.parse::<Digest>().unwrap().is_equal(&digest), "{text}");
        }
        for bad in ["", "test", &hex[1..], &hex.replace('f', "g"), &base64[1..], &"é".repeat(32)] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn tokens_are_long_differ_and_are_not_printed_by_accident() {
        let [one, two] = [(); 2].map(|()| Token::generate().unwrap());
        assert_eq!(one.secret().len(), 43);
        assert_ne!(one.secret(), two.secret());
        assert!(!format!("{one:?}").contains(one.secret()));
        assert!(one.secret().bytes().all(|byte| byte.is_ascii_graphic()));
    }
}
