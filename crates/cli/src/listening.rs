//! The flags by which one that listens, a monitor or a server of packets, shows who it is and whom it
//! lets in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use freshline_net::quic::{Authorities, Identity, Limits, ServerConfig};
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::Failure;
use crate::url::{DEFAULT_PORT, MonitorUrl, Scheme};

/// Identity and admission on quic://.
#[derive(Debug, clap::Args)]
pub(crate) struct ListenArgs {
    /// Show this certificate (quic://); else one is made and kept in --state.
    #[arg(long, value_name = "PEM", requires = "key", help_heading = "Security")]
    cert: Option<PathBuf>,
    /// The private key of --cert.
    #[arg(long, value_name = "PEM", requires = "cert", help_heading = "Security")]
    key: Option<PathBuf>,
    /// Where the certificate of one's own making is kept; else the user's state directory.
    #[arg(long, value_name = "DIR", conflicts_with = "cert", help_heading = "Security")]
    state: Option<PathBuf>,
    /// Take only those whose certificate one of these authorities has signed (quic://).
    #[arg(long, value_name = "PEM", help_heading = "Security")]
    client_ca: Option<PathBuf>,
    /// Take only those that show one of the tokens in this file, one a line (quic://).
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    token_file: Option<PathBuf>,
}

impl ListenArgs {
    /// QUIC's settings and the identity that is shown; `None` on udp://.
    pub(crate) fn quic(
        &self,
        listen: &MonitorUrl,
        limits: Limits,
    ) -> Result<Option<(ServerConfig, Identity)>, Failure> {
        if listen.scheme == Scheme::Udp {
            let given =
                self.cert.is_some() || self.client_ca.is_some() || self.token_file.is_some();
            if given || self.state.is_some() {
                return Err(Failure::Usage(miette!(
                    "--cert, --state, --client-ca and --token-file mean nothing on udp://, which \
                     is neither encrypted nor authenticated; use quic://"
                )));
            }
            return Ok(None);
        }
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Identity::from_pem_files(cert, key),
            _ => Identity::from_state_dir(&state_dir(self.state.as_deref())?),
        };
        let identity = identity.into_diagnostic().map_err(Failure::Usage)?;
        let clients = match &self.client_ca {
            None => None,
            Some(file) => {
                Some(Authorities::from_pem_file(file).into_diagnostic().map_err(Failure::Usage)?)
            }
        };
        let config = ServerConfig::new(&identity, clients.as_ref(), limits)
            .into_diagnostic()
            .map_err(Failure::Usage)?;
        Ok(Some((config, identity)))
    }

    /// Where to listen if nothing is said: at all addresses only where not everybody is let in.
    pub(crate) fn default_url(&self) -> MonitorUrl {
        let host = if self.is_open() { "127.0.0.1" } else { "0.0.0.0" };
        MonitorUrl { scheme: Scheme::Quic, host: host.to_owned(), port: DEFAULT_PORT }
    }

    /// Whether neither a token nor a certificate is asked for.
    fn is_open(&self) -> bool {
        self.token_file.is_none() && self.client_ca.is_none()
    }

    /// Warns on standard error where others than this host's users may send.
    pub(crate) fn warn_if_open(&self, address: SocketAddr) {
        if self.is_open() && !address.ip().to_canonical().is_loopback() {
            say!(
                "anyone who can reach {address} may send; --token-file or --client-ca on quic:// \
                 lets only known peers in"
            );
        }
    }

    /// The tokens that are let in, none for everybody.
    pub(crate) fn tokens(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let Some(file) = &self.token_file else { return Ok(Vec::new()) };
        let text = std::fs::read_to_string(file)
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot read the token file {}", file.display()))
            .map_err(Failure::Usage)?;
        let tokens = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let tokens: Vec<_> = tokens.map(|token| token.as_bytes().to_vec()).collect();
        // An empty list would let everybody in.
        if tokens.is_empty() {
            return Err(Failure::Usage(miette!("the token file {} is empty", file.display())));
        }
        Ok(tokens)
    }
}

/// Says on standard error where it can be found, and by what it is known.
pub(crate) fn say_where(address: SocketAddr, identity: Option<&Identity>) {
    match identity {
        None => say!("listening at udp://{address}; neither encrypted nor authenticated"),
        Some(identity) => {
            say!("listening at quic://{address}\nfingerprint {}", identity.fingerprint());
        }
    }
}

/// As the XDG base directory specification has it.
pub(crate) fn state_dir(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let from = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    let home = || from("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    given
        .map(Path::to_owned)
        .or_else(|| {
            from("XDG_STATE_HOME").map(PathBuf::from).or_else(home).map(|dir| dir.join("freshline"))
        })
        .ok_or_else(|| {
            Failure::Usage(miette!("neither HOME nor --state says where to keep the certificate"))
        })
}
