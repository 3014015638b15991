//! The flags by which a connecting end, a source or a client of a downlink, chooses the
//! certificates to trust and its own identity.

use std::path::{Path, PathBuf};

use freshline::driver::quic::Fingerprint;
use freshline::driver::source::Transport;
use freshline::{Dialling, Scheme, Url};
use miette::miette;

use crate::failure::Failure;

/// The certificates that a connecting end trusts on quic://.
#[derive(Debug, clap::Args)]
pub(crate) struct TrustArgs {
    /// Trust a far end with this certificate; a monitor or server prints its fingerprint at start
    /// (quic://). Repeat the flag to trust further ones.
    #[arg(long, value_name = "sha256:HEX", conflicts_with = "ca", help_heading = "Security")]
    pin: Vec<Fingerprint>,
    /// Trust far ends with a certificate signed by one of these authorities (quic://).
    #[arg(long, value_name = "PEM", help_heading = "Security")]
    ca: Option<PathBuf>,
}

impl TrustArgs {
    /// Whether a certificate or an authority is trusted.
    pub(crate) fn are_given(&self) -> bool {
        !self.pin.is_empty() || self.ca.is_some()
    }

    /// Trust and identity of a client of `url`, with the certificate and key, and the token's file,
    /// that it shows.
    pub(crate) fn dialling(
        &self,
        url: &Url,
        shown: Option<(&Path, &Path)>,
        token: Option<&Path>,
    ) -> Result<Dialling, Failure> {
        if url.scheme() == Scheme::Udp {
            return match token {
                Some(_) => Err(Failure::Usage(miette!(
                    "a token would be readable by all on udp://; use quic://"
                ))),
                None => Ok(Dialling::default()),
            };
        }
        if !self.are_given() {
            return Err(Failure::Usage(miette!(
                help = "a monitor or server prints its fingerprint at start: pass it on with --pin sha256:…, or \
                        name the authority that signed its certificate with --ca",
                "quic:// needs a certificate to trust"
            )));
        }
        let dialling = self.pin.iter().copied().fold(Dialling::default(), Dialling::pin);
        let dialling = self.ca.iter().fold(dialling, Dialling::ca_file);
        let dialling =
            shown.iter().fold(dialling, |dialling, (cert, key)| dialling.identity_files(cert, key));
        Ok(token.iter().fold(dialling, Dialling::token_file))
    }
}

/// Trust and identity of an end that connects on quic://.
#[derive(Debug, clap::Args)]
pub(crate) struct TransportArgs {
    #[command(flatten)]
    trust: TrustArgs,
    /// Show this certificate to the other side (quic://).
    #[arg(long, value_name = "PEM", requires = "key", help_heading = "Security")]
    cert: Option<PathBuf>,
    /// Use the private key of --cert.
    #[arg(long, value_name = "PEM", requires = "cert", help_heading = "Security")]
    key: Option<PathBuf>,
    /// Show the token in this file, if the other side asks for one (quic://).
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    token_file: Option<PathBuf>,
}

impl TransportArgs {
    /// Trust and identity of a client of `url`.
    pub(crate) fn dialling(&self, url: &Url) -> Result<Dialling, Failure> {
        let shown = self.cert.as_deref().zip(self.key.as_deref());
        let dialling = self.trust.dialling(url, shown, self.token_file.as_deref())?;
        if url.scheme() == Scheme::Udp && (self.trust.are_given() || self.cert.is_some()) {
            return Err(Failure::Usage(miette!(
                "--pin, --ca and --cert do not apply to udp://, which is neither encrypted \
                 nor authenticated; use quic://"
            )));
        }
        Ok(dialling)
    }

    /// How to reach the other side.
    pub(crate) fn transport(&self, url: &Url) -> Result<Transport, Failure> {
        Ok(self.dialling(url)?.transport(url)?)
    }

    /// The token to show; empty without a token.
    pub(crate) fn token(&self, url: &Url) -> Result<Vec<u8>, Failure> {
        Ok(self.dialling(url)?.shown_token(url)?)
    }
}
