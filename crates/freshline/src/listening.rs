//! Identity of a server, and the peers that it accepts.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use freshline_net::credentials::{Change, Credentials, Reloader, Right, Rules};
use freshline_net::quic::{Authorities, Fingerprint, Identity, Limits, ServerConfig};

use crate::dialling::{check_token, read_tokens};
use crate::error::Error;
use crate::url::{Scheme, Url};

/// Identity of a server, such as a monitor or a relay, and the peers that it accepts.
#[derive(Debug, Clone, Default)]
pub struct Listening {
    /// Certificate and key.
    identity: Option<(PathBuf, PathBuf)>,
    state_dir: Option<PathBuf>,
    client_ca: Option<PathBuf>,
    certified_names: bool,
    credentials: Option<PathBuf>,
    token_file: Option<PathBuf>,
    tokens: Vec<Vec<u8>>,
    insecure: bool,
}

/// The QUIC settings of a server.
#[derive(Debug, Clone)]
pub struct Quic {
    identity: Arc<Identity>,
    client_ca: Option<PathBuf>,
    limits: Limits,
}

impl Quic {
    /// The fingerprint of the certificate that is shown.
    pub fn fingerprint(&self) -> Fingerprint {
        self.identity.fingerprint()
    }

    /// The server's settings, with the authorities of clients as their file has them now.
    ///
    /// # Errors
    /// [`Error::Trust`] where they cannot be used.
    pub fn config(&self) -> Result<ServerConfig, Error> {
        let clients = self.client_ca.as_deref().map(Authorities::from_pem_file).transpose()?;
        Ok(ServerConfig::new(&self.identity, clients.as_ref(), self.limits)?)
    }
}

impl Listening {
    /// Uses this certificate (`quic://`). By default, a self-signed one is created in [`Listening::state_dir`].
    #[must_use]
    pub fn identity_files(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((cert.into(), key.into()));
        self
    }

    /// The directory of the self-signed certificate; by default the user's state directory.
    #[must_use]
    pub fn state_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(dir.into());
        self
    }

    /// Accepts only peers with a certificate that an authority of this file has signed (`quic://`).
    #[must_use]
    pub fn client_ca_file(mut self, pem: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(pem.into());
        self
    }

    /// Accepts a peer only under names that its certificate lists.
    #[must_use]
    pub fn certified_names(mut self) -> Self {
        self.certified_names = true;
        self
    }

    /// Accepts only peers with a token and a name that this file permits (`quic://`).
    #[must_use]
    pub fn credentials_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.credentials = Some(file.into());
        self
    }

    /// Accepts only peers with one of the tokens in this file, one per line, under any name (`quic://`). Ignored if there
    /// is a credentials file.
    #[must_use]
    pub fn token_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.token_file = Some(file.into());
        self
    }

    /// Accepts only peers with this token of 1 to 255 bytes, under any name (`quic://`); call it again for further tokens.
    /// Ignored if there is a credentials file or a token file.
    #[must_use]
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.tokens.push(token.into());
        self
    }

    /// Allows `udp://` on addresses that other hosts can reach, for trusted networks.
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.insecure = true;
        self
    }

    /// Whether it accepts peers without a token or certificate.
    pub fn is_open(&self) -> bool {
        self.token_file.is_none()
            && self.tokens.is_empty()
            && self.credentials.is_none()
            && self.client_ca.is_none()
    }

    /// The QUIC settings; `None` for `udp://`.
    ///
    /// # Errors
    /// [`Error`] says what cannot be used.
    pub fn quic(&self, url: &Url, limits: Limits) -> Result<Option<Quic>, Error> {
        if url.scheme() == Scheme::Udp {
            return self.check_unused().map(|()| None);
        }
        let identity = match &self.identity {
            Some((cert, key)) => Identity::from_pem_files(cert, key)?,
            None => Identity::from_state_dir(&state_dir(self.state_dir.as_deref())?)?,
        };
        let client_ca = self.client_ca.clone();
        Ok(Some(Quic { identity: Arc::new(identity), client_ca, limits }))
    }

    /// The address to listen at.
    ///
    /// # Errors
    /// [`Error::Resolve`], and [`Error::Reachable`] for `udp://` at an address that is not loopback without
    /// [`Listening::insecure`].
    pub fn address(&self, url: &Url) -> Result<SocketAddr, Error> {
        let resolved = url.resolve();
        let address =
            resolved.map_err(|error| Error::Resolve { host: url.host().to_owned(), error })?;
        let is_loopback = address.ip().to_canonical().is_loopback();
        match url.scheme() == Scheme::Udp && !self.insecure && !is_loopback {
            true => Err(Error::Reachable { address }),
            false => Ok(address),
        }
    }

    /// The sessions' access rules for this right, by the current files.
    ///
    /// # Errors
    /// [`Error`] says which file cannot be used.
    pub fn rules(&self, right: Right) -> Result<Rules, Error> {
        let certified_names = self.certified_names;
        Ok(Rules { right, credentials: self.read_credentials(right)?, certified_names })
    }

    /// The files that [`Listening::read_again`] reloads.
    pub fn files(&self) -> Vec<&Path> {
        let credentials = self.credentials.as_deref().or(self.token_file.as_deref());
        credentials.into_iter().chain(self.client_ca.as_deref()).collect()
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As [`Listening::rules`] and [`Quic::config`].
    pub fn read_again(&self, right: Right, quic: Option<&Quic>) -> Result<Change, Error> {
        let quic = quic.filter(|quic| quic.client_ca.is_some()).map(Quic::config).transpose()?;
        Ok(Change { credentials: self.read_credentials(right)?, quic })
    }

    fn read_credentials(&self, right: Right) -> Result<Option<Credentials>, Error> {
        if let Some(file) = &self.credentials {
            return Ok(Some(Credentials::read(file, right)?));
        }
        let tokens = match &self.token_file {
            Some(file) => read_tokens(file)?,
            None if self.tokens.is_empty() => return Ok(None),
            None => self.tokens.clone(),
        };
        tokens.iter().try_for_each(|token| check_token(token))?;
        Ok(Some(Credentials::of_tokens(tokens.iter().map(Vec::as_slice))))
    }

    fn check_unused(&self) -> Result<(), Error> {
        let given = [
            (self.identity.is_some(), "`identity_files`"),
            (self.state_dir.is_some(), "`state_dir`"),
            (self.client_ca.is_some(), "`client_ca_file`"),
            (self.credentials.is_some(), "`credentials_file`"),
            (self.token_file.is_some(), "`token_file`"),
            (!self.tokens.is_empty(), "`token`"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, setting)) => Err(Error::NeedsQuic { setting }),
            None => Ok(()),
        }
    }
}

/// The server's end of a running monitor or relay.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) quic: Option<Quic>,
    /// The files of [`Served::reload`].
    pub(crate) listening: Listening,
    /// `None` in a simulation.
    pub(crate) reloader: Option<Reloader>,
}

impl Served {
    /// The URL for clients.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.quic.is_some() { "quic" } else { "udp" };
        format!("{scheme}://{}", self.address)
    }

    /// The fingerprint of its certificate; `None` for `udp://`.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        self.quic.as_ref().map(Quic::fingerprint)
    }

    /// Reloads the files, and returns the number of sessions that were closed.
    pub(crate) fn reload(&self) -> Result<usize, Error> {
        let Some(reloader) = &self.reloader else { return Ok(0) };
        let change = self.listening.read_again(Right::Publish, self.quic.as_ref())?;
        reloader.replace(change).map_err(|_| Error::Ended)
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.address, f)
    }
}

/// The directory of the self-signed certificate, by the XDG base directory specification.
///
/// # Errors
/// [`Error::NoStateDir`] where neither `given` nor the environment says.
pub fn state_dir(given: Option<&Path>) -> Result<PathBuf, Error> {
    let from = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    let home = || from("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let default =
        || from("XDG_STATE_HOME").map(PathBuf::from).or_else(home).map(|dir| dir.join("freshline"));
    given.map(Path::to_owned).or_else(default).ok_or(Error::NoStateDir)
}
