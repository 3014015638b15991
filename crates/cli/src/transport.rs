//! The flags by which one that dials, a source or a client of a downlink, chooses whom to trust and
//! who it is.

use std::path::PathBuf;

use freshline::driver::quic::Fingerprint;
use freshline::driver::source::Transport;
use freshline::{Dialling, Scheme, Url};
use miette::miette;

use crate::failure::Failure;

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

    /// Whom to trust at quic://.
    pub(crate) fn quic(&self) -> Result<Dialling, Failure> {
        if !self.are_given() {
            return Err(Failure::Usage(miette!(
                help = "a monitor or server prints its fingerprint at start: pass it on with --pin sha256:…, or \
                        name the authority that signed its certificate with --ca",
                "on quic:// one must know whom to trust"
            )));
        }
        let pinned = self.pin.iter().copied().fold(Dialling::default(), Dialling::pin);
        Ok(self.ca.iter().fold(pinned, Dialling::ca_file))
    }
}

/// Refuses a token on udp://.
pub(crate) fn check_token(file: Option<&PathBuf>, url: &Url) -> Result<(), Failure> {
    match file.is_some() && url.scheme() == Scheme::Udp {
        true => {
            Err(Failure::Usage(miette!("a token would be readable by all on udp://; use quic://")))
        }
        false => Ok(()),
    }
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
    /// Whom to trust there, and who this is.
    pub(crate) fn dialling(&self, url: &Url) -> Result<Dialling, Failure> {
        check_token(self.token_file.as_ref(), url)?;
        if url.scheme() == Scheme::Udp {
            return match self.trust.are_given() || self.cert.is_some() {
                true => Err(Failure::Usage(miette!(
                    "--pin, --ca and --cert mean nothing on udp://, which is neither encrypted \
                     nor authenticated; use quic://"
                ))),
                false => Ok(Dialling::default()),
            };
        }
        let shown = self.cert.iter().zip(&self.key);
        let dialling = shown
            .fold(self.trust.quic()?, |dialling, (cert, key)| dialling.identity_files(cert, key));
        Ok(self.token_file.iter().fold(dialling, Dialling::token_file))
    }

    /// How to reach the other side.
    pub(crate) fn transport(&self, url: &Url) -> Result<Transport, Failure> {
        Ok(self.dialling(url)?.transport(url)?)
    }

    /// The token to show, empty for none.
    pub(crate) fn token(&self, url: &Url) -> Result<Vec<u8>, Failure> {
        Ok(self.dialling(url)?.shown_token(url)?)
    }
}
