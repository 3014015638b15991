//! The flags by which a listening end, a monitor or a server of packets, identifies itself and
//! admits peers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use freshline::driver::ask::Gone;
use freshline::driver::credentials::{Reloader, Right};
use freshline::driver::stop::Stop;
use freshline::{Listening, Quic, Scheme, Url};
use freshline_system::privileges::{Privilege, with_only};
use miette::{IntoDiagnostic, miette};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::output::{stop_on, stop_on_signals};

/// Identity and admission on quic://.
#[derive(Debug, clap::Args)]
pub(crate) struct ListenArgs {
    /// Show this certificate (quic://); without it, one is made and kept in --state-dir.
    #[arg(long, value_name = "PEM", requires = "key", help_heading = "Security")]
    cert: Option<PathBuf>,
    /// Use the private key of --cert.
    #[arg(long, value_name = "PEM", requires = "cert", help_heading = "Security")]
    key: Option<PathBuf>,
    /// Keep the generated certificate in this directory. Default: in the user's state directory.
    #[arg(long, value_name = "DIR", conflicts_with = "cert", help_heading = "Security")]
    state_dir: Option<PathBuf>,
    /// Accept only peers with a certificate signed by one of these authorities (quic://). SIGHUP
    /// reads the file again, and closes connections that it no longer permits.
    #[arg(long, value_name = "PEM", help_heading = "Security")]
    client_ca: Option<PathBuf>,
    /// Accept a peer only under names that its certificate lists, as DNS names or URIs (subject
    /// alternative names). By default a peer may take any name, and keeps it from other certificates.
    #[arg(long, requires = "client_ca", help_heading = "Security")]
    certified_names: bool,
    /// Accept only peers that show one of the tokens in this file, one per line, under any name
    /// (quic://). SIGHUP reads the file again.
    #[arg(long, value_name = "FILE", conflicts_with = "credentials", help_heading = "Security")]
    token_file: Option<PathBuf>,
    /// Accept only peers with a token that this file permits to use their name (quic://). Its lines
    /// are `name-pattern publish|subscribe token-digest`: `publish` for sources of a monitor,
    /// `subscribe` for clients of a downlink. `freshline token new` prints a line. SIGHUP reads the
    /// file again and closes sessions that it no longer permits.
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    credentials: Option<PathBuf>,
    /// Listen on udp:// at an address that is not loopback, where any host can open sessions, and a
    /// host on the path can read and forge messages. Only for trusted networks.
    #[arg(long, help_heading = "Security")]
    insecure: bool,
}

impl ListenArgs {
    /// The identity of this end, and the peers that it admits.
    pub(crate) fn listening(&self, url: &Url) -> Result<Listening, Failure> {
        let is_udp = url.scheme() == Scheme::Udp;
        let given = self.cert.is_some() || self.state_dir.is_some();
        if is_udp && (given || !self.is_open()) {
            return Err(Failure::Usage(miette!(
                "--cert, --state-dir, --client-ca, --token-file and --credentials do not apply to \
                 udp://, which is neither encrypted nor authenticated; use quic://"
            )));
        }
        if !is_udp && self.insecure {
            return Err(Failure::Usage(miette!(
                "--insecure belongs to udp://; quic:// is always encrypted, so leave it out"
            )));
        }
        let mut listening = Listening::default();
        if let Some((cert, key)) = self.cert_files() {
            listening = listening.identity_files(cert, key);
        }
        if let Some(dir) = &self.state_dir {
            listening = listening.state_dir(dir);
        }
        if let Some(pem) = &self.client_ca {
            listening = listening.client_ca_file(pem);
        }
        if let Some(file) = &self.credentials {
            listening = listening.credentials_file(file);
        }
        if let Some(file) = &self.token_file {
            listening = listening.token_file(file);
        }
        if self.certified_names {
            listening = listening.certified_names();
        }
        Ok(if self.insecure { listening.insecure() } else { listening })
    }

    /// The certificate that was given, and its key.
    pub(crate) fn cert_files(&self) -> Option<(&Path, &Path)> {
        self.cert.as_deref().zip(self.key.as_deref())
    }

    /// The default address: all addresses if peers need a token or a certificate, otherwise
    /// loopback.
    pub(crate) fn default_url(&self) -> Url {
        let host = if self.is_open() { "127.0.0.1" } else { "0.0.0.0" };
        Url::new(Scheme::Quic, host, Url::DEFAULT_PORT).expect("it is an address")
    }

    /// Whether neither a token nor a certificate is required.
    fn is_open(&self) -> bool {
        self.token_file.is_none() && self.credentials.is_none() && self.client_ca.is_none()
    }

    /// Warns on standard error if any host may do this, unless --insecure permits it.
    pub(crate) fn warn_if_open(&self, address: SocketAddr, what: &str) {
        if self.is_open() && !self.insecure && !is_loopback(address) {
            say!(
                "any host that can reach {address} may {what}; --credentials, --token-file or \
                 --client-ca accept known peers only"
            );
        }
    }

    /// Ends the run on Ctrl-C and on SIGTERM; on SIGHUP only if that does not reload credentials.
    pub(crate) fn stop_on_signals(&self) -> Result<Stop, Failure> {
        match self.is_open() {
            true => stop_on_signals(),
            false => stop_on(&[SIGINT, SIGTERM]),
        }
    }
}

/// From now on a SIGHUP reads the credentials and the authorities again. If one of the files cannot
/// be used, nothing changes. A changed file is not read without the signal, as it may be half
/// written. Call this before privileges are given up.
pub(crate) fn reload_on_hangup(
    listening: Listening,
    right: Right,
    quic: Option<Quic>,
    reloader: Reloader,
) -> Result<(), Failure> {
    let files: Vec<_> = listening.files().iter().map(|path| path.display().to_string()).collect();
    if files.is_empty() {
        return Ok(());
    }
    let files = files.join(" and ");
    let mut hangups = Signals::new([SIGHUP]).into_diagnostic().map_err(Failure::Runtime)?;
    let reload = move || {
        for _ in hangups.forever() {
            let read = listening.read_again(right, quic.as_ref());
            match read.map(|change| reloader.replace(change)) {
                Ok(Ok(ended)) => say!("{files} was read again; sessions ended: {ended}"),
                Ok(Err(Gone)) => return,
                Err(error) => {
                    let report = miette::Report::msg(error);
                    say!("{report:#}; the credentials that were read before stay in force");
                }
            }
        }
    };
    // The thread can read every file that could be read at the start, even if it then belongs to
    // another user.
    with_only(&[Privilege::CAP_DAC_READ_SEARCH], || std::thread::spawn(reload));
    Ok(())
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Prints the address and the fingerprint of this end on standard error.
pub(crate) fn say_where(address: SocketAddr, quic: Option<&Quic>) {
    match quic {
        None => say!("listening at udp://{address}; neither encrypted nor authenticated"),
        Some(quic) => {
            say!("listening at quic://{address}\nfingerprint {}", quic.fingerprint());
        }
    }
}
