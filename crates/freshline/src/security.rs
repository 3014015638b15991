//! Whom one that dials trusts, and who it is.

use std::path::PathBuf;

use freshline_net::quic::{Authorities, ClientConfig, Fingerprint, Identity, Trust};
use freshline_net::source::Transport;

use crate::error::Error;
use crate::url::{Scheme, Url};

/// Trust and identity of one that dials.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dialling {
    pub(crate) pins: Vec<Fingerprint>,
    pub(crate) ca_file: Option<PathBuf>,
    /// Certificate and key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    pub(crate) token: Vec<u8>,
}

impl Dialling {
    /// How the monitor at `url` is reached.
    pub(crate) fn transport(&self, url: &Url) -> Result<Transport, Error> {
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

    fn check_unused(&self) -> Result<(), Error> {
        let given = [
            (!self.pins.is_empty(), "`pin`"),
            (self.ca_file.is_some(), "`ca_file`"),
            (self.identity.is_some(), "`identity_files`"),
            (!self.token.is_empty(), "`token`"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, setting)) => Err(Error::NeedsQuic { setting }),
            None => Ok(()),
        }
    }
}
