//! The paths of a source: chooses paths for each update, and tracks the state of each path by acks.
//!
//! ```text
//!              law: now!
//!                 │          live ones' states      first, copies
//!   update ─► route ─────────────► scheduler ─────────────┬──────► path 0 ─► …
//!                 │                                       └──────► path 1 ─► …
//!                 └─ silent, untried, long unused ones: an occasional copy ──► path 2 ─► …
//!
//!               set_up            ack                3 without an answer, or one for very long
//!   Down ───────────────► Untried ───► Live ──────────────────────────────────────────► Silent
//!     ▲                                 ▲                     ack                          │
//!     └── set_up(false), from any       └──────────────────────────────────────────────────┘
//! ```
//!
//! There is one session and one law; paths only carry its updates. An answer is sent to the address
//! from which its update came, so an ack measures the path on which it arrives, even if it is late
//! for the session.
//!
//! - **A scheduler** chooses among live paths. Schedulers for streams that may wait for a better
//!   path (`ecf`, `blest` and `daps`) are refused: a waiting update ages.
//! - **A path is silent** when an update on it is overdue and two more are unanswered, or when an
//!   update is unanswered for twice that time. An update is overdue after srtt + 4·rttvar (and at
//!   least srtt/2 and 10 ms more than srtt). So detection takes two or three round trips; until
//!   then, `freshest` uses the age of the oldest unanswered update.
//! - **Probes** are copies. A silent path gets one after the time by which an update on it is
//!   overdue, and then at doubling intervals, up to 2 s; an untried path with the first update, and
//!   again after 0.4, 0.8 … 2 s; a live path that the scheduler does not use gets one per second,
//!   to detect when it becomes the better one. When the session opens, paths without an answer are
//!   probed again with the next update. While a path is live, probes are at most [`PROBE_SHARE`] of
//!   the updates, even for a slow source. Among the paths that are due, the one unused for the
//!   longest time comes first.
//! - **Without a live path** the update takes the path with the most recent ack, with copies to
//!   others as above.

mod path;
mod route;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::path::{
    Choice, DeviceQueue, MAX_PATHS, PathId, PathState, Scheduler, SchedulerConfig, SchedulerError,
    SendState,
};
use crate::unit::{Bytes, Span, Time};
use path::Path;
pub use path::{PathAck, PathCounters, PathPhase};
pub use route::Route;

/// The maximum number of probes per update.
pub const PROBE_SHARE: f64 = 0.04;

/// The maximum number of probes that may be saved up.
const MAX_CREDIT: f64 = 4.0;

/// Why there are no such paths.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum PathsError {
    /// Zero, or more than the maximum.
    #[error("{0} paths; there are from 1 to {MAX_PATHS}")]
    Count(usize),
    /// The scheduler makes packets wait.
    #[error(
        "`{0}` lets packets of a stream wait for a faster path, and an update that waits grows old; \
         take freshest, qaware, min_srtt, round_robin or redundant"
    )]
    HoldsPackets(&'static str),
    /// A setting of it is out of range.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
}

/// The present state of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathStatus {
    /// Its phase.
    pub phase: PathPhase,
    /// The scheduler's view of it.
    pub state: PathState,
    /// Its counters.
    pub counters: PathCounters,
    /// The scheduler's estimate of the time from its device to the ack, if it has one.
    pub service: Option<Span>,
    /// The measured delay in the device queue of the last answered update; `None` without departure
    /// timestamps.
    pub stamped_wait: Option<Span>,
}

/// The paths of one source.
#[derive(Debug)]
pub struct Paths {
    scheduler: Box<dyn Scheduler>,
    paths: Vec<Path>,
    /// The live paths; kept to reuse its memory.
    live: Vec<PathState>,
    credit: f64,
}

impl Paths {
    /// `count` paths, all of which can carry updates.
    ///
    /// # Errors
    /// [`PathsError`] if the count or the scheduler is invalid.
    pub fn new(count: usize, scheduler: &SchedulerConfig) -> Result<Self, PathsError> {
        if !(1..=MAX_PATHS).contains(&count) {
            return Err(PathsError::Count(count));
        }
        if let SchedulerConfig::Ecf(_) | SchedulerConfig::Blest(_) | SchedulerConfig::Daps =
            scheduler
        {
            return Err(PathsError::HoldsPackets(scheduler.name()));
        }
        let mut paths = Self::one(scheduler.build()?);
        paths.paths.resize_with(count, Path::new);
        paths.live.reserve_exact(count);
        Ok(paths)
    }

    fn one(scheduler: Box<dyn Scheduler>) -> Self {
        Self { scheduler, paths: alloc::vec![Path::new()], live: Vec::new(), credit: MAX_CREDIT }
    }

    // ---- inputs ----

    /// Sets whether a path can carry updates. On a change, its estimates are discarded.
    pub fn set_up(&mut self, path: PathId, is_up: bool) {
        if self.path_mut(path).is_some_and(|path| path.set_up(is_up)) {
            self.scheduler.forget(path);
        }
    }

    /// The session has opened on one of the paths: paths without an answer, whose probe intervals
    /// have grown, are probed at once.
    pub fn on_opened(&mut self) {
        self.paths.iter_mut().for_each(Path::on_opened);
    }

    /// The queue in the network device of a path; `None` if unknown.
    pub fn set_queue(&mut self, path: PathId, queue: Option<DeviceQueue>) {
        if let Some(path) = self.path_mut(path) {
            path.queue = queue;
        }
    }

    /// Update `seq` was just sent on a path; `is_copy` if another path was its first.
    pub fn on_sent(&mut self, now: Time, path: PathId, seq: u64, is_copy: bool) {
        if let Some(path) = self.path_mut(path) {
            path.on_sent(now, seq, is_copy);
        }
    }

    /// An update without an ack request was just sent on a path.
    pub fn on_sent_without_ack_request(&mut self, now: Time, path: PathId) {
        if let Some(path) = self.path_mut(path) {
            path.on_sent_without_ack_request(now);
        }
    }

    /// Update `seq` left the device of a path `wait` after it was sent.
    pub fn on_left(&mut self, path: PathId, seq: u64, wait: Span) {
        if let Some(path) = self.path_mut(path) {
            path.on_left(seq, wait);
        }
    }

    /// An ack has arrived on a path.
    pub fn on_ack(&mut self, now: Time, path: PathId, ack: &PathAck) {
        let acked = self.path_mut(path).and_then(|path| path.on_ack(now, ack));
        if let Some(acked) = acked {
            self.scheduler.on_ack(path, &acked);
        }
    }

    /// The far end may have another clock from now on.
    pub fn forget_clock(&mut self) {
        self.paths.iter_mut().for_each(Path::forget_clock);
    }

    // ---- decisions ----

    /// The route of the update that is sent now; the next one is expected an `interval` later.
    /// `clock_offset` is the offset of the far end's clock in ns. `None` if no path is up.
    pub fn route(&mut self, now: Time, interval: Span, clock_offset: Option<i64>) -> Option<Route> {
        self.paths.iter_mut().for_each(|path| path.handle_timeout(now));
        if let [only] = &self.paths[..] {
            return (only.phase != PathPhase::Down).then_some(Route::by(PathId(0)));
        }
        self.live.clear();
        let live = numbered(&self.paths).filter(|(_, path)| path.is_live());
        self.live.extend(live.map(|(id, path)| path.state(now, id, clock_offset)));
        let mut route = match self.live.first() {
            None => Route::by(self.heard_last()?),
            Some(any) => {
                let plenty = Bytes::new(u64::MAX);
                let (unsent, window_left, window) = (plenty, plenty, plenty);
                let flow = SendState { unsent, window_left, window, interval };
                match self.scheduler.choose(now, &flow, &self.live) {
                    Choice::Send(first) => Route::by(first),
                    Choice::Copies(first, copies) => Route { first, copies },
                    // Each has room: none of these schedulers waits.
                    Choice::Wait => Route::by(any.id),
                }
            }
        };
        self.add_probes(now, &mut route);
        Some(route)
    }

    /// Whether every update asks for an ack, independent of the law: with several paths, only acks
    /// show which one to take.
    pub fn want_every_ack(&self) -> bool {
        self.paths.len() > 1
    }

    // ---- getters ----

    /// The number of paths.
    pub fn count(&self) -> usize {
        self.paths.len()
    }

    /// The scheduler's name.
    pub fn scheduler(&self) -> &'static str {
        self.scheduler.name()
    }

    /// Whether there is such a path, and it can carry updates.
    pub fn is_up(&self, path: PathId) -> bool {
        self.paths.get(usize::from(path.0)).is_some_and(|path| path.phase != PathPhase::Down)
    }

    /// The paths that can carry updates.
    pub fn up(&self) -> impl Iterator<Item = PathId> {
        numbered(&self.paths).filter(|(_, path)| path.phase != PathPhase::Down).map(|(id, _)| id)
    }

    /// The present state of each path, the first one first.
    pub fn statuses(
        &self,
        now: Time,
        clock_offset: Option<i64>,
    ) -> impl Iterator<Item = PathStatus> {
        numbered(&self.paths).map(move |(id, path)| PathStatus {
            phase: path.phase,
            state: path.state(now, id, clock_offset),
            counters: path.counters,
            service: self.scheduler.service(id),
            stamped_wait: path.stamped.wait(),
        })
    }

    // ---- steps ----

    fn path_mut(&mut self, path: PathId) -> Option<&mut Path> {
        self.paths.get_mut(usize::from(path.0))
    }

    fn heard_last(&self) -> Option<PathId> {
        let heard_at = |id: &PathId| self.paths[usize::from(id.0)].heard_at;
        self.up().max_by_key(heard_at)
    }

    fn add_probes(&mut self, now: Time, route: &mut Route) {
        self.credit = (self.credit + PROBE_SHARE).min(MAX_CREDIT);
        let is_free = self.live.is_empty();
        let mut seen_to = route.copies.with(route.first);
        loop {
            let due = numbered(&self.paths).filter(|(id, path)| {
                !seen_to.contains(*id) && path.probe_at().is_some_and(|at| at <= now)
            });
            let Some((id, path)) = due.min_by_key(|(_, path)| path.used_at) else { return };
            seen_to = seen_to.with(id);
            if is_free || path.used_at.is_none() || self.credit >= 1.0 {
                self.credit = (self.credit - 1.0).max(0.0);
                route.copies = route.copies.with(id);
            }
        }
    }
}

impl Default for Paths {
    /// One path.
    fn default() -> Self {
        Self::one(Box::new(crate::path::MinSrtt::new()))
    }
}

fn numbered(paths: &[Path]) -> impl Iterator<Item = (PathId, &Path)> {
    (0..).map(PathId).zip(paths)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::path::{PathSet, QAwareParams};
    use proptest::prelude::*;

    const INTERVAL: Span = Span::from_millis(20);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn named(name: &str) -> SchedulerConfig {
        name.parse().expect("there is one")
    }

    fn ack(seq: u64, received_at: Time) -> PathAck {
        PathAck { seq, hold: Span::ZERO, received_at }
    }

    /// Paths with these round trips, in ms, or dead ones; 50 updates a second.
    struct World {
        paths: Paths,
        rtts: Vec<Option<u64>>,
        /// The interval between updates.
        interval: Span,
        seq: u64,
        /// Pending acks: time, path and update.
        acks: Vec<(u64, u8, u64)>,
    }

    impl World {
        fn new(scheduler: &str, rtts: &[Option<u64>]) -> Self {
            let paths = Paths::new(rtts.len(), &named(scheduler)).expect("a few paths");
            Self { paths, rtts: rtts.to_vec(), interval: INTERVAL, seq: 0, acks: Vec::new() }
        }

        /// Returns the routes of `updates` updates.
        fn run(&mut self, updates: u64) -> Vec<Route> {
            (0..updates).map(|_| self.step()).collect()
        }

        fn step(&mut self) -> Route {
            let now = self.interval.as_nanos() / 1_000_000 * self.seq;
            self.acks.sort_unstable();
            while let Some((at_ms, path, seq)) = self.acks.first().copied().filter(|a| a.0 <= now) {
                self.acks.remove(0);
                let received_at = at(at_ms - self.rtts[usize::from(path)].unwrap_or(0) / 2);
                self.paths.on_ack(at(at_ms), PathId(path), &ack(seq, received_at));
            }
            let route = self.paths.route(at(now), self.interval, Some(0)).expect("all are up");
            for (place, path) in route.all().enumerate() {
                self.paths.on_sent(at(now), path, self.seq, place > 0);
                let rtt = self.rtts[usize::from(path.0)];
                self.acks.extend(rtt.map(|rtt| (now + rtt, path.0, self.seq)));
            }
            self.seq += 1;
            route
        }
    }

    #[test]
    fn schedulers_that_let_packets_wait_are_refused() {
        for name in ["ecf", "blest", "daps"] {
            let error = Paths::new(2, &named(name)).unwrap_err();
            assert!(error.to_string().contains("grows old"), "{error}");
        }
        for name in ["freshest", "qaware", "min_srtt", "round_robin", "linger", "redundant"] {
            assert_eq!(Paths::new(2, &named(name)).unwrap().scheduler(), name);
        }
        for count in [0, MAX_PATHS + 1] {
            let error = Paths::new(count, &named("freshest")).unwrap_err();
            assert_eq!(error, PathsError::Count(count));
        }
        let alpha = SchedulerConfig::QAware(QAwareParams { alpha: 2.0, ..QAwareParams::default() });
        assert!(matches!(Paths::new(2, &alpha), Err(PathsError::Scheduler(_))));
    }

    #[test]
    fn a_path_that_is_cut_is_left_within_three_round_trips_and_taken_again() {
        for scheduler in ["freshest", "qaware", "min_srtt", "redundant"] {
            let mut world = World::new(scheduler, &[Some(20), Some(60)]);
            world.run(200);
            world.rtts[0] = None;
            let routes = world.run(500);
            let last = routes.iter().rposition(|route| route.first == PathId(0));
            assert!(last.is_some_and(|last| last < 4), "{scheduler}: {last:?}");
            let copies = routes[4..].iter().filter(|route| !route.copies.is_empty()).count();
            assert!((4..=12).contains(&copies), "{scheduler}: {copies} probes in 10 s");
            world.rtts[0] = Some(20);
            let routes = world.run(150);
            let first = routes.iter().position(|route| route.first == PathId(0));
            assert!(first.is_some_and(|first| first <= 102), "{scheduler}: after {first:?}");
        }
    }

    #[test]
    fn a_path_that_is_left_aside_is_seen_when_it_has_become_the_better_one() {
        for scheduler in ["freshest", "qaware", "min_srtt"] {
            let mut world = World::new(scheduler, &[Some(40), Some(80)]);
            world.run(200);
            world.rtts[1] = Some(10);
            let routes = world.run(300);
            assert!(routes[299].first == PathId(1), "{scheduler}");
        }
    }

    #[test]
    fn probes_and_copies_of_freshest_are_less_than_three_tenths() {
        let mut world = World::new("freshest", &[Some(40), Some(41), None, Some(200)]);
        let routes = world.run(5_000);
        let sent: usize = routes.iter().map(|route| route.all().count()).sum();
        assert!(sent <= 5_000 * 13 / 10 + 20, "{sent}");
    }

    #[test]
    fn slow_sources_send_no_more_copies_for_each_update_than_fast_ones() {
        for (scheduler, share) in [("freshest", 0.29), ("min_srtt", 0.04), ("round_robin", 0.04)] {
            for millis in [20, 1_000, 10_000, 60_000] {
                let mut world = World::new(scheduler, &[Some(40), Some(50), Some(200)]);
                world.interval = Span::from_millis(millis);
                let sent: usize = world.run(500).iter().map(|route| route.all().count()).sum();
                // The first update takes all paths, and a few probes may be saved up.
                let most = 500.0 * (1.0 + share) + 10.0;
                assert!(sent as f64 <= most, "{scheduler}, each {millis} ms: {sent} for 500");
            }
        }
    }

    #[test]
    fn what_is_down_takes_nothing_and_is_new_when_it_comes_back() {
        let mut world = World::new("freshest", &[Some(20), Some(60)]);
        world.run(100);
        world.paths.set_up(PathId(0), false);
        let only = Route::by(PathId(1));
        assert!(world.run(200).iter().all(|route| *route == only));
        world.paths.set_up(PathId(0), true);
        let route = world.step();
        assert_eq!(route.copies, PathSet::EMPTY.with(PathId(0)), "it is tried at once");
        assert!(world.run(3).iter().any(|route| route.first == PathId(0)));
        world.paths.set_up(PathId(0), false);
        world.paths.set_up(PathId(1), false);
        assert_eq!(world.paths.route(at(1 << 20), INTERVAL, None), None);
        let phases = world.paths.statuses(at(1 << 20), None).map(|status| status.phase);
        assert!(phases.eq([PathPhase::Down; 2]));
    }

    #[test]
    fn a_path_that_is_down_is_forgotten_by_the_scheduler_too() {
        /// Counts calls of `forget`.
        #[derive(Debug)]
        struct Forgetful(Arc<AtomicUsize>);

        impl Scheduler for Forgetful {
            fn name(&self) -> &'static str {
                "forgetful"
            }

            fn choose(&mut self, _now: Time, _flow: &SendState, paths: &[PathState]) -> Choice {
                Choice::Send(paths[0].id)
            }

            fn forget(&mut self, _path: PathId) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        let forgotten = Arc::new(AtomicUsize::new(0));
        let mut paths = Paths::one(Box::new(Forgetful(Arc::clone(&forgotten))));
        for (is_up, times) in [(true, 0), (false, 1), (false, 1), (true, 2)] {
            paths.set_up(PathId(0), is_up);
            assert_eq!(forgotten.load(Ordering::Relaxed), times, "{is_up}");
        }
    }

    #[test]
    fn probes_are_spread_over_the_paths_that_are_left_aside() {
        // Five paths, each due for one probe per second, and two probes per second for all of them.
        let rtts = [20, 60, 60, 60, 60, 60].map(Some);
        let mut world = World::new("min_srtt", &rtts);
        world.run(500);
        let routes = world.run(5_000);
        let of = |path| routes.iter().filter(|route| route.copies.contains(PathId(path))).count();
        let probes = [1, 2, 3, 4, 5].map(of);
        let (least, most) = (probes.iter().min(), probes.iter().max());
        assert!(probes.iter().sum::<usize>() <= 210, "{probes:?}");
        assert!(most <= least.map(|least| least + 5).as_ref(), "{probes:?}");
    }

    #[test]
    fn updates_without_an_answer_take_bounded_memory() {
        let mut paths = Paths::default();
        for seq in 0..3 * path::REMEMBERED as u64 {
            paths.on_sent(at(seq), PathId(0), seq, false);
        }
        let status = paths.statuses(at(0), None).next().expect("a path");
        assert_eq!(status.state.inflight.get(), path::REMEMBERED as u64);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Wait(u64),
        Update,
        Ack { path: u8, back: u64, hold: u64, received_at: u64 },
        SetUp(u8, bool),
        Opened,
        Queue(u8, Option<(u64, f64)>),
        ForgetClock,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let ack = (0..5u8, 0..40u64, 0..1u64 << 40, any::<u64>());
        prop_oneof![
            (0..300_000_000u64).prop_map(Step::Wait),
            Just(Step::Update),
            Just(Step::Update),
            ack.clone().prop_map(|(path, back, hold, received_at)| Step::Ack {
                path,
                back,
                hold,
                received_at
            }),
            ack.prop_map(|(path, back, _, received_at)| Step::Ack {
                path,
                back,
                hold: 0,
                received_at
            }),
            (0..5u8, any::<bool>()).prop_map(|(path, up)| Step::SetUp(path, up)),
            (0..5u8, proptest::option::of((any::<u64>(), -1.0..1e12)))
                .prop_map(|(path, queue)| Step::Queue(path, queue)),
            Just(Step::ForgetClock),
            Just(Step::Opened),
        ]
    }

    proptest! {
        /// Acks of updates that were never sent or were answered long ago, on nonexistent paths,
        /// with any times: no panic, bounded memory, no other path first while one is live, and no
        /// update on a path that is down.
        #[test]
        fn whatever_acks_say_only_live_paths_come_first(
            steps in prop::collection::vec(any_step(), 1..400),
            scheduler in 0..5usize,
            offset in proptest::option::of(any::<i64>()),
        ) {
            let name = ["freshest", "qaware", "min_srtt", "round_robin", "redundant"][scheduler];
            let mut paths = Paths::new(3, &named(name)).unwrap();
            let (mut now, mut seq) = (Time::ZERO, 0u64);
            for step in steps {
                match step {
                    Step::Wait(nanos) => now += Span::from_nanos(nanos),
                    Step::Update => {
                        let route = paths.route(now, INTERVAL, offset);
                        let statuses: Vec<_> = paths.statuses(now, offset).collect();
                        let phase = |path: PathId| statuses[usize::from(path.0)].phase;
                        let any_live = statuses.iter().any(|one| one.phase == PathPhase::Live);
                        prop_assert_eq!(route.is_none(), paths.up().next().is_none());
                        let Some(route) = route else { continue };
                        prop_assert!(route.all().all(|path| phase(path) != PathPhase::Down));
                        prop_assert!(!any_live || phase(route.first) == PathPhase::Live);
                        for (place, path) in route.all().enumerate() {
                            paths.on_sent(now, path, seq, place > 0);
                        }
                        seq += 1;
                    }
                    Step::Ack { path, back, hold, received_at } => {
                        let hold = Span::from_nanos(hold);
                        let received_at = Time::from_nanos(received_at);
                        let ack = PathAck { seq: seq.wrapping_sub(back), hold, received_at };
                        paths.on_ack(now, PathId(path), &ack);
                    }
                    Step::SetUp(path, up) => paths.set_up(PathId(path), up),
                    Step::Opened => paths.on_opened(),
                    Step::Queue(path, queue) => {
                        let queue = queue.map(|(packets, rate)| DeviceQueue { packets, rate });
                        paths.set_queue(PathId(path), queue);
                    }
                    Step::ForgetClock => paths.forget_clock(),
                }
                for status in paths.statuses(now, offset) {
                    prop_assert!((0.0..=1.0).contains(&status.state.loss));
                }
            }
        }
    }
}
