//! The path emulator for any program: a command in its own network namespace behind a path.
//!
//! ```text
//! host's namespace │             the emulator             │ a namespace without a name
//!                  │                                      │
//!  freshline1 TUN ◄┼──────────── forward path ◄───────────┼── freshline TUN ◄── command
//!                 ─┼───────────► reverse path ────────────┼─►
//! ```
//!
//! The hops are those of [`freshline_core::link`], driven in real time by one thread. Packets of
//! any protocol count from their IP headers on. The kernel hands over super-packets (of TCP and UDP
//! with segmentation offload). If hops treat packets one by one, super-packets are segmented before
//! they enter a queue, and packets that are delivered at the same time are joined again. Otherwise
//! super-packets pass whole, with checksums left to the kernel, and count as their packets.
//!
//! With Wi-Fi among the conditions, the command is a station: its packets go over the air to the
//! access point and then over the forward hops; packets for it take the opposite path.
//!
//! Needs root: the emulator creates TUN devices and namespaces. It leaves nothing behind, however
//! it ends: devices last as long as they are open, and the namespace as long as the command.

mod address;
mod capture;
mod init;
mod inside;
mod relay;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

use freshline_core::link::{Conditions, ConditionsConfig, ConditionsError, HopConfig};
use freshline_core::unit::{Bytes, Span, Time};
use freshline_system::netlink::Route;
use freshline_system::{RealTime, User};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Uid;
use serde::Serialize;

use super::air::AirCapture;
use super::frames::{FrameLog, FrameLogError};
use super::report::{CellReport, DirectionReport};
use crate::alarm::Alarm;
use crate::clock::{Clock, wall_clock};
use crate::tun::{Device, IPV6_MIN_MTU, IpPacket, Pool};
use crate::waker::Waker;
use address::{Ends, free_prefixes};
use capture::Captures;
pub use capture::{Capture, CapturePoint, ParseCapturePointError};
use inside::{Inside, Running};
use relay::{Records, Relay};

/// The configuration of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunConfig {
    /// The paths. Both interfaces take the smallest MTU of all hops, or 1500 bytes.
    pub conditions: ConditionsConfig,
    /// The points to capture, with their files.
    pub captures: Vec<Capture>,
    /// Where to log the frames that come over the air.
    pub frames: Option<PathBuf>,
    /// Where to capture these frames, like a monitor next to the receiver.
    pub air: Option<PathBuf>,
    /// Whether the emulator runs with real-time priority.
    pub real_time: RealTimeUse,
    /// How long before a packet is due the emulator wakes and then polls: the time that the system
    /// takes to wake a thread. Zero never polls, and uses less of the processor.
    pub busy_poll: Span,
    /// The user that runs the command; by default that of this process.
    pub user: Option<User>,
    /// The seed of all random numbers: the n-th packet over a hop always meets the same loss and
    /// jitter.
    pub seed: u64,
}

/// Whether the thread of the emulator runs with real-time priority (`SCHED_FIFO`), before all
/// programs without it. The command has the usual priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RealTimeUse {
    /// If the system allows it.
    #[default]
    Auto,
    /// Always: a system that does not allow it is an error.
    On,
    /// Never.
    Off,
}

/// Why a command could not be run behind a path.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Not root.
    #[error(
        "needs root, to make TUN devices and network namespaces: run it with `sudo`, or as root \
         in a container with CAP_NET_ADMIN and CAP_SYS_ADMIN"
    )]
    NeedsRoot,
    /// The kernel has no TUN devices, or the container hides them.
    #[error(
        "needs /dev/net/tun: load the kernel's module (`modprobe tun`), or give it to the \
         container (`--device /dev/net/tun`)"
    )]
    NeedsTun,
    /// All prefixes are taken, or runs are nested too deeply.
    #[error(
        "no addresses are free in 100.64.0.0/10: runs nest at most 4 deep, with 15 runs \
         within each run; end others first"
    )]
    NoAddresses,
    /// The conditions are invalid.
    #[error(transparent)]
    Conditions(#[from] ConditionsError),
    /// The frames cannot be logged.
    #[error(transparent)]
    Frames(#[from] FrameLogError),
    /// A capture at a hop that the path does not have.
    #[error("there is no {point}: that path has {hops} hop(s)")]
    NoSuchHop {
        /// The point asked for.
        point: CapturePoint,
        /// The path's number of hops.
        hops: usize,
    },
    /// A capture that cannot be written.
    #[error("cannot write the capture {}: {source}", file.display())]
    Capture {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The command cannot be started.
    #[error("cannot start `{program}`: {source}; is it installed, and in the PATH?")]
    Command {
        /// The command.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused something else.
    #[error(
        "the system refused to {action}: {source}; it takes root with CAP_NET_ADMIN and \
         CAP_SYS_ADMIN, and a kernel with namespaces and TUN devices"
    )]
    System {
        /// The refused action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> RunError {
    move |error| RunError::System { action, source: error.into() }
}

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// The seed of all random numbers.
    pub seed: u64,
    /// How long the command ran, in s.
    pub duration_s: f64,
    /// The exit code of the command; 128 and the signal's number if a signal ended it.
    pub exit_code: u8,
    /// From the command to the outside.
    pub forward: DirectionReport,
    /// From the outside to the command.
    pub reverse: DirectionReport,
    /// The cell, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wlan: Option<CellReport>,
    /// The number of failed reads and writes of the interfaces.
    pub device_errors: u64,
}

/// A namespace behind a path, ready for a command.
pub struct Sandbox {
    config: RunConfig,
    ends: Ends,
    mtu: u16,
    outer: Device,
    inner: Device,
    inside: Inside,
    conditions: Conditions<IpPacket>,
    signals: Signals,
    real_time: Option<RealTime>,
}

impl Sandbox {
    /// The MTU of the interfaces if no hop sets one.
    const DEFAULT_MTU: u16 = 1500;

    /// Creates the devices and the namespace. From here on, the signals that [`Sandbox::run`] names
    /// are kept for the command; a process with other threads must block them there. The calling
    /// thread, which must call [`Sandbox::run`], has real-time priority if the configuration asks
    /// for it.
    pub fn new(config: RunConfig) -> Result<Self, RunError> {
        let ConditionsConfig { forward, reverse, .. } = &config.conditions;
        let mtu = mtu(forward.hop.iter().chain(&reverse.hop));
        let conditions = config.conditions.build(config.seed, 1)?;
        if !Uid::effective().is_root() {
            return Err(RunError::NeedsRoot);
        }
        if !std::path::Path::new("/dev/net/tun").exists() {
            return Err(RunError::NeedsTun);
        }
        // The thread that is started here must not receive them either.
        let signals = Signals::take().map_err(system("receive signals"))?;
        let (outer, prefix) = outer_device()?;
        let (inside, inner) = Inside::open(prefix.inner(), mtu, config.user.clone())?;
        let mut route = Route::open().map_err(system("configure interfaces"))?;
        let ends = prefix.outer();
        outer
            .set_up(&mut route, &ends.addresses(), mtu)
            .map_err(system("configure the outer TUN device"))?;
        // Last, so that no other thread inherits it.
        let real_time = match config.real_time {
            RealTimeUse::Off => None,
            RealTimeUse::Auto => RealTime::begin().ok(),
            RealTimeUse::On => {
                Some(RealTime::begin().map_err(system("give the emulator real-time priority"))?)
            }
        };
        Ok(Self { config, ends, mtu, outer, inner, inside, conditions, signals, real_time })
    }

    /// The address at which the command finds this host.
    pub fn host(&self) -> Ipv4Addr {
        self.ends.v4
    }

    /// The same over IPv6; `None` if the MTU is too small for it.
    pub fn host6(&self) -> Option<Ipv6Addr> {
        (self.mtu >= IPV6_MIN_MTU).then_some(self.ends.v6)
    }

    /// Whether the emulator has real-time priority.
    pub fn is_real_time(&self) -> bool {
        self.real_time.is_some()
    }

    /// Runs `command` to its end and delivers the packets that it has sent, for at most 2 s longer.
    /// The command has the variables `FRESHLINE_HOST` and `FRESHLINE_HOST6`, the addresses of this
    /// host. All processes that the command has started end with it.
    ///
    /// Until then, SIGHUP, SIGINT, SIGQUIT and SIGTERM of the calling thread are for the command.
    /// They are forwarded unless they come from a terminal, which sends them to the command itself.
    /// A second signal, half a second or more after the first, kills the command.
    pub fn run(self, mut command: Command) -> Result<RunReport, RunError> {
        command.env("FRESHLINE_HOST", self.host().to_string());
        match self.host6() {
            Some(host) => command.env("FRESHLINE_HOST6", host.to_string()),
            None => command.env_remove("FRESHLINE_HOST6"),
        };
        let signals = &self.signals;
        let mut driver = Driver::new(&self.outer, &self.inner, signals, self.config.busy_poll)
            .map_err(system("poll its devices"))?;
        let clock = Clock::new();
        let (start, epoch) = (clock.now(), wall_clock());
        let captures = Captures::create(&self.config.captures, &self.config.conditions, epoch)?;
        let frames = FrameLog::of(self.config.frames.as_deref(), &self.conditions, epoch)?;
        // Here, time begins with the run.
        let zero = (epoch, Time::ZERO);
        let config = &self.config;
        let air =
            AirCapture::of(config.air.as_deref(), &config.conditions, &self.conditions, zero)?;
        let (pool, devices) = (Pool::new(self.mtu), [self.inner, self.outer]);
        let records = Records { captures, frames, air };
        let (config, conditions) = (self.config.conditions, self.conditions);
        let mut relay = Relay::new(devices, config, conditions, pool, records, start);
        let waker =
            Waker::of_poll(driver.poll.registry(), COMMAND).map_err(system("make a waker"))?;
        let running = self.inside.start(command, waker)?;
        driver.drive(&mut relay, &running, signals).map_err(system("poll its devices"))?;

        let [forward, reverse] = relay.report();
        let report = RunReport {
            seed: self.config.seed,
            duration_s: relay.now().since(Time::ZERO).as_secs_f64(),
            exit_code: running.exit_code()?,
            forward,
            reverse,
            wlan: relay.cell_report(),
            device_errors: relay.device_errors(),
        };
        relay.finish()?;
        Ok(report)
    }
}

/// The smallest MTU of all hops, limited to the range of a device.
fn mtu<'a>(hops: impl Iterator<Item = &'a HopConfig>) -> u16 {
    let smallest = hops.filter_map(|hop| hop.mtu).min();
    let mtu = smallest.map_or(u64::from(Sandbox::DEFAULT_MTU), Bytes::get);
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

/// The outer device, whose name reserves its prefix.
fn outer_device() -> Result<(Device, address::Prefix), RunError> {
    let mut free: Vec<_> = free_prefixes().map_err(system("list interfaces"))?.collect();
    // Connections to a run that has ended may still retransmit to its address, so the next run
    // takes another address.
    let first = std::process::id() as usize % free.len().max(1);
    free.rotate_left(first);
    for (number, prefix) in free {
        match Device::create(&format!("{}{number}", address::INSIDE)) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            created => return Ok((created.map_err(system("make a TUN device"))?, prefix)),
        }
    }
    Err(RunError::NoAddresses)
}

/// The two devices have their numbers in the relay as tokens.
const ALARM: Token = Token(2);
const SIGNALS: Token = Token(3);
const COMMAND: Token = Token(4);

/// Wakes the relay.
struct Driver {
    poll: Poll,
    alarm: Alarm,
    /// As in [`RunConfig`].
    busy_poll: Span,
}

impl Driver {
    fn new(outer: &Device, inner: &Device, signals: &Signals, busy_poll: Span) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut alarm = Alarm::new()?;
        let registry = poll.registry();
        for (token, device) in [inner, outer].into_iter().enumerate() {
            let device = device.as_raw_fd();
            registry.register(&mut SourceFd(&device), Token(token), Interest::READABLE)?;
        }
        let arrivals = signals.arrivals.as_raw_fd();
        registry.register(&mut SourceFd(&arrivals), SIGNALS, Interest::READABLE)?;
        registry.register(&mut alarm, ALARM, Interest::READABLE)?;
        Ok(Self { poll, alarm, busy_poll })
    }

    /// How long packets on the paths may take to arrive when the command has ended.
    const LINGER: Span = Span::from_secs(2);

    /// Relays until the command has ended and the paths hold no more of its packets, so that the
    /// ends of its connections arrive, too. If a signal ended the command, this does not wait for
    /// its packets.
    fn drive(&mut self, relay: &mut Relay, command: &Running, signals: &Signals) -> io::Result<()> {
        let mut events = Events::with_capacity(16);
        let (mut first_signal, mut last) = (None, None);
        loop {
            relay.turn();
            let now = relay.now();
            let next = relay.poll_timeout();
            let is_empty = next.is_none() && !relay.is_busy();
            if last.is_some_and(|last| now >= last || is_empty || first_signal.is_some()) {
                return Ok(());
            }
            // The poll does not sleep if the next event is due within this time.
            let next = next.map(|next| next - self.busy_poll);
            let wake = Time::earliest([relay.is_busy().then_some(now), next, last]);
            let timeout = self.alarm.poll_until(now, wake)?;
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                match event.token() {
                    SIGNALS => signals.forward(command, relay.now(), &mut first_signal),
                    COMMAND => last = Some(relay.now() + Self::LINGER),
                    Token(device @ (0 | 1)) => relay.wake(device),
                    _ => {}
                }
            }
        }
    }
}

/// Holds the signals that are for the command.
struct Signals {
    arrivals: SignalFd,
    before: SigSet,
}

impl Signals {
    fn take() -> io::Result<Self> {
        let taken = SigSet::from_iter(init::FORWARDED);
        let arrivals =
            SignalFd::with_flags(&taken, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let before = SigSet::thread_get_mask()?;
        taken.thread_block()?;
        Ok(Self { arrivals, before })
    }

    /// Within this time of the first signal, another signal counts as the same: `timeout` and
    /// others signal a process and its group.
    const GRACE: Span = Span::from_millis(500);

    /// Forwards the signals that have arrived. A second signal kills the command.
    fn forward(&self, command: &Running, now: Time, first: &mut Option<Time>) {
        while let Ok(Some(arrival)) = self.arrivals.read_signal() {
            if init::is_from_kernel(arrival.ssi_code) {
                continue;
            }
            let sent = init::FORWARDED.into_iter().find(|known| *known as u32 == arrival.ssi_signo);
            let is_second = now.since(*first.get_or_insert(now)) > Self::GRACE;
            let signal = if is_second { Some(Signal::SIGKILL) } else { sent };
            // This fails only if the command has ended, which the loop sees.
            let _ = signal.map(|signal| kill(command.init, signal));
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // The mask was valid before.
        let _ = self.before.thread_set_mask();
    }
}
