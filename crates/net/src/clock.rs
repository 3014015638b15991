//! The only place where the project reads the time.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use freshline_core::unit::{Span, Time};
use nix::time::{ClockId, clock_gettime};

/// The value of this process's clocks at their start, one year: so a state that is older than the
/// process has a time, too.
const START: Span = Span::from_secs(365 * 86_400);

/// When the clocks of this process start: at the creation of the first one.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time that the system has slept since the start, in ns.
static SLEPT: AtomicU64 = AtomicU64::new(0);

/// The time since boot, suspend included. `None` if the system has no such clock.
fn boot() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Duration::from)
}

/// [`boot`] at [`ORIGIN`]: the maximum of a few readings, as a delay between two clocks makes it
/// smaller.
static BOOT_ORIGIN: LazyLock<Option<Duration>> = LazyLock::new(|| {
    let reading = |_| Some(boot()?.saturating_sub(ORIGIN.elapsed()));
    (0..3).filter_map(reading).max()
});

/// The time since the start, suspend included, by one reading of a clock: this is called for each
/// packet.
fn since_start() -> Duration {
    let since = BOOT_ORIGIN.zip(boot()).map(|(origin, now)| now.saturating_sub(origin));
    since.unwrap_or_else(|| ORIGIN.elapsed())
}

/// The time that the system has slept since the start.
fn slept() -> Duration {
    let known = Duration::from_nanos(SLEPT.load(Ordering::Relaxed));
    let now = slept_by(known, since_start().saturating_sub(ORIGIN.elapsed()));
    if now > known {
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        SLEPT.fetch_max(nanos, Ordering::Relaxed);
    }
    now
}

/// Returns `known`, unless the clocks differ by more than the noise of their readings.
fn slept_by(known: Duration, difference: Duration) -> Duration {
    // A shorter sleep is not counted: a state can be older than its age by at most this much.
    const NOISE: Duration = Duration::from_millis(5);
    if difference < known + NOISE { known } else { difference }
}

/// The time since the process began, including suspension (`CLOCK_BOOTTIME`), as [`Time`], so that
/// a state ages while the machine sleeps. All clocks of a process show the same time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// The clock of this process.
    pub fn new() -> Self {
        LazyLock::force(&BOOT_ORIGIN);
        Self { origin: *ORIGIN }
    }

    /// The time now. It never goes back.
    pub fn now(&self) -> Time {
        Time::ZERO + START + since_start().into()
    }

    /// Like [`Clock::now`], but it stops while the system is suspended (`CLOCK_MONOTONIC`), like
    /// the kernel's timeouts.
    pub(crate) fn awake(&self) -> Time {
        Time::ZERO + START + self.origin.elapsed().into()
    }

    /// The total time that the system has slept since the start.
    pub(crate) fn slept(&self) -> Span {
        slept().into()
    }

    /// Whether the system has slept for longer than `known`, which is then updated.
    pub(crate) fn has_slept(&self, known: &mut Span) -> bool {
        let slept = self.slept();
        std::mem::replace(known, slept) < slept
    }

    /// Converts a moment of the standard library; a moment before the start of time becomes the
    /// start.
    pub fn time_of(&self, moment: Instant) -> Time {
        let start = Time::ZERO + START + slept().into();
        match moment.checked_duration_since(self.origin) {
            Some(later) => start + later.into(),
            None => {
                let earlier = Span::from(self.origin - moment);
                Time::ZERO + (start.since(Time::ZERO) - earlier)
            }
        }
    }

    /// Converts `time` for interfaces of the standard library; a time beyond their range becomes a
    /// moment a hundred years ahead.
    pub fn instant_of(&self, time: Time) -> Instant {
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
        let start = Time::ZERO + START + slept().into();
        if time < start {
            let earlier = self.origin.checked_sub(Duration::from(start.since(time)));
            return earlier.unwrap_or(self.origin);
        }
        let since_origin = Duration::from(time.since(start));
        self.origin.checked_add(since_origin).unwrap_or_else(|| self.origin + CENTURY)
    }
}

/// The wall clock since 1970, as a label for people; it may jump, so it is never used for
/// measurements.
pub fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// [`wall_clock`] in ms.
pub fn wall_clock_ms() -> u64 {
    u64::try_from(wall_clock().as_millis()).unwrap_or(u64::MAX)
}

/// One moment by the wall clock and by the process's clock, to convert the kernel's timestamps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anchor {
    wall: Duration,
    ours: Time,
}

impl Anchor {
    /// How far the wall clock may drift from the process's clock before the offset is updated.
    const TOLERANCE: Span = Span::from_micros(50);

    /// Uses the present offset.
    pub(crate) fn of_now(clock: Clock) -> Self {
        Self { ours: clock.now(), wall: wall_clock() }
    }

    /// Uses this moment.
    #[cfg(test)]
    pub(crate) fn at(ours: Time, wall: Duration) -> Self {
        Self { wall, ours }
    }

    /// Simulates a wall clock that was behind by this much.
    #[cfg(test)]
    pub(crate) fn with_wall_behind(self, by: Duration) -> Self {
        Self { wall: self.wall - by, ..self }
    }

    /// The moment by the process's clock.
    pub(crate) fn ours(&self) -> Time {
        self.ours
    }

    /// The moment by the wall clock, since 1970.
    #[cfg(feature = "source")]
    pub(crate) fn wall(&self) -> Duration {
        self.wall
    }

    /// Converts a moment of the wall clock since 1970.
    pub(crate) fn time_of(&self, unix: Duration) -> Time {
        match unix.checked_sub(self.wall) {
            Some(later) => self.ours + later.into(),
            None => {
                let earlier = Span::from(self.wall - unix);
                Time::ZERO + (self.ours.since(Time::ZERO) - earlier)
            }
        }
    }

    /// Follows a wall clock that was set or is being slewed; returns by how much it differs from
    /// its expected value.
    pub(crate) fn follow(&mut self, newer: Self) -> Span {
        let expected = self.time_of(newer.wall);
        let drift = newer.ours.since(expected).max(expected.since(newer.ours));
        if drift > Self::TOLERANCE {
            *self = newer;
        }
        drift
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_now_is_that_of_the_moment_now() {
        let clock = Clock::new();
        let close = |_| {
            let (before, moment, after) = (clock.now(), Instant::now(), clock.now());
            let at = clock.time_of(moment);
            let apart = before.since(at).max(at.since(after));
            apart < Span::from_micros(100)
        };
        // Another program may have run between the readings at the start, or here.
        assert!((0..100).any(close));
    }

    #[test]
    fn all_clocks_share_one_origin() {
        let earlier = Clock::new().now();
        let later = Clock::new().now();
        assert!(earlier <= later);
        let moment = earlier + Span::from_nanos(1_500);
        assert_eq!(Clock::new().instant_of(moment), Clock::new().instant_of(moment));
        let behind = Clock::new().instant_of(earlier - Span::from_nanos(1));
        assert!(behind < Clock::new().instant_of(earlier));
        assert!(Clock::new().instant_of(Time::MAX) > Instant::now());
        assert_eq!(Clock::new().time_of(Clock::new().instant_of(moment)), moment);
    }

    #[test]
    fn time_goes_on_while_the_system_sleeps_and_noise_of_readings_does_not_count() {
        let ms = Duration::from_millis;
        let mut known = Duration::ZERO;
        for (difference, slept) in
            [(0, 0), (4, 0), (20_300, 20_300), (20_299, 20_300), (60_000, 60_000)]
        {
            known = slept_by(known, ms(difference));
            assert_eq!(known, ms(slept), "{difference} ms");
        }
    }

    #[test]
    fn a_wall_clock_that_was_set_moves_no_time() {
        let ours = Time::ZERO + Span::from_secs(5);
        let mut anchor = Anchor { wall: Duration::from_secs(1_000), ours };
        let stamped = |anchor: &Anchor, micros| anchor.time_of(Duration::from_micros(micros));
        assert_eq!(stamped(&anchor, 1_000_000_010), ours + Span::from_micros(10));
        assert_eq!(stamped(&anchor, 999_999_990) + Span::from_micros(10), ours);
        let later = ours + Span::from_secs(1);
        // A small difference is the noise of two readings.
        let drift =
            anchor.follow(Anchor { wall: Duration::from_micros(1_001_000_020), ours: later });
        assert_eq!(drift, Span::from_micros(20));
        assert_eq!(stamped(&anchor, 1_001_000_000), later);
        let step = anchor.follow(Anchor { wall: Duration::from_secs(50), ours: later });
        assert!(step > Span::from_secs(1), "{step:?}");
        assert_eq!(stamped(&anchor, 50_000_001), later + Span::from_micros(1));
    }
}
