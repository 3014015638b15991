//! A Freshline queueing discipline in front of a Linux network device, in user space.
//!
//! ```text
//!            ┌───────────────────────── Router ─────────────────────────┐
//!  packets ──┤► Gate ─► Discipline ─► transmitter at the shaped rate ─► Gate ├──► device
//!            └──────────────── drops ─┘ ────────────────────────────────┘
//! ```
//!
//! The discipline and the transmitter are the lab's: a [`Hop`](freshline_core::link::Hop) without a
//! line. Because the router shapes to a rate just below the rate of the link behind it, the queue
//! builds up here, where the discipline is, and not there.

mod bypass;
mod control;
mod driver;
mod gate;
mod ledger;
mod limits;
mod metrics;
mod netfilter;
mod order;
mod place;
mod shaper;
mod tun;
mod watch;
mod watchdog;

use std::path::Path;
use std::{fs, io};

use freshline_core::link::Framing;
use freshline_core::router::{QdiscConfig, QdiscError, RouterReport};
use freshline_core::unit::{BitRate, Span, Time};
use nix::net::if_::{if_indextoname, if_nametoindex};
use nix::unistd::Uid;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;

use crate::stop::Stop;
use control::ControlSocket;
pub use control::{ControlError, order};
#[doc(hidden)]
pub use control::{answer_to, read_answer};
use driver::Driver;
use gate::Gate;
pub use metrics::{Snapshot, serve as serve_metrics};
use netfilter::NfqueueGate;
pub use order::{Order, OrderError, Orders};
use shaper::{Settings, Shaper};
use tun::TunGate;
pub use watch::{WatchedFlow, Watcher};

/// How packets get to the router and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// The kernel holds the packets that leave through an existing device, in its queue to user
    /// space with this number; each router of a network namespace needs its own number.
    Nfqueue(u16),
    /// Packets are routed into a TUN device that the router creates, and come out of it again.
    Tun,
}

impl Default for Via {
    /// A number that other programs rarely use.
    fn default() -> Self {
        Self::Nfqueue(3774)
    }
}

/// The device, and how to shape its packets.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterConfig {
    /// The device through which packets leave, or into which they are routed.
    pub device: String,
    /// How packets get to the router.
    pub via: Via,
    /// The rate to which they are shaped, above zero.
    pub rate: BitRate,
    /// The bytes that the link behind the device adds to each packet, which count against the rate.
    pub framing: Framing,
    /// The discipline.
    pub queue: QdiscConfig,
    /// For how long the router may hang or be stopped before packets pass without it, in whole ms; from
    /// 1 s to an hour. Not for TUN.
    pub fail_open: Span,
}

impl RouterConfig {
    /// Longer than the pauses of a busy machine, and shorter than its users' timeouts. The last
    /// third is the margin for other changes of nf_tables, which delay a renewal.
    pub const FAIL_OPEN: Span = Span::from_secs(5);
    /// Short leases are renewed often, and each renewal is a change of nf_tables.
    const FAIL_OPEN_MIN: Span = Span::from_secs(1);
    const FAIL_OPEN_MAX: Span = Span::from_secs(3600);
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
    /// A port of a bridge or a bond.
    #[error(
        "{device} is a port of {master}, and the packet filter sees its packets leave through {master}; \
         give --dev {master}"
    )]
    Port {
        /// The device.
        device: String,
        /// The bridge or bond.
        master: String,
    },
    /// At this rate no packet would ever leave.
    #[error("the rate is zero, and nothing would ever leave; give a rate such as 20mbit")]
    ZeroRate,
    /// The time is too short for a busy machine, or too long to help.
    #[error("packets are to pass after {0} without the router; give from 1s to 1h")]
    FailOpen(Span),
    /// The discipline is invalid.
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
        /// The missing feature.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel has no TUN devices, or the container hides them.
    #[error(
        "needs /dev/net/tun: load the kernel's module (`modprobe tun`), or give it to the \
         container (`--device /dev/net/tun`)"
    )]
    NeedsTun,
    /// The device to be created already exists.
    #[error("there is a device `{0}` already; choose another name for the TUN device")]
    DeviceExists(String),
    /// The device was removed while the router ran.
    #[error("the device `{0}` has been removed; start the router again once it is back")]
    DeviceGone(String),
    /// The system has no randomness.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
    /// The system refused something else.
    #[error("the system refused to {action}: {source}")]
    System {
        /// The refused action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> RouterError {
    move |error| RouterError::System { action, source: error.into() }
}

/// A router that holds the packets of its device from its creation on.
pub struct Router(Kind);

enum Kind {
    Nfqueue(Box<Driver<NfqueueGate>>),
    Tun(Box<Driver<TunGate>>),
}

impl Router {
    /// Takes over the packets of the device; they are held until [`Router::run`].
    ///
    /// # Errors
    /// [`RouterError`]; then all changes to the system are undone.
    pub fn open(config: RouterConfig) -> Result<Self, RouterError> {
        let RouterConfig { device, via, rate, framing, mut queue, fail_open } = config;
        if rate == BitRate::from_bps(0) {
            return Err(RouterError::ZeroRate);
        }
        let range = RouterConfig::FAIL_OPEN_MIN..=RouterConfig::FAIL_OPEN_MAX;
        if !range.contains(&fail_open) {
            return Err(RouterError::FailOpen(fail_open));
        }
        let device = match via {
            Via::Tun => device,
            Via::Nfqueue(_) => {
                let name = canonical(&device).ok_or(RouterError::NoDevice(device))?;
                match master(&name) {
                    Some(master) => return Err(RouterError::Port { device: name, master }),
                    None => name,
                }
            }
        };
        let most = NfqueueGate::MAX_QUEUED;
        if matches!(via, Via::Nfqueue(_)) && limits::fit(&mut queue, most) {
            tracing::warn!(
                "the limits of {queue} are lowered to {most} in all: the kernel holds at most {} for a \
                 router in user space",
                NfqueueGate::KERNEL_QUEUE
            );
        }
        let settings = Settings { device, rate, framing, queue };
        Ok(Self(match via {
            Via::Nfqueue(number) => Kind::Nfqueue(driver(settings, |settings| {
                NfqueueGate::open(&settings.device, number, rate, fail_open)
            })?),
            Via::Tun => Kind::Tun(driver(settings, |settings| TunGate::open(&settings.device))?),
        }))
    }

    /// A handle with which other threads give orders.
    pub fn orders(&self) -> Orders {
        match &self.0 {
            Kind::Nfqueue(driver) => driver.orders(),
            Kind::Tun(driver) => driver.orders(),
        }
    }

    /// Routes until it is stopped, or until `until`; then sends the queued packets. Returns the
    /// report.
    ///
    /// # Errors
    /// [`RouterError::System`] if the system does not let it wait for packets, and
    /// [`RouterError::DeviceGone`] if its TUN device was removed.
    pub fn run(self, stop: &Stop, until: Option<Time>) -> Result<RouterReport, RouterError> {
        match self.0 {
            Kind::Nfqueue(driver) => driver.run(stop, until),
            Kind::Tun(driver) => driver.run(stop, until),
        }
    }
}

/// The name by which the packet filter knows a device, which may be given by an alternative name
/// (`ip link property add dev eth0 altname ...`); `None` if there is no such device.
fn canonical(device: &str) -> Option<String> {
    let name = if_indextoname(if_nametoindex(device).ok()?).ok()?;
    name.into_string().ok()
}

/// The bridge or bond of which a device is a port. Packets that leave through a port do not pass the
/// packet filter under the port's name.
fn master(device: &str) -> Option<String> {
    let folder = Path::new("/sys/class/net").join(device);
    if !["brport", "bonding_slave"].iter().any(|what| folder.join(what).exists()) {
        return None;
    }
    let master = fs::read_link(folder.join("master")).ok()?;
    Some(master.file_name()?.to_string_lossy().into_owned())
}

/// Creates a driver whose gate is opened after all other checks.
fn driver<G: Gate>(
    settings: Settings,
    open: impl FnOnce(&Settings) -> Result<G, RouterError>,
) -> Result<Box<Driver<G>>, RouterError> {
    let mut rng = Pcg64::from_seed(seed().map_err(RouterError::Random)?);
    let discipline = settings.queue.build(&mut rng)?;
    if !Uid::effective().is_root() {
        return Err(RouterError::NeedsRoot);
    }
    let control = ControlSocket::take(&settings.device)?;
    let gate = open(&settings)?;
    let shaper = Shaper::new(settings, discipline, gate, rng);
    Ok(Box::new(Driver::new(shaper, control)?))
}

/// For the secrets of disciplines that hash, which no sender may guess.
fn seed() -> Result<[u8; 32], getrandom::Error> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)?;
    Ok(seed)
}
