//! A relay: a monitor that is the source of further monitors, its destinations.
//!
//! ```text
//!   sources ─► Monitor ─► Board ─┬─► Sessions: a source's session per source ─► destination
//!              (a thread)        └─► Sessions (a thread per destination) ─────► destination
//! ```
//!
//! Each source of the monitor has its own session at each destination, under the same name, with
//! its own law, and so at the rate of that path. Only the newest state of each topic and key is
//! kept: a newer state replaces one that has not been sent. The relay forwards the bytes of a state
//! unchanged, under the names of its topic and key, and forwards removals of keys. Weights,
//! deadlines and rates of topics are not on the wire: here all topics have equal weight. Records
//! are forwarded in order, and each is done when all destinations have it: see `records`.
//!
//! **Age.** The monitor knows the age of each state from the chain of clock offsets before it, and
//! a relay forwards a state as generated at (now − age) on its own clock. A destination therefore
//! counts the age from the original generation, over any number of relays. Each hop adds at most
//! half of its minimum round trip to the error. `board` documents which states are held back, and
//! why.
//!
//! **Bounds.** Each destination has at most
//! [`max_sources`](freshline_core::session::MonitorParams::max_sources) sessions, one per record of
//! the monitor. Beyond that the monitor refuses newcomers or displaces sources, and a displaced
//! source falls silent at the destinations, too.
//!
//! **The end of a source.** If a source closes its session, the relay closes its sessions at the
//! destinations. If it falls silent, they fall silent, and the destinations keep its name with a
//! growing age.
//!
//! **Loops.** A state leaves each relay at most once per destination and period of the law, so a
//! loop cannot multiply states. A relay refuses to be its own destination. In a longer loop the
//! name belongs to the session that opened it first, if sources and relays present different tokens
//! or certificates; otherwise the sessions displace each other, with growing pauses. An older state
//! never replaces a newer one of its name, so copies of states do not travel around the loop.

mod board;
#[cfg(test)]
mod lossless;
mod metrics;
mod newest;
mod parting;
mod records;
mod report;
mod sessions;
mod states;
mod timers;
#[cfg(test)]
mod torture;
#[cfg(test)]
mod world;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;

use freshline_core::session::{
    self, PathsError, Secret, SourceParams, TopicError, TopicKind, TopicParams,
};
use freshline_core::source::LawConfig;
use freshline_core::unit::Time;
use freshline_core::wire::{Opening, OpeningTooLong};

use crate::ask::{self, Gone};
use crate::clock::Clock;
use crate::credentials::Reloader;
use crate::dial::Remote;
use crate::monitor::{self, Monitor, MonitorConfig, MonitorError};
use crate::quic;
use crate::run;
use crate::source::{self, SourceError, SourcePaths, Transport};
use crate::stop::Stop;
use crate::system::SystemError;
use crate::via::{Interfaces, Via};

pub use metrics::serve as serve_metrics;
pub use report::{DestinationReport, RelayReport, RelayedReport};

use board::{Board, Tally};
use sessions::{Sessions, Watched};

/// A monitor to which states are relayed.
#[derive(Debug, Clone)]
pub struct Destination {
    /// Its name, whose addresses are all tried, or its address.
    pub monitor: Remote,
    /// How datagrams are carried.
    pub transport: Transport,
    /// The network interfaces to use.
    pub paths: SourcePaths,
    /// The sessions' settings. The name and the maximum state size are overridden: by the name of
    /// each source, and by the limit of the relay's own monitor.
    pub params: SourceParams,
    /// When to send; each session has its own law.
    pub law: LawConfig,
}

/// The configuration of a relay.
#[derive(Debug)]
pub struct RelayConfig {
    /// The monitor that receives the states.
    pub monitor: MonitorConfig,
    /// The monitors to which the states are relayed.
    pub destinations: Vec<Destination>,
}

/// Why a relay cannot run, or cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// There is no destination.
    #[error("a relay needs a destination")]
    NoDestination,
    /// A destination is given twice: both sessions of a source would have one name there.
    #[error("{destination} is given twice as destination")]
    Twice {
        /// The destination.
        destination: Remote,
    },
    /// A destination is the relay itself.
    #[error("the relay listens at {destination} itself, which cannot be its destination")]
    Itself {
        /// The destination.
        destination: Remote,
    },
    /// The monitor accepts longer states than can be sent to a destination.
    #[error(
        "states of {given} bytes are taken, and at most {max} can be sent to {destination}, as a state \
         has at most 65536 parts"
    )]
    MaxState {
        /// The destination.
        destination: Remote,
        /// The longest state that the monitor accepts.
        given: usize,
        /// The longest state that can be sent.
        max: usize,
    },
    /// The token is too long.
    #[error(transparent)]
    Opening(#[from] OpeningTooLong),
    /// A destination cannot be dialled by QUIC.
    #[error(transparent)]
    Dial(#[from] quic::DialError),
    /// The paths are invalid.
    #[error(transparent)]
    Paths(#[from] PathsError),
    /// A destination's sessions cannot have topics.
    #[error(transparent)]
    Topics(#[from] TopicError),
    /// The monitor cannot run.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The operating system refused something else.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl RelayError {
    /// Whether the settings are wrong, as opposed to a refusal by the system.
    pub fn is_of_settings(&self) -> bool {
        !matches!(self, Self::Monitor(_) | Self::System(_))
    }
}

/// Receives the events of the sessions of one destination, on its thread; none of its methods may block.
pub trait Watch: source::Watch + Send {
    /// The session of this source cannot be opened, or has failed; it is reopened in 2 s.
    fn failed(&mut self, _now: Time, _source: &str, _error: &SourceError) {}
}

impl Watch for () {}

/// A handle that queries a relay running on other threads.
#[derive(Clone)]
pub struct Asker {
    monitor: monitor::Asker,
    destinations: Vec<ask::Asker<DestinationReport>>,
    tally: Tally,
}

impl Asker {
    /// The report of the run until now, with at most `max` sources of the monitor and of each
    /// destination.
    ///
    /// # Errors
    /// [`Gone`] if the relay is no longer running.
    pub fn report(&self, max: usize) -> Result<RelayReport, Gone> {
        let destinations = self.destinations.iter().map(|asker| asker.report(max));
        let monitor = self.monitor.report(max)?;
        Ok(RelayReport::of(monitor, &self.tally, destinations.collect::<Result<_, _>>()?))
    }
}

/// A relay that is ready to run.
pub struct Relay {
    monitor: Monitor,
    board: Board,
    destinations: Vec<Sessions>,
}

impl Relay {
    /// Opens the monitor's socket.
    ///
    /// # Errors
    /// [`RelayError`] names the missing resource or the wrong setting.
    pub fn bind(config: RelayConfig) -> Result<Self, RelayError> {
        let RelayConfig { monitor: config, mut destinations } = config;
        if destinations.is_empty() {
            return Err(RelayError::NoDestination);
        }
        for destination in &mut destinations {
            destination.params.max_state = config.params.max_payload;
            check(destination)?;
        }
        let (detailed, max_bytes) = (config.detailed, config.params.max_large);
        let monitor = Monitor::bind(config)?;
        check_addresses(monitor.local_addr()?, &destinations)?;
        let sessions = destinations.into_iter().enumerate();
        let sessions = sessions.map(|(number, to)| Sessions::new(number, to, detailed));
        let destinations = sessions.collect::<Result<Vec<_>, _>>()?;
        let inboxes = destinations.iter().map(Sessions::inbox).collect();
        let board = Board::new(inboxes, max_bytes, monitor.waker());
        Ok(Self { monitor, board, destinations })
    }

    /// The monitor's listening address, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// [`RelayError::Monitor`] if the system does not report it.
    pub fn local_addr(&self) -> Result<SocketAddr, RelayError> {
        Ok(self.monitor.local_addr()?)
    }

    /// A handle with which other threads request reports.
    pub fn asker(&self) -> Asker {
        Asker {
            monitor: self.monitor.asker(),
            destinations: self.destinations.iter().map(Sessions::asker).collect(),
            tally: self.board.tally(),
        }
    }

    /// A handle with which another thread replaces the credentials of sources.
    pub fn reloader(&self) -> Reloader {
        self.monitor.reloader()
    }

    /// A summary of the run until now, or of the whole run, with the sources that are watched in
    /// detail.
    pub fn report(&self, watch: &dyn monitor::Watch) -> RelayReport {
        let destinations = self.destinations.iter().map(Sessions::last_report).collect();
        RelayReport::of(self.monitor.report(watch), &self.board.tally(), destinations)
    }

    /// Runs until `stop`, or until the time `until`, and then sends a close to all sources. `watch`
    /// receives the events of received states, and `watches` those of the sessions at each
    /// destination, in their order; sessions of further destinations are not watched. If one of its
    /// threads fails, it triggers `stop`.
    ///
    /// # Errors
    /// [`RelayError`] if it cannot continue; errors of single sources and destinations do not end
    /// it.
    pub fn run(
        &mut self,
        stop: &Stop,
        until: Option<Time>,
        watch: &mut dyn monitor::Watch,
        watches: &mut [Box<dyn Watch>],
    ) -> Result<(), RelayError> {
        let Self { monitor, board, destinations } = self;
        let mut watches = watches.iter_mut();
        let ended = &Stop::new();
        thread::scope(|scope| {
            let threads: Vec<_> = destinations
                .iter_mut()
                .map(|sessions| {
                    let watch = watches.next();
                    scope.spawn(move || {
                        let _failed = StopUnlessEnded { stop, ended };
                        let mut unwatched = ();
                        let watch: &mut dyn Watch = match watch {
                            Some(watch) => &mut **watch,
                            None => &mut unwatched,
                        };
                        run::run(&mut Watched { sessions, watch }, ended, None)
                    })
                })
                .collect();
            let received = {
                let _ended = StopAtEnd(ended);
                monitor.run(stop, until, &mut monitor::Both { first: board, other: watch })
            };
            let sent = threads.into_iter().map(|thread| match thread.join() {
                Ok(sent) => sent.map_err(RelayError::from),
                Err(panic) => std::panic::resume_unwind(panic),
            });
            // All threads are joined.
            let sent: Vec<_> = sent.collect();
            received?;
            sent.into_iter().collect()
        })
    }
}

/// Ends the destinations' threads together with the monitor's thread, also when that panics.
struct StopAtEnd<'a>(&'a Stop);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Stops the relay when a destination's thread ends before it, by an error or a panic.
struct StopUnlessEnded<'a> {
    stop: &'a Stop,
    ended: &'a Stop,
}

impl Drop for StopUnlessEnded<'_> {
    fn drop(&mut self) {
        if !self.ended.is_stopped() {
            self.stop.stop();
        }
    }
}

/// Checks that sessions can be opened at a destination, with the longest name and the longest
/// state.
fn check(destination: &Destination) -> Result<(), RelayError> {
    let Destination { monitor, transport, paths, params, law } = destination;
    if let Transport::Quic { config, server_name } = transport {
        let clock = Clock::new();
        let unknown = SocketAddr::from((Ipv4Addr::LOCALHOST, monitor.port()));
        let address = monitor.literal().unwrap_or(unknown);
        quic::Client::new(config, address, server_name, clock.instant_of(clock.now()))?;
    }
    let name = "n".repeat(Opening::MAX_NAME);
    let max_datagram = transport.max_datagram();
    let longest = SourceParams { name, max_datagram, ..params.clone() };
    let session = session::Source::new(longest, Secret::new([0; 16]), law.build(), Time::ZERO)?;
    let mut session = session.over(paths.paths()?);
    // With names of topics and keys.
    let keyed = TopicParams { kind: TopicKind::KEYED, ..TopicParams::new("any") };
    session.add_topic(keyed)?;
    let (given, max) = (params.max_state, session.max_state());
    if max < given {
        return Err(RelayError::MaxState { destination: monitor.clone(), given, max });
    }
    Ok(())
}

/// Checks that the destinations differ, and that none is the relay itself, which listens here.
fn check_addresses(listen: SocketAddr, destinations: &[Destination]) -> Result<(), RelayError> {
    let remotes: Vec<_> = destinations.iter().map(|destination| &destination.monitor).collect();
    for (at, destination) in remotes.iter().enumerate() {
        if remotes[..at].contains(destination) {
            return Err(RelayError::Twice { destination: (*destination).clone() });
        }
        if is_itself(listen, destination) {
            return Err(RelayError::Itself { destination: (*destination).clone() });
        }
    }
    Ok(())
}

/// Whether a listener at this address is reachable as `remote`, as far as that is known without a
/// resolver.
fn is_itself(listen: SocketAddr, remote: &Remote) -> bool {
    let ip = listen.ip().to_canonical();
    let is_local = |other: IpAddr| {
        let is_own = || Interfaces::read().is_ok_and(|all| all.holds(&Via::Any, other));
        other.is_loopback() || other.is_unspecified() || is_own()
    };
    let is_there = match remote.literal() {
        Some(other) if ip.is_unspecified() => is_local(other.ip().to_canonical()),
        Some(other) => other.ip().to_canonical() == ip,
        None => remote.host() == "localhost" && is_local(ip),
    };
    is_there && remote.port() == listen.port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_knows_itself_by_its_address() {
        let is_itself = |listen: &str, host: &str, port| {
            is_itself(listen.parse().unwrap(), &Remote::new(host, port))
        };
        for (listen, host) in [
            ("127.0.0.1:9", "127.0.0.1"),
            ("0.0.0.0:9", "127.0.0.1"),
            ("0.0.0.0:9", "0.0.0.0"),
            ("[::]:9", "127.0.0.1"),
            ("[::1]:9", "::1"),
            ("127.0.0.1:9", "localhost"),
            ("0.0.0.0:9", "localhost"),
            ("192.0.2.7:9", "192.0.2.7"),
        ] {
            assert!(is_itself(listen, host, 9), "{listen} {host}");
            assert!(!is_itself(listen, host, 10), "{listen} {host}, another port");
        }
        for (listen, host) in
            [("127.0.0.1:9", "127.0.0.2"), ("0.0.0.0:9", "192.0.2.7"), ("192.0.2.7:9", "localhost")]
        {
            assert!(!is_itself(listen, host, 9), "{listen} {host}");
        }
    }
}
