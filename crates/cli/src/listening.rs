//! The flags by which one that listens, a monitor or a server of packets, shows who it is and whom it
//! lets in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use freshline_net::ask::Gone;
use freshline_net::credentials::{Change, Credentials, Reloader, Right, Rules};
use freshline_net::quic::{Authorities, Identity, Limits, ServerConfig};
use freshline_net::stop::Stop;
use freshline_system::privileges::{Privilege, with_only};
use miette::{IntoDiagnostic, miette};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::output::{stop_on, stop_on_signals};
use crate::token;
use crate::url::{DEFAULT_PORT, MonitorUrl, Scheme};

/// Identity and admission on quic://.
#[derive(Debug, clap::Args)]
pub(crate) struct ListenArgs {
    /// Show this certificate (quic://); else one is made and kept in --state-dir.
    #[arg(long, value_name = "PEM", requires = "key", help_heading = "Security")]
    cert: Option<PathBuf>,
    /// The private key of --cert.
    #[arg(long, value_name = "PEM", requires = "cert", help_heading = "Security")]
    key: Option<PathBuf>,
    /// Where the certificate of one's own making is kept; else the user's state directory.
    #[arg(long, value_name = "DIR", conflicts_with = "cert", help_heading = "Security")]
    state_dir: Option<PathBuf>,
    /// Take only those whose certificate one of these authorities has signed (quic://). SIGHUP reads the
    /// file again, and ends the connections that it does not permit any more.
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
    /// Accept only peers with a token that this file permits to use their name (quic://). Its lines are
    /// `name-pattern publish|subscribe token-digest`: `publish` for sources of a monitor, `subscribe`
    /// for clients of a downlink. `freshline token new` prints a line. SIGHUP reads the file again and
    /// ends the sessions that it does not permit any more.
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    credentials: Option<PathBuf>,
    /// Listen on udp:// at an address that is not loopback, where any host can open sessions, and a host
    /// on the path can read and forge messages. For trusted networks.
    #[arg(long, help_heading = "Security")]
    insecure: bool,
}

impl ListenArgs {
    /// QUIC's settings and the identity that is shown; `None` on udp://.
    pub(crate) fn quic(
        &self,
        listen: &MonitorUrl,
        limits: Limits,
    ) -> Result<Option<Quic>, Failure> {
        if listen.scheme == Scheme::Udp {
            let given = self.cert.is_some() || self.state_dir.is_some();
            if given || !self.is_open() {
                return Err(Failure::Usage(miette!(
                    "--cert, --state-dir, --client-ca, --token-file and --credentials mean nothing on \
                     udp://, which is neither encrypted nor authenticated; use quic://"
                )));
            }
            return Ok(None);
        }
        if self.insecure {
            return Err(Failure::Usage(miette!(
                "--insecure belongs to udp://; quic:// is always encrypted, so leave it out"
            )));
        }
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Identity::from_pem_files(cert, key),
            _ => Identity::from_state_dir(&state_dir(self.state_dir.as_deref())?),
        };
        let identity = identity.into_diagnostic().map_err(Failure::Usage)?;
        let made = Made { identity: Arc::new(identity), clients: self.client_ca.clone(), limits };
        Ok(Some(Quic { config: made.config().map_err(Failure::Usage)?, made }))
    }

    /// The certificate that was given, and its key.
    pub(crate) fn cert_files(&self) -> Option<(&Path, &Path)> {
        self.cert.as_deref().zip(self.key.as_deref())
    }

    /// The address to listen at. On udp:// it must be loopback, unless --insecure permits others.
    pub(crate) fn address(&self, listen: &MonitorUrl) -> Result<SocketAddr, Failure> {
        let address = listen.resolve().map_err(Failure::Usage)?;
        if listen.scheme == Scheme::Udp && !self.insecure && !is_loopback(address) {
            return Err(Failure::Usage(miette!(
                help = "listen on quic://, with --credentials, --token-file or --client-ca to accept \
                        known peers only; or, on a network that you trust, give --insecure",
                "udp://{address} can be reached from other hosts, and udp:// is neither encrypted nor \
                 authenticated"
            )));
        }
        Ok(address)
    }

    /// The default of where to listen: all addresses if peers need a token or a certificate, otherwise
    /// loopback.
    pub(crate) fn default_url(&self) -> MonitorUrl {
        let host = if self.is_open() { "127.0.0.1" } else { "0.0.0.0" };
        MonitorUrl { scheme: Scheme::Quic, host: host.to_owned(), port: DEFAULT_PORT }
    }

    /// Whether neither a token nor a certificate is asked for.
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

    /// Who may open a session that needs this right.
    pub(crate) fn rules(&self, right: Right) -> Result<Rules, Failure> {
        let file = self.credentials_file(right);
        let credentials = file.map(|file| file.read()).transpose().map_err(Failure::Usage)?;
        Ok(Rules { right, credentials, certified_names: self.certified_names })
    }

    /// Ctrl-C and a request to terminate end the run; so does a hang-up, unless it reads credentials
    /// again.
    pub(crate) fn stop_on_signals(&self) -> Result<Stop, Failure> {
        match self.is_open() {
            true => stop_on_signals(),
            false => stop_on(&[SIGINT, SIGTERM]),
        }
    }

    /// From now on a hang-up (SIGHUP) reads the credentials and the authorities again. If one of the files
    /// cannot be used, nothing changes. A file that changes is not read without the signal: it may be half
    /// written. Call it before privileges are given up.
    pub(crate) fn reload_on_hangup(
        &self,
        right: Right,
        quic: Option<&Quic>,
        reloader: Reloader,
    ) -> Result<(), Failure> {
        let credentials = self.credentials_file(right);
        let made = quic.map(|quic| quic.made.clone()).filter(|made| made.clients.is_some());
        let authorities = made.as_ref().and_then(|made| made.clients.as_deref());
        let files = credentials.as_ref().map(CredentialsFile::path).into_iter().chain(authorities);
        let files: Vec<_> = files.map(|path| path.display().to_string()).collect();
        if files.is_empty() {
            return Ok(());
        }
        let files = files.join(" and ");
        let mut hangups = Signals::new([SIGHUP]).into_diagnostic().map_err(Failure::Runtime)?;
        let read = move || -> miette::Result<Change> {
            let credentials = credentials.as_ref().map(CredentialsFile::read).transpose()?;
            let quic = made.as_ref().map(Made::config).transpose()?;
            Ok(Change { credentials, quic })
        };
        let reload = move || {
            for _ in hangups.forever() {
                match read().map(|change| reloader.replace(change)) {
                    Ok(Ok(ended)) => say!("{files} was read again; sessions ended: {ended}"),
                    Ok(Err(Gone)) => return,
                    Err(report) => {
                        say!("{report:#}; the credentials that were read before stay in force");
                    }
                }
            }
        };
        // It can read what the start could, also if the file then belongs to another user.
        with_only(&[Privilege::CAP_DAC_READ_SEARCH], || std::thread::spawn(reload));
        Ok(())
    }

    fn credentials_file(&self, right: Right) -> Option<CredentialsFile> {
        let credentials = self.credentials.clone();
        let lines = credentials.map(|path| CredentialsFile::Lines { path, right });
        lines.or_else(|| self.token_file.clone().map(CredentialsFile::Tokens))
    }
}

/// QUIC's settings, and what they are made of.
pub(crate) struct Quic {
    pub(crate) config: ServerConfig,
    made: Made,
}

impl Quic {
    pub(crate) fn identity(&self) -> &Identity {
        &self.made.identity
    }
}

#[derive(Clone)]
struct Made {
    identity: Arc<Identity>,
    /// The file of authorities of clients.
    clients: Option<PathBuf>,
    limits: Limits,
}

impl Made {
    fn config(&self) -> miette::Result<ServerConfig> {
        let clients = self.clients.as_deref().map(Authorities::from_pem_file);
        let clients = clients.transpose().into_diagnostic()?;
        ServerConfig::new(&self.identity, clients.as_ref(), self.limits).into_diagnostic()
    }
}

/// Where credentials come from.
enum CredentialsFile {
    /// Tokens, which permit everything.
    Tokens(PathBuf),
    /// Lines, of which some must have the right.
    Lines { path: PathBuf, right: Right },
}

impl CredentialsFile {
    fn path(&self) -> &Path {
        match self {
            Self::Tokens(path) | Self::Lines { path, .. } => path,
        }
    }

    fn read(&self) -> miette::Result<Credentials> {
        match self {
            Self::Tokens(path) => {
                let tokens = token::read_all(path)?;
                Ok(Credentials::of_tokens(tokens.iter().map(Vec::as_slice)))
            }
            Self::Lines { path, right } => Credentials::read(path, *right).into_diagnostic(),
        }
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
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
            Failure::Usage(miette!(
                "neither HOME nor --state-dir says where to keep the certificate"
            ))
        })
}
