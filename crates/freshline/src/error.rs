//! Errors of sources, monitors and relays.

use std::io;
use std::path::PathBuf;

use freshline_net::quic::{IdentityError, TrustError};
use freshline_net::source::SourceError;

use crate::url::BadUrl;

/// An error when a source, monitor or relay is built or while it runs. Network failures are not
/// errors: the library retries and reports them as events.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL cannot be understood.
    #[error(transparent)]
    Url(#[from] BadUrl),
    /// `quic://` without a trusted certificate or authority.
    #[error(
        "quic://{host}: no trusted certificate: set the fingerprint that the monitor prints (`pin`), or the \
         authority that has signed its certificate (`ca_file`)"
    )]
    NoTrust {
        /// The host of the URL.
        host: String,
    },
    /// A setting cannot have this value.
    #[error("{setting}: {why}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The fault, and a valid value.
        why: &'static str,
    },
    /// A setting of `quic://` with a URL of `udp://`.
    #[error(
        "{setting} means nothing on udp://, which is neither encrypted nor authenticated; use quic://"
    )]
    NeedsQuic {
        /// The setting.
        setting: &'static str,
    },
    /// A monitor on `udp://` that other hosts can reach.
    #[error(
        "udp://{address} can be reached from other hosts, and udp:// is neither encrypted nor \
         authenticated: listen on quic://, or, on a network that is trusted, set `insecure`"
    )]
    Reachable {
        /// The address to listen at.
        address: std::net::SocketAddr,
    },
    /// The certificates or authorities cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The own certificate is invalid or cannot be created.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// There is no directory for a self-signed certificate.
    #[error("there is no directory for the certificate: set HOME or `state_dir`")]
    NoStateDir,
    /// A file of tokens cannot be used.
    #[error("the token file {path}: {why}", path = path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// The host of a URL has no address.
    #[error("cannot find the address of {host}: {error}")]
    Resolve {
        /// The host.
        host: String,
        /// The system's error.
        error: io::Error,
    },
    /// An invalid pattern or maximum age.
    #[error(transparent)]
    MaxAge(#[from] freshline_core::session::BadMaxAge),
    /// Longer states than the transport carries.
    #[error(
        "`max_state` of {given} bytes: at most {max} can be sent by this transport, in 65536 parts"
    )]
    MaxState {
        /// The length asked for.
        given: usize,
        /// The maximum.
        max: usize,
    },
    /// The source cannot run, or cannot go on.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The monitor cannot run, or cannot go on.
    #[cfg(feature = "monitor")]
    #[error(transparent)]
    Monitor(#[from] freshline_net::monitor::MonitorError),
    /// The credentials cannot be used.
    #[cfg(feature = "monitor")]
    #[error(transparent)]
    Credentials(#[from] freshline_net::credentials::CredentialsError),
    /// The monitor cannot send these topics.
    #[cfg(feature = "monitor")]
    #[error(transparent)]
    Return(#[from] freshline_net::monitor::ReturnConfigError),
    /// The relay cannot run, or cannot go on.
    #[cfg(feature = "monitor")]
    #[error(transparent)]
    Relay(#[from] freshline_net::relay::RelayError),
    /// The source, monitor or relay has ended.
    #[error("this source, monitor or relay has ended; make another one")]
    Ended,
    /// [`Source::finish`](crate::Source::finish) ended before the monitor had everything.
    #[error("the monitor did not acknowledge all states and records in time")]
    Undelivered,
    /// A function that runs on the network thread, such as one for
    /// [`Topic::sample_with`](crate::Topic::sample_with), made a call that waits for that thread.
    #[error("a function that runs on the network thread cannot wait for that thread")]
    OwnThread,
    /// The system gives no random numbers.
    #[error("cannot number the records of a source: {0}")]
    Random(String),
    /// The system has no thread left.
    #[error("the system has no thread left: {0}")]
    Thread(io::Error),
    /// The network thread panicked: a fault of the library, or of a function that the application
    /// gave it.
    #[error("the network thread panicked; its message is on standard error")]
    Panicked,
}

impl Error {
    /// Whether a setting or a file is invalid; otherwise the operating system refused a request.
    pub fn is_of_settings(&self) -> bool {
        match self {
            Self::Source(error) => matches!(
                error,
                SourceError::Opening(_)
                    | SourceError::Topics(_)
                    | SourceError::Dial(_)
                    | SourceError::Paths(_)
            ),
            #[cfg(feature = "monitor")]
            Self::Return(error) => {
                !matches!(error, freshline_net::monitor::ReturnConfigError::Monitor(_))
            }
            #[cfg(feature = "monitor")]
            Self::Relay(error) => error.is_of_settings(),
            #[cfg(feature = "monitor")]
            Self::Monitor(_) => false,
            Self::Ended
            | Self::Undelivered
            | Self::OwnThread
            | Self::Random(_)
            | Self::Thread(_)
            | Self::Panicked => false,
            _ => true,
        }
    }
}

/// There is no topic of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no topic {name:?}; there are {known:?}: name it when you build the source or monitor"
)]
pub struct UnknownTopic {
    /// The name.
    pub name: String,
    /// The existing names.
    pub known: Vec<String>,
}
