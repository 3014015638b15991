//! The path emulator: a UDP relay with the rate, delay, jitter, loss and queues of any path.
//! [`tun`] emulates paths for any protocol, with root.
//!
//! ```text
//! clients ◄──► listening socket ──► forward path ──► one socket per client ──► target
//!                     ▲                                      │
//!                     └────────── reverse path ◄─────────────┘
//! ```
//!
//! All clients share the two paths, which are the bottleneck. The hops are those of
//! [`freshline_core::link`], driven in real time by one thread, without root. A packet counts with
//! its IP and UDP headers (28 bytes over IPv4, 48 over IPv6), as on a real path.
//!
//! With Wi-Fi among the [`Conditions`](freshline_core::link::Conditions), each client is a station
//! of a cell, and the target is behind the access point: the clients' packets go over the air
//! first, and packets for them go over the air last. The packets of a frame are forwarded back to
//! back.
//!
//! Drops in the system's socket buffers are not visible here; the relay requests large buffers.

mod air;
mod datagram;
mod flows;
mod frames;
mod pcap;
mod relay;
mod report;
pub mod tun;
mod volley;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_core::dscp::Dscp;
use freshline_core::link::{ConditionsConfig, ConditionsError};
use freshline_core::unit::{Span, Time};
use mio::{Events, Interest, Poll, Token};

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::waker::Waker;
pub use frames::FrameLogError;
use relay::Relay;
pub use report::{
    CellReport, DirectionReport, FlowReport, HopReport, Report, StationReport, TimingError,
};
use volley::Volley;

/// The conditions to emulate, and the limits for clients.
#[derive(Debug, Clone, PartialEq)]
pub struct EmulatorConfig {
    /// The conditions between the clients and the target.
    pub conditions: ConditionsConfig,
    /// The maximum number of clients; each takes a socket. A further client replaces the one that
    /// has been silent for the longest time, if that is at least `rest`, or is refused.
    pub max_flows: usize,
    /// The silence in both directions after which a client can be replaced.
    pub rest: Span,
    /// The silence in both directions after which a client is forgotten.
    pub idle_timeout: Span,
    /// Where to log the frames that come over the air.
    pub frames: Option<PathBuf>,
    /// Where to capture these frames, like a monitor next to the receiver.
    pub air: Option<PathBuf>,
    /// The code point of all departing datagrams, as in a network that re-marks packets at its
    /// border; `None` keeps each datagram's own.
    pub dscp: Option<Dscp>,
}

impl Default for EmulatorConfig {
    fn default() -> Self {
        Self {
            conditions: ConditionsConfig::default(),
            max_flows: 64,
            rest: Span::from_millis(250),
            idle_timeout: Span::from_secs(60),
            frames: None,
            air: None,
            dscp: None,
        }
    }
}

/// Why the emulator could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum EmulateError {
    /// The listening address is unavailable.
    #[error("cannot listen on {address}: {source}; choose a free address of this machine")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The conditions are invalid.
    #[error(transparent)]
    Conditions(#[from] ConditionsError),
    /// The frames cannot be logged.
    #[error(transparent)]
    Frames(#[from] FrameLogError),
    /// The system refused a poll, a timer or a socket.
    #[error("the system refused to {action}: {source}; see its limits on open files (`ulimit -n`)")]
    System {
        /// The refused action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn system(action: &'static str) -> impl FnOnce(io::Error) -> EmulateError {
    move |source| EmulateError::System { action, source }
}

const LISTENER: Token = Token(0);
const ALARM: Token = Token(1);
const WAKER: Token = Token(2);
/// Flows have this token and higher ones.
const FIRST_FLOW: Token = Token(3);

/// An emulator that is bound to its address; [`Emulator::run`] starts it.
#[derive(Debug)]
pub struct Emulator {
    poll: Poll,
    alarm: Alarm,
    clock: Clock,
    local_addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Held by the emulator's thread except while it sleeps.
    relay: Mutex<Relay>,
    stop: AtomicBool,
    waker: Waker,
}

impl Shared {
    fn relay(&self) -> MutexGuard<'_, Relay> {
        // A panic of a reader leaves the relay consistent.
        self.relay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Emulator {
    /// Listens on `listen` for clients of `target`. All random numbers follow from `seed`: the n-th
    /// packet over a hop always meets the same loss and jitter.
    pub fn bind(
        listen: SocketAddr,
        target: SocketAddr,
        config: EmulatorConfig,
        seed: u64,
    ) -> Result<Self, EmulateError> {
        let poll = Poll::new().map_err(system("make a poll"))?;
        let registry = poll.registry();
        let mut alarm = Alarm::new().map_err(system("make a timer"))?;
        registry.register(&mut alarm, ALARM, Interest::READABLE).map_err(system("poll a timer"))?;
        let waker = Waker::of_poll(registry, WAKER).map_err(system("make a waker"))?;
        let registry = registry.try_clone().map_err(system("share a poll"))?;
        let relay = Relay::new(listen, target, config, seed, registry)?;
        let local_addr = relay.local_addr().map_err(system("tell the local address"))?;
        let shared =
            Arc::new(Shared { relay: Mutex::new(relay), stop: AtomicBool::new(false), waker });
        Ok(Self { poll, alarm, clock: Clock::new(), local_addr, shared })
    }

    /// The address for clients.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// A handle with which other threads watch and stop it.
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// Relays until a [`Handle`] stops it or until the time `until`, and reports.
    pub fn run(&mut self, until: Option<Time>) -> Result<Report, EmulateError> {
        let (mut events, mut volley) = (Events::with_capacity(256), Volley::new());
        loop {
            let now = self.clock.now();
            if self.shared.stop.load(Ordering::Acquire) || until.is_some_and(|end| now >= end) {
                let mut relay = self.shared.relay();
                relay.flush()?;
                return Ok(relay.report());
            }
            let wake = {
                let mut relay = self.shared.relay();
                relay.turn(events.iter().map(|event| event.token()), &mut volley);
                let at_once = relay.is_busy().then_some(now);
                Time::earliest([at_once, relay.poll_timeout(), until])
            };
            let timeout = self.alarm.poll_until(self.clock.now(), wake);
            let timeout = timeout.map_err(system("set a timer"))?;
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                polled => polled.map_err(system("poll its sockets"))?,
            }
        }
    }
}

/// Watches and stops an [`Emulator`] from any thread.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// Makes [`Emulator::run`] return.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        // If the waker fails, there is no poll left to wake.
        let _ = self.shared.waker.wake();
    }

    /// The report of the run until now.
    pub fn report(&self) -> Report {
        self.shared.relay().report()
    }
}
