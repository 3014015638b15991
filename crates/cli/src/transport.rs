//! The flags by which one that dials, a source or a client of a downlink, chooses whom to trust and
//! who it is.

use std::path::{Path, PathBuf};

use freshline_net::quic::{Authorities, ClientConfig, Fingerprint, Identity, Trust};
use freshline_net::source::Transport;
use miette::{IntoDiagnostic, miette};

use crate::failure::Failure;
use crate::url::{MonitorUrl, Scheme};

/// Which certificates one that dials on quic:// trusts.
#[derive(Debug, clap::Args)]
pub(crate) struct TrustArgs {
    /// Trust the far end that has this certificate; a monitor or server prints its fingerprint at start
    /// (quic://). Give it again to trust further ones.
    #[arg(long, value_name = "sha256:HEX", conflicts_with = "ca", help_heading = "Security")]
    pin: Vec<Fingerprint>,
    /// Trust those whose certificate one of these authorities has signed (quic://).
    #[arg(long, value_name = "PEM", help_heading = "Security")]
    ca: Option<PathBuf>,
}

impl TrustArgs {
    /// Whether a certificate or an authority is trusted.
    pub(crate) fn are_given(&self) -> bool {
        !self.pin.is_empty() || self.ca.is_some()
    }

    /// How to reach the other side at quic://, with the certificate and key that are shown to it.
    pub(crate) fn quic(
        &self,
        url: &MonitorUrl,
        shown: Option<(&Path, &Path)>,
    ) -> Result<Transport, Failure> {
        let trust = match (&self.pin[..], &self.ca) {
            ([], None) => {
                return Err(Failure::Usage(miette!(
                    help = "a monitor or server prints its fingerprint at start: pass it on with \
                            --pin sha256:…, or name the authority that signed its certificate \
                            with --ca",
                    "on quic:// one must know whom to trust"
                )));
            }
            ([], Some(file)) => Trust::Authorities(
                Authorities::from_pem_file(file).into_diagnostic().map_err(Failure::Usage)?,
            ),
            (pins, _) => Trust::OneOf(pins.to_vec()),
        };
        let identity = shown.map(|(cert, key)| Identity::from_pem_files(cert, key));
        let identity = identity.transpose().into_diagnostic().map_err(Failure::Usage)?;
        let config = ClientConfig::new(&trust, identity.as_ref())
            .into_diagnostic()
            .map_err(Failure::Usage)?;
        Ok(Transport::Quic { config, server_name: url.host.clone() })
    }
}

/// The token in a file, to be shown to the other side; empty without a file.
pub(crate) fn token(file: Option<&Path>, url: &MonitorUrl) -> Result<Vec<u8>, Failure> {
    let Some(file) = file else { return Ok(Vec::new()) };
    if url.scheme == Scheme::Udp {
        return Err(Failure::Usage(miette!(
            "a token would be readable by all on udp://; use quic://"
        )));
    }
    crate::token::read(file)
}

/// Trust and identity of one that dials on quic://.
#[derive(Debug, clap::Args)]
pub(crate) struct TransportArgs {
    #[command(flatten)]
    trust: TrustArgs,
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
        let shown = self.cert.as_deref().zip(self.key.as_deref());
        if url.scheme == Scheme::Quic {
            return self.trust.quic(url, shown);
        }
        if self.trust.are_given() || self.cert.is_some() {
            return Err(Failure::Usage(miette!(
                "--pin, --ca and --cert mean nothing on udp://, which is neither encrypted \
                 nor authenticated; use quic://"
            )));
        }
        Ok(Transport::Udp)
    }

    /// The token to show, empty for none.
    pub(crate) fn token(&self, url: &MonitorUrl) -> Result<Vec<u8>, Failure> {
        token(self.token_file.as_deref(), url)
    }
}
