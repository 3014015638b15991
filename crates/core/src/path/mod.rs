//! The stop between host and link: the choice of one of several paths for the next packet.
//!
//! ```text
//!                                  ┌─► cwnd, inflight ─► device queue ─► link ─► …
//!  send buffer ─► scheduler ─► wait┤
//!       ▲        paths' states     └─► cwnd, inflight ─► device queue ─► link ─► …
//!       └── receive window               (queues are visible here at once, in acks a round trip later)
//! ```
//!
//! | scheduler | takes | from |
//! |---|---|---|
//! | [`MinSrtt`] | the path with room and the minimum round trip | default of Linux's out-of-tree MPTCP |
//! | [`RoundRobin`] | paths with room in turn | Linux |
//! | [`Redundant`] | all paths with room, with copies of the same packet | Linux |
//! | [`Ecf`] | waits for the fastest if that completes the data sooner | Lim et al. |
//! | [`Blest`] | waits for the fastest if a slower one would block the receive window | Ferlin et al. |
//! | [`Daps`] | paths in the order in which packets would arrive, a round ahead | Kuhn et al. |
//! | [`Linger`] | the path whose unacknowledged bytes last shortest at its pacing rate | mainline Linux |
//! | [`QAware`] | the path on which the packets in its device queue, and this one, are served first | the thesis |
//! | [`Earliest`] | the path on which this packet arrives first, by its queue; waits as ECF does | ours |
//! | [`Freshest`] | the path on which an update is expected first; copies where that pays | ours |
//!
//! The thesis is Shreedhar, PhD thesis, IIIT-Delhi: chapter 2, QAware: A Cross-Layer Approach to
//! MPTCP Scheduling.
//!
//! ```
//! use freshline_core::path::{Choice, SendState, MinSrtt, PathId, PathState, Scheduler};
//! use freshline_core::unit::{Bytes, Span, Time};
//!
//! let segment = Bytes::new(1448);
//! let path = |id, millis, inflight| PathState {
//!     srtt: Some(Span::from_millis(millis)),
//!     inflight: segment * inflight,
//!     ..PathState::new(PathId(id), segment)
//! };
//! let plenty = Bytes::new(1_000_000);
//! let flow = SendState { unsent: plenty, window_left: plenty, window: plenty, interval: Span::ZERO };
//! let mut scheduler = MinSrtt::new();
//! let choice = scheduler.choose(Time::ZERO, &flow, &[path(0, 20, 3), path(1, 50, 0)]);
//! assert_eq!(choice, Choice::Send(PathId(0)));
//! // The window of the first is full.
//! let choice = scheduler.choose(Time::ZERO, &flow, &[path(0, 20, 10), path(1, 50, 0)]);
//! assert_eq!(choice, Choice::Send(PathId(1)));
//! ```

mod backlog;
mod blest;
mod config;
mod coupling;
mod daps;
mod departure;
mod earliest;
mod ecf;
mod freshest;
mod linger;
mod meter;
mod min_srtt;
mod qaware;
mod redundant;
mod round_robin;
mod tuning;

pub use blest::{Blest, BlestParams};
pub use config::{ParseSchedulerError, SchedulerConfig, SchedulerError};
pub use coupling::{CoupledLaw, Share};
pub use daps::Daps;
pub use departure::{LastStamp, MAX_STAMPED_WAIT, stamped_wait};
pub use earliest::{Earliest, EarliestParams};
pub use ecf::{Ecf, EcfParams};
pub use freshest::{Freshest, FreshestParams};
pub use linger::{Linger, LingerParams};
pub use meter::DeviceMeter;
pub use min_srtt::MinSrtt;
pub use qaware::{Estimator, QAware, QAwareParams};
pub use redundant::Redundant;
pub use round_robin::RoundRobin;
pub use tuning::{Tuning, TuningError};

use core::fmt;

use crate::unit::{Bytes, Span, Time};

/// The maximum number of paths of one connection.
pub const MAX_PATHS: usize = 32;

/// A path of a connection, as its driver numbers it, below [`MAX_PATHS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u8);

impl PathId {
    /// The first path, which is the only one without multipath.
    pub const FIRST: Self = Self(0);
}

/// The queue of the device through which a path leaves the host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceQueue {
    /// Packets in it, of all senders.
    pub packets: u64,
    /// Departures per second while packets are queued; 0: none.
    pub rate: f64,
}

impl DeviceQueue {
    /// The time until the queued packets have left; `None` if none leave.
    pub fn wait(&self) -> Option<Span> {
        match self.packets {
            0 => Some(Span::ZERO),
            _ => (self.rate > 0.0).then(|| Span::from_secs_f64(self.packets as f64 / self.rate)),
        }
    }
}

/// The state of one path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathState {
    /// The path.
    pub id: PathId,
    /// The smoothed round trip (RFC 6298); `None` before the first sample.
    pub srtt: Option<Span>,
    /// Its mean deviation (RFC 6298).
    pub rttvar: Span,
    /// The minimum round trip of recent packets.
    pub min_rtt: Option<Span>,
    /// The mean forward delay of recent packets, if the far end reports arrival times; by the same
    /// clock for all paths.
    pub one_way: Option<Span>,
    /// For how long the oldest packet in flight has been without an answer.
    pub unanswered: Option<Span>,
    /// The congestion window.
    pub cwnd: Bytes,
    /// Bytes in flight.
    pub inflight: Bytes,
    /// The size of a full packet, above zero.
    pub segment: Bytes,
    /// The slow-start threshold; `None` before the first loss, while it is infinite, and where the
    /// congestion law has none.
    pub ssthresh: Option<Bytes>,
    /// The pacing rate of the congestion law, per second; `None` if it does not pace.
    pub pacing_rate: Option<Bytes>,
    /// The device queue in front of the path on this host; `None` if it cannot be read.
    pub queue: Option<DeviceQueue>,
    /// The loss rate of its packets, 0 to 1.
    pub loss: f64,
    /// Whether to use it only if there is no other path.
    pub is_backup: bool,
}

impl PathState {
    /// A path without measurements, with this packet size; a window of ten (RFC 6928).
    pub fn new(id: PathId, segment: Bytes) -> Self {
        Self {
            id,
            srtt: None,
            rttvar: Span::ZERO,
            min_rtt: None,
            one_way: None,
            unanswered: None,
            cwnd: segment * 10,
            inflight: Bytes::ZERO,
            segment,
            ssthresh: None,
            pacing_rate: None,
            queue: None,
            loss: 0.0,
            is_backup: false,
        }
    }

    /// Whether another full packet may be in flight.
    pub fn has_room(&self) -> bool {
        self.inflight + self.segment <= self.cwnd
    }

    /// The round trip; zero if unknown, so that new paths are tried at once.
    fn round_trip(&self) -> Span {
        self.srtt.unwrap_or(Span::ZERO)
    }

    /// How long a packet takes beyond this host's device, in s, if its mean time in the device
    /// queue was `wait` s: the round trip minus `wait`. srtt lags behind a queue that grows, so the
    /// result is at least the recent minimum round trip, or, if that is unknown, a sixteenth of
    /// srtt.
    fn beyond_device(&self, wait: f64) -> f64 {
        let round_trip = self.round_trip();
        let least = self.min_rtt.unwrap_or(round_trip / 16).as_secs_f64();
        (round_trip.as_secs_f64() - wait).max(least)
    }

    /// The window in packets, at least one.
    fn packets(&self) -> u64 {
        (self.cwnd.get() / self.segment.get().max(1)).max(1)
    }
}

/// An acknowledged packet that was sent only once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acked {
    /// From its assignment to the path until its ack arrived, without the time for which the far
    /// end held the ack, if known.
    pub round_trip: Span,
    /// The part of it in the device queue of its path; zero if that queue cannot be read.
    pub wait: Span,
}

impl Acked {
    /// The service time X of equation (2.2): from the device to the ack. An estimated delay
    /// can exceed the round trip; the service time is at least a sixteenth of that.
    pub fn service(&self) -> Span {
        (self.round_trip - self.wait.min(self.round_trip)).max(self.round_trip / 16)
    }
}

/// The data that a connection has to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendState {
    /// Data that no path has taken yet.
    pub unsent: Bytes,
    /// The rest of the receive window, beyond the data in flight on all paths.
    pub window_left: Bytes,
    /// The whole receive window: the data in flight on all paths or assembled at the receiver, and
    /// `window_left`.
    pub window: Bytes,
    /// The time between two updates, of which each replaces those before it; zero for a stream,
    /// of which all data counts.
    pub interval: Span,
}

/// A set of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathSet(u32);

impl PathSet {
    /// No path.
    pub const EMPTY: Self = Self(0);

    /// With `path` in it.
    pub fn with(self, path: PathId) -> Self {
        Self(self.0 | 1u32.checked_shl(path.0.into()).unwrap_or(0))
    }

    /// Without `path` in it.
    pub fn without(self, path: PathId) -> Self {
        Self(self.0 & !1u32.checked_shl(path.0.into()).unwrap_or(0))
    }

    /// Whether `path` is in it.
    pub fn contains(self, path: PathId) -> bool {
        self.0 & 1u32.checked_shl(path.0.into()).unwrap_or(0) != 0
    }

    /// Whether it holds no path.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All paths in it, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = PathId> {
        (0..MAX_PATHS as u8).map(PathId).filter(move |path| self.contains(*path))
    }
}

/// The decision for the next packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// It takes this path.
    Send(PathId),
    /// It takes the first path, and a copy of it takes each of the others.
    Copies(PathId, PathSet),
    /// It waits: ask again when a path's state has changed.
    Wait,
}

/// Chooses a path for one packet after the other.
///
/// The contract: call [`Scheduler::choose`] with the states of all usable paths, each once,
/// whenever there is a packet and any state has changed; send as the choice demands, which changes
/// `inflight`; ask again until it returns [`Choice::Wait`]. It never chooses a path without room.
pub trait Scheduler: fmt::Debug + Send {
    /// The name in reports and scenarios.
    fn name(&self) -> &'static str;

    /// Where the next full packet goes.
    fn choose(&mut self, now: Time, flow: &SendState, paths: &[PathState]) -> Choice;

    /// The receive window, or a full send buffer, kept `_path` from sending, as data in flight on
    /// another path is missing. Call it each time that it does.
    fn on_blocked(&mut self, _now: Time, _path: PathId) {}

    /// A packet that was sent once, by `_path`, is acknowledged.
    fn on_ack(&mut self, _path: PathId, _acked: &Acked) {}

    /// Whether [`Scheduler::on_ack`] changes anything; otherwise drivers need not keep packets'
    /// queueing delays.
    fn wants_acks(&self) -> bool {
        false
    }

    /// The estimated time of a packet from the device of `_path` to its ack; `None` if it is
    /// unknown or this scheduler does not estimate it.
    fn service(&self, _path: PathId) -> Option<Span> {
        None
    }

    /// This number belongs to another path from now on, or to one through another network.
    fn forget(&mut self, _path: PathId) {}
}

/// The paths to choose from: all but backups; backups if there are no others.
fn candidates(paths: &[PathState]) -> impl Iterator<Item = &PathState> {
    let has_main = paths.iter().any(|path| !path.is_backup);
    paths.iter().filter(move |path| path.is_backup != has_main)
}

/// The candidate with room that has the minimum round trip.
fn fastest_with_room(paths: &[PathState]) -> Option<&PathState> {
    candidates(paths).filter(|path| path.has_room()).min_by_key(|path| path.round_trip())
}

/// The candidate with the minimum round trip, with room or not.
fn fastest(paths: &[PathState]) -> Option<&PathState> {
    candidates(paths).min_by_key(|path| path.round_trip())
}

/// The choice of a scheduler that takes any candidate.
fn send_or_wait(path: Option<&PathState>) -> Choice {
    path.map_or(Choice::Wait, |path| Choice::Send(path.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    pub(super) const SEGMENT: Bytes = Bytes::new(1_000);
    pub(super) const PLENTY: SendState = SendState {
        unsent: Bytes::new(10_000_000),
        window_left: Bytes::new(10_000_000),
        window: Bytes::new(20_000_000),
        interval: Span::ZERO,
    };

    /// A path with a round trip of `rtt_ms`, a window of `cwnd` packets and `inflight` packets in
    /// flight.
    pub(super) fn path(id: u8, rtt_ms: u64, cwnd: u64, inflight: u64) -> PathState {
        PathState {
            srtt: Some(Span::from_millis(rtt_ms)),
            cwnd: SEGMENT * cwnd,
            inflight: SEGMENT * inflight,
            ssthresh: Some(SEGMENT * cwnd),
            ..PathState::new(PathId(id), SEGMENT)
        }
    }

    /// The same with `packets` in its device, which leave at `rate` per second; room for all.
    pub(super) fn queued(id: u8, rtt_ms: u64, packets: u64, rate: f64) -> PathState {
        PathState { queue: Some(DeviceQueue { packets, rate }), ..path(id, rtt_ms, 1_000, 0) }
    }

    fn all() -> Vec<Box<dyn Scheduler>> {
        SchedulerConfig::ALL.iter().map(|config| config.build().unwrap()).collect()
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let set = PathSet::EMPTY.with(PathId(3)).with(PathId(31)).with(PathId(200));
        assert!(set.contains(PathId(3)) && !set.contains(PathId(4)) && !set.contains(PathId(200)));
        assert_eq!(set.iter().collect::<Vec<_>>(), [PathId(3), PathId(31)]);
        assert!(PathSet::EMPTY.is_empty() && !set.is_empty());
    }

    #[test]
    fn a_queue_that_stands_still_has_no_end() {
        assert_eq!(DeviceQueue { packets: 5, rate: 0.0 }.wait(), None);
        assert_eq!(DeviceQueue { packets: 0, rate: 0.0 }.wait(), Some(Span::ZERO));
        let wait = DeviceQueue { packets: 5, rate: 500.0 }.wait();
        assert_eq!(wait, Some(Span::from_millis(10)));
    }

    #[test]
    fn backups_wait_until_nothing_else_is_there() {
        for mut scheduler in all() {
            let backup = PathState { is_backup: true, ..path(0, 1, 10, 0) };
            let choice = scheduler.choose(Time::ZERO, &PLENTY, &[backup, path(1, 100, 10, 0)]);
            assert_eq!(choice, Choice::Send(PathId(1)), "{}", scheduler.name());
            let choice = scheduler.choose(Time::ZERO, &PLENTY, &[backup]);
            assert_eq!(choice, Choice::Send(PathId(0)), "{}", scheduler.name());
        }
    }

    #[test]
    fn what_was_known_of_a_path_is_not_held_against_the_next_one_of_its_number() {
        for config in SchedulerConfig::ALL {
            let mut scheduler = config.build().unwrap();
            for step in 0..100 {
                let now = Time::ZERO + Span::from_millis(step);
                // 300 ms of queue, and round trips that show it by now.
                let crowded = queued(0, 310 + step % 2, 300, 1e3);
                scheduler.choose(now, &PLENTY, &[crowded]);
            }
            scheduler.forget(PathId(0));
            let now = Time::ZERO + Span::from_millis(100);
            let paths = [queued(0, 100, 0, 0.0), queued(1, 60, 0, 0.0)];
            let choice = scheduler.choose(now, &PLENTY, &paths);
            let first = match choice {
                Choice::Send(first) | Choice::Copies(first, _) => first,
                Choice::Wait => panic!("{}: all have room", scheduler.name()),
            };
            assert_eq!(first, PathId(1), "{}", scheduler.name());
        }
    }

    fn any_path(id: u8) -> impl Strategy<Value = PathState> {
        let queue = proptest::option::of((0..2_000u64, 0.0..1e5));
        let time = || proptest::option::of((0..2_000u64).prop_map(Span::from_millis));
        let times = (time(), time(), time());
        let more = (proptest::option::of(0..80u64), proptest::option::of(0..1_000_000_000u64));
        (times, 0..500u64, 0..50u64, 0..50u64, queue, 0.0..=1.0, more).prop_map(
            move |(times, rttvar, cwnd, inflight, queue, loss, more)| PathState {
                srtt: times.0,
                rttvar: Span::from_millis(rttvar),
                min_rtt: times.0.map(|srtt| srtt / 2),
                one_way: times.1,
                unanswered: times.2,
                cwnd: SEGMENT * cwnd,
                inflight: SEGMENT * inflight,
                ssthresh: more.0.map(|packets| SEGMENT * packets),
                pacing_rate: more.1.map(Bytes::new),
                queue: queue.map(|(packets, rate)| DeviceQueue { packets, rate }),
                loss,
                is_backup: false,
                ..PathState::new(PathId(id), SEGMENT)
            },
        )
    }

    proptest! {
        /// A path without alternatives is always used: no scheduler waits in vain.
        #[test]
        fn whatever_the_paths_are_only_those_with_room_are_chosen(
            steps in prop::collection::vec((any_path(0), any_path(1), any_path(2), 0..1_000u64), 1..60),
            unsent in 1..10_000_000u64,
            window_left in 0..10_000_000u64,
            used in 0..10_000_000u64,
        ) {
            for mut scheduler in all() {
                let mut now = Time::ZERO;
                for (a, b, c, millis) in &steps {
                    now += Span::from_millis(*millis);
                    let window = Bytes::new(window_left + used);
                    let [unsent, window_left] = [unsent, window_left].map(Bytes::new);
                    let interval = Span::from_millis(millis % 50);
                    let flow = SendState { unsent, window_left, window, interval };
                    let paths = [*a, *b, *c];
                    let room = |id: PathId| paths[usize::from(id.0)].has_room();
                    match scheduler.choose(now, &flow, &paths) {
                        Choice::Send(id) => prop_assert!(room(id)),
                        Choice::Copies(id, copies) => {
                            prop_assert!(room(id) && copies.iter().all(room));
                            prop_assert!(!copies.is_empty() && !copies.contains(id));
                        }
                        Choice::Wait => prop_assert!(
                            paths.iter().any(|path| !path.has_room()),
                            "{} waits, and for nothing", scheduler.name()
                        ),
                    }
                    if millis % 7 == 0 {
                        scheduler.on_blocked(now, PathId(0));
                    }
                    let alone = scheduler.choose(now, &flow, &[*a]);
                    let expected = if a.has_room() { Choice::Send(a.id) } else { Choice::Wait };
                    prop_assert_eq!(alone, expected, "{}", scheduler.name());
                }
            }
        }
    }
}
