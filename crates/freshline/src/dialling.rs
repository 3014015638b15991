//! Trust and identity of a client.

use std::path::{Path, PathBuf};

use freshline_core::wire::Opening;
use freshline_net::quic::{Authorities, ClientConfig, Fingerprint, Identity, Trust};
use freshline_net::source::Transport;

use crate::error::Error;
use crate::url::{Scheme, Url};

/// Trust and identity of a client, such as a source, or a relay towards its destinations. All of it is for `quic://`.
#[derive(Debug, Clone, Default)]
pub struct Dialling {
    pins: Vec<Fingerprint>,
    ca_file: Option<PathBuf>,
    /// Certificate and key.
    identity: Option<(PathBuf, PathBuf)>,
    token: Option<Token>,
}

#[derive(Debug, Clone)]
enum Token {
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Dialling {
    /// Trusts the peer with this certificate; call it again to trust further certificates.
    #[must_use]
    pub fn pin(mut self, fingerprint: Fingerprint) -> Self {
        self.pins.push(fingerprint);
        self
    }

    /// Trusts peers with a certificate that an authority of this file has signed.
    #[must_use]
    pub fn ca_file(mut self, pem: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(pem.into());
        self
    }

    /// Shows this certificate.
    #[must_use]
    pub fn identity_files(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((cert.into(), key.into()));
        self
    }

    /// Shows this token.
    #[must_use]
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.token = Some(Token::Bytes(token.into()));
        self
    }

    /// Shows the token in this file, which has one line.
    #[must_use]
    pub fn token_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.token = Some(Token::File(file.into()));
        self
    }

    /// The transport to the peer at `url`.
    ///
    /// # Errors
    /// [`Error`] describes a missing or invalid setting.
    pub fn transport(&self, url: &Url) -> Result<Transport, Error> {
        if url.scheme() == Scheme::Udp {
            return self.check_unused().map(|()| Transport::Udp);
        }
        let trust = match (&self.pins[..], &self.ca_file) {
            ([], None) => return Err(Error::NoTrust { host: url.host().to_owned() }),
            ([], Some(file)) => Trust::Authorities(Authorities::from_pem_file(file)?),
            (pins, _) => Trust::OneOf(pins.to_vec()),
        };
        let identity = self.identity.as_ref();
        let identity =
            identity.map(|(cert, key)| Identity::from_pem_files(cert, key)).transpose()?;
        let config = ClientConfig::new(&trust, identity.as_ref())?;
        Ok(Transport::Quic { config, server_name: url.host().to_owned() })
    }

    /// The token to show; empty for none.
    ///
    /// # Errors
    /// [`Error::TokenFile`], and [`Error::NeedsQuic`] on `udp://`, where all could read it.
    pub fn shown_token(&self, url: &Url) -> Result<Vec<u8>, Error> {
        let Some(token) = &self.token else { return Ok(Vec::new()) };
        if url.scheme() == Scheme::Udp {
            return Err(Error::NeedsQuic { setting: "`token`" });
        }
        match token {
            Token::Bytes(token) => check_token(token).map(|()| token.clone()),
            Token::File(file) => match &read_tokens(file)?[..] {
                [token] => Ok(token.clone()),
                _ => Err(Error::TokenFile {
                    path: file.clone(),
                    why: "it has several lines; a peer shows one token".to_owned(),
                }),
            },
        }
    }

    fn check_unused(&self) -> Result<(), Error> {
        let given = [
            (!self.pins.is_empty(), "`pin`"),
            (self.ca_file.is_some(), "`ca_file`"),
            (self.identity.is_some(), "`identity_files`"),
            (self.token.is_some(), "`token`"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, setting)) => Err(Error::NeedsQuic { setting }),
            None => Ok(()),
        }
    }
}

/// A token has 1 to 255 bytes: clients without a token show an empty one.
pub(crate) fn check_token(token: &[u8]) -> Result<(), Error> {
    match (1..=Opening::MAX_TOKEN).contains(&token.len()) {
        true => Ok(()),
        false => Err(Error::Setting { setting: "`token`", why: "a token has 1 to 255 bytes" }),
    }
}

/// The tokens in a file, one per line; at least one.
///
/// # Errors
/// [`Error::TokenFile`] describes the fault.
pub fn read_tokens(file: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let wrong = |why: String| Error::TokenFile { path: file.to_owned(), why };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let tokens: Vec<_> = lines.map(|token| token.as_bytes().to_vec()).collect();
    // An empty list would accept every peer.
    if tokens.is_empty() {
        return Err(wrong("it is empty".to_owned()));
    }
    if let Some(long) = tokens.iter().find(|token| token.len() > Opening::MAX_TOKEN) {
        let (len, max) = (long.len(), Opening::MAX_TOKEN);
        return Err(wrong(format!("a token has {len} bytes; at most {max} are allowed")));
    }
    Ok(tokens)
}
