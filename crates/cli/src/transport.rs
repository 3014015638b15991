//! The flags by which one that dials, a source or a client of a downlink, chooses whom to trust and
//! who it is.

use std::path::PathBuf;

use freshline_net::quic::{Authorities, ClientConfig, Fingerprint, Identity, Trust};
use freshline_net::source::Transport;
use miette::{IntoDiagnostic, miette};

use crate::failure::Failure;
use crate::url::{MonitorUrl, Scheme};

/// Trust and identity of one that dials on quic://.
#[derive(Debug, clap::Args)]
pub(crate) struct TransportArgs {
    /// Trust who has this certificate; a monitor or server prints its fingerprint at start (quic://).
    #[arg(long, value_name = "sha256:HEX", conflicts_with = "ca", help_heading = "Security")]
    pin: Option<Fingerprint>,
    /// Trust those whose certificate one of these authorities has signed (quic://).
    #[arg(long, value_name = "PEM", help_heading = "Security")]
    ca: Option<PathBuf>,
    /// Show this certificate to the other side (quic://).
    #[arg(long, value_name = "PEM", requires = "key", help_heading = "Security")]
    cert: Option<PathBuf>,
    /// The private key of --cert.
    #[arg(long, value_name = "PEM", requires = "cert", help_heading = "Security")]
    key: Option<PathBuf>,
    /// A file with the token that the other side asks for (quic://).
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    token_file: Option<PathBuf>,
}

impl TransportArgs {
    /// How to reach the other side.
    pub(crate) fn transport(&self, url: &MonitorUrl) -> Result<Transport, Failure> {
        if url.scheme == Scheme::Udp {
            if self.pin.is_some() || self.ca.is_some() || self.cert.is_some() {
                return Err(Failure::Usage(miette!(
                    "--pin, --ca and --cert mean nothing on udp://, which is neither encrypted \
                     nor authenticated; use quic://"
                )));
            }
            return Ok(Transport::Udp);
        }
        let trust = match (self.pin, &self.ca) {
            (Some(pin), _) => Trust::Pinned(pin),
            (None, Some(file)) => Trust::Authorities(
                Authorities::from_pem_file(file).into_diagnostic().map_err(Failure::Usage)?,
            ),
            (None, None) => {
                return Err(Failure::Usage(miette!(
                    help = "a monitor or server prints its fingerprint at start: pass it on with \
                            --pin sha256:…, or name the authority that signed its certificate \
                            with --ca",
                    "on quic:// one must know whom to trust"
                )));
            }
        };
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(
                Identity::from_pem_files(cert, key).into_diagnostic().map_err(Failure::Usage)?,
            ),
            _ => None,
        };
        let config = ClientConfig::new(&trust, identity.as_ref())
            .into_diagnostic()
            .map_err(Failure::Usage)?;
        Ok(Transport::Quic { config, server_name: url.host.clone() })
    }

    /// The token to show, empty for none.
    pub(crate) fn token(&self, url: &MonitorUrl) -> Result<Vec<u8>, Failure> {
        let Some(file) = &self.token_file else { return Ok(Vec::new()) };
        if url.scheme == Scheme::Udp {
            return Err(Failure::Usage(miette!(
                "a token would be readable by all on udp://; use quic://"
            )));
        }
        crate::token::read(file)
    }
}
