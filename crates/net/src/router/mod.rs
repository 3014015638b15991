//! A queueing discipline of ours in front of a device of a Linux machine, in user space.
//!
//! ```text
//!            ┌───────────────────────── Router ─────────────────────────┐
//!  packets ──┤► Gate ─► Discipline ─► transmitter at the shaped rate ─► Gate ├──► device
//!            └──────────────── drops ─┘ ────────────────────────────────┘
//! ```
//!
//! The discipline and the transmitter are the lab's: a [`Hop`](freshline_core::link::Hop) without
//! a line. As the router shapes to a rate just below that of the link behind it, packets wait here,
//! where the discipline is, and not there.

mod control;
mod gate;
mod ledger;
mod metrics;
mod netfilter;
mod order;
mod shaper;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use freshline_core::router::{IfcConfig, IfilParams, QdiscConfig, QdiscError, RouterReport};
use freshline_core::unit::{BitRate, Packets, Span, Time};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use nix::net::if_::if_nametoindex;
use nix::unistd::Uid;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;

use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::stop::Stop;
use control::ControlSocket;
pub use control::{ControlError, order};
use gate::Gate;
pub use metrics::serve as serve_metrics;
use netfilter::NfqueueGate;
use order::Desk;
pub use order::{Order, OrderError, Orders};
use shaper::{Settings, Shaper};

/// What to do with the packets of which device.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterConfig {
    /// The device through which they leave.
    pub device: String,
    /// The rate to which they are shaped, above zero.
    pub rate: BitRate,
    /// The discipline.
    pub queue: QdiscConfig,
    /// The number of the kernel's queue that holds the packets; each router of a network namespace
    /// needs its own.
    pub queue_number: u16,
}

impl RouterConfig {
    /// The number of the kernel's queue, unless said.
    pub const DEFAULT_QUEUE_NUMBER: u16 = 3774;

    /// Freshness control that fits into the kernel's queue: as the default of [`IfcConfig`], but
    /// of at most 2000 flows an update waits.
    pub fn default_ifc() -> IfcConfig {
        let aoi = QdiscConfig::Ifil(IfilParams { limit: Packets::new(2000) });
        IfcConfig { aoi, ..IfcConfig::default() }
    }
}

/// Why a router cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// Not root.
    #[error(
        "needs root, to take packets from the kernel: run it with `sudo`, or as root in a \
         container with CAP_NET_ADMIN"
    )]
    NeedsRoot,
    /// No such device.
    #[error("there is no device `{0}` in this network namespace; `ip link` lists those there are")]
    NoDevice(String),
    /// A rate at which nothing would ever leave.
    #[error("the rate is zero, and nothing would ever leave; give a rate such as 20mbit")]
    ZeroRate,
    /// A discipline that makes no sense.
    #[error("queue: {0}")]
    Queue(#[from] QdiscError),
    /// Another router has the device.
    #[error(
        "another `freshline router` shapes {0} already; `freshline router status --dev {0}` shows \
         it, `freshline router set` changes it"
    )]
    DeviceTaken(String),
    /// Another program has the kernel's queue.
    #[error(
        "the kernel's queue {0} is taken by another program, or by the router of another device; \
         choose another number with --queue-number"
    )]
    QueueTaken(u16),
    /// The kernel lacks something.
    #[error(
        "the kernel does not give {what}: {source}; it takes Linux 5.12 with nf_tables, \
         CONFIG_NETFILTER_NETLINK_QUEUE, and CONFIG_NFT_QUEUE or CONFIG_NFT_COMPAT with \
         CONFIG_NETFILTER_XT_TARGET_NFQUEUE"
    )]
    Netfilter {
        /// What was asked for.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The system has no randomness.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
    /// The system refused something else.
    #[error("the system refused to {action}: {source}")]
    System {
        /// What was to be done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

fn system(action: &'static str) -> impl FnOnce(io::Error) -> RouterError {
    move |source| RouterError::System { action, source }
}

const GATE: Token = Token(0);
const ALARM: Token = Token(1);
const WAKER: Token = Token(2);

/// A router that holds the packets of its device from its making on.
pub struct Router {
    shaper: Shaper<NfqueueGate>,
    poll: Poll,
    alarm: Alarm,
    waker: Arc<Waker>,
    desk: Desk,
}

impl Router {
    /// How long what waits may take to leave when the router ends.
    const LINGER: Span = Span::from_secs(1);
    /// How many flows a report tells of.
    const FLOWS: usize = 20;

    /// Takes the packets of the device; until [`Router::run`] they wait.
    pub fn open(config: RouterConfig) -> Result<Self, RouterError> {
        let RouterConfig { device, rate, queue, queue_number } = config;
        if rate == BitRate::from_bps(0) {
            return Err(RouterError::ZeroRate);
        }
        if if_nametoindex(device.as_str()).is_err() {
            return Err(RouterError::NoDevice(device));
        }
        // A discipline that makes no sense is told of before anything is asked of the system.
        let mut rng = Pcg64::from_seed(seed().map_err(RouterError::Random)?);
        let discipline = queue.build(&mut rng)?;
        if !Uid::effective().is_root() {
            return Err(RouterError::NeedsRoot);
        }
        let control = ControlSocket::take(&device)?;
        let gate = NfqueueGate::open(&device, queue_number, rate)?;
        let shaper = Shaper::new(Settings { device, rate, queue }, discipline, gate, rng);

        let polling = system("poll the kernel's queue");
        let (poll, alarm, waker) = wakeups(&shaper).map_err(polling)?;
        let desk = Desk::new(Arc::clone(&waker));
        control.serve(desk.orders());
        Ok(Self { shaper, poll, alarm, waker, desk })
    }

    /// For orders from other threads.
    pub fn orders(&self) -> Orders {
        self.desk.orders()
    }

    /// Routes until it is stopped, or until `until`; then lets go what waits. What it did.
    pub fn run(mut self, stop: &Stop, until: Option<Time>) -> Result<RouterReport, RouterError> {
        stop.wakes(Arc::clone(&self.waker));
        let clock = Clock::new();
        let mut events = Events::with_capacity(16);
        let mut last = None;
        loop {
            self.shaper.turn();
            self.desk.attend(|order| {
                self.shaper.obey(order)?;
                Ok(self.shaper.report(Self::FLOWS))
            });
            let now = clock.now();
            if last.is_none() && (stop.is_stopped() || until.is_some_and(|until| now >= until)) {
                self.shaper.close();
                last = Some(now + Self::LINGER);
                continue;
            }
            if last.is_some_and(|last| now >= last || self.shaper.is_empty()) {
                return Ok(self.shaper.report(Self::FLOWS));
            }
            let wake = Time::earliest([self.shaper.next_event(), last.or(until)]);
            let timeout = if self.shaper.is_busy() || wake.is_some_and(|wake| wake <= now) {
                Some(Duration::ZERO)
            } else {
                let wait = wake.map(|wake| wake.since(now));
                self.alarm.set(wait).map_err(system("set a timer"))?;
                None
            };
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled.map_err(system("poll the kernel's queue"))?,
            }
            if events.iter().any(|event| event.token() == GATE) {
                self.shaper.wake();
            }
        }
    }
}

fn wakeups<G: Gate>(shaper: &Shaper<G>) -> io::Result<(Poll, Alarm, Arc<Waker>)> {
    let poll = Poll::new()?;
    let mut alarm = Alarm::new()?;
    let readable = shaper.gate().readable();
    poll.registry().register(&mut SourceFd(&readable), GATE, Interest::READABLE)?;
    poll.registry().register(&mut alarm, ALARM, Interest::READABLE)?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
    Ok((poll, alarm, waker))
}

/// For the secrets of disciplines that hash: no sender may guess it.
fn seed() -> Result<[u8; 32], getrandom::Error> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)?;
    Ok(seed)
}
