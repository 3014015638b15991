//! Theorem 2 of "In-Network Freshness Control" compared with simulated schedulers, and cases in
//! which its conditions do not hold: the book's page on the router states and proves it.
//!
//! One flow of updates, one each T, through a link whose remaining capacity a fluid fills; d is the
//! transmission time of an update. Times are whole ns, and there is no propagation delay.

use freshline_core::age::AgeProcess;
use freshline_core::unit::Time;
use proptest::prelude::*;

/// The mean age in ns, and updates sent per ns.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Outcome {
    age: f64,
    rate: f64,
}

/// When a scheduler lets an update begin that could begin at this time.
trait Scheduler {
    fn begin(&mut self, at: u64) -> u64;
}

/// Lets updates begin at least `period` apart, and serves at once every update that it may (T_o >
/// 0).
struct Spaced {
    period: u64,
    last: Option<u64>,
}

impl Scheduler for Spaced {
    fn begin(&mut self, at: u64) -> u64 {
        let begin = self.last.map_or(at, |last| at.max(last + self.period));
        self.last = Some(begin);
        begin
    }
}

/// Time-division: in each frame, first a part that is closed to updates.
struct Tdm {
    frame: u64,
    closed: u64,
}

impl Scheduler for Tdm {
    fn begin(&mut self, at: u64) -> u64 {
        let since = at % self.frame;
        if since < self.closed { at - since + self.closed } else { at }
    }
}

/// As [`Spaced`], but waits for the next update: a queued update is never served.
struct Waiting {
    spaced: Spaced,
    /// T, and when the first update comes.
    updates: (u64, u64),
}

impl Scheduler for Waiting {
    fn begin(&mut self, at: u64) -> u64 {
        let (period, phase) = self.updates;
        let earliest = self.spaced.last.map_or(at, |last| at.max(last + self.spaced.period));
        let begin = phase + (earliest - phase).div_ceil(period) * period;
        self.spaced.last = Some(begin);
        begin
    }
}

/// Runs a scheduler with IFIL, of which only the newest update waits, over `cycles` of `cycle` ns
/// after a first one. An update that comes at the moment of a service is in time.
fn run(
    scheduler: &mut dyn Scheduler,
    (period, phase): (u64, u64),
    transmission: u64,
    (cycle, cycles): (u64, u64),
) -> Outcome {
    let [from, until] = [cycle, cycle * (1 + cycles)].map(Time::from_nanos);
    let mut age = AgeProcess::new();
    let (mut next, mut free, mut served, mut mark) = (0, 0, 0, None);
    loop {
        let begin = scheduler.begin(free.max(phase + next * period));
        let newest = (begin - phase) / period;
        free = begin + transmission;
        let delivered = Time::from_nanos(free);
        if mark.is_none() && delivered > from {
            mark = Some(age.mark(from));
        }
        if delivered > until {
            let mark = mark.expect("cycles come after the first");
            let age = age.mean_since(mark, until).expect("updates were delivered").as_nanos();
            let rate = served as f64 / (cycle * cycles) as f64;
            return Outcome { age: age as f64, rate };
        }
        age.on_update(delivered, Time::from_nanos(phase + newest * period));
        served += u64::from(delivered > from);
        next = newest + 1;
    }
}

/// Time-division that is closed for `closed` periods of a frame of `frame`, the mean over phases.
fn tdm(period: u64, transmission: u64, frame: u64, closed: u64) -> Outcome {
    const PHASES: u64 = 16;
    let of_phase = |at: u64| {
        let mut tdm = Tdm { frame: frame * period, closed: closed * period };
        // None comes at the very moment at which updates are let in.
        let updates = (period, (2 * at + 1) * period / (2 * PHASES));
        run(&mut tdm, updates, transmission, (frame * period, 4))
    };
    let outcomes: Vec<_> = (0..PHASES).map(of_phase).collect();
    let mean = |value: fn(&Outcome) -> f64| outcomes.iter().map(value).sum::<f64>() / PHASES as f64;
    Outcome { age: mean(|one| one.age), rate: mean(|one| one.rate) }
}

fn is_near(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < 1e-9
}

proptest! {
    /// The theorem: at T just below T_o, a scheduler that spaces updates has the age d + T, and
    /// time-division that sends as many has less, whatever the phase.
    #[test]
    fn spaced_updates_that_come_a_little_too_early_are_older_than_by_time_division(
        step in 2u64..50, k in 10u64..40, phase in 0.0..1.0, transmission in 0.0..1.0,
    ) {
        // T_o = k·ε, T = (k − 1)·ε, and 2·d < T.
        let (output, period) = (k * step, (k - 1) * step);
        let transmission = (transmission * (period / 2 - 1) as f64) as u64 + 1;
        prop_assume!(2 * transmission < period);
        // At 0, an update would come at the very moment at which updates are let in.
        let phase = 1 + (phase * (period - 1) as f64) as u64;
        // Both repeat after this: k updates come, k − 1 are sent.
        let cycle = k * period;
        let spaced = run(
            &mut Spaced { period: output, last: None },
            (period, phase), transmission, (cycle, 3),
        );
        let frame = run(
            &mut Tdm { frame: cycle, closed: 2 * period },
            (period, phase), transmission, (cycle, 3),
        );
        let [t, d, k] = [period, transmission, k].map(|value| value as f64);
        // The mean is cut to whole ns.
        prop_assert!((spaced.age - (d + t)).abs() <= 1.0, "{spaced:?}, d {d}, T {t}");
        prop_assert!(is_near(spaced.rate, 1.0 / output as f64));
        prop_assert!(is_near(frame.rate, spaced.rate), "{frame:?}, {spaced:?}");
        let bound = d + t / 2.0 + (4.0 * t + d) / k;
        prop_assert!(frame.age <= bound + 1.0 && frame.age < spaced.age, "{frame:?}, {bound}");
    }

    /// A T_o of at most 2·d is below each T of the theorem: nothing is gained over priority for
    /// updates, which is time-division with γ = 1.
    #[test]
    fn a_short_spacing_changes_nothing(
        period in 5u64..1_000, spacing in 0.0..1.0, transmission in 0.0..1.0, phase in 0u64..5,
    ) {
        let transmission = (transmission * ((period - 1) / 2) as f64) as u64;
        let spacing = (spacing * (2 * transmission) as f64) as u64;
        let updates = (period, phase);
        let mut spaced = Spaced { period: spacing.max(transmission), last: None };
        let spaced = run(&mut spaced, updates, transmission, (period, 10));
        let mut always = Tdm { frame: period, closed: 0 };
        prop_assert_eq!(spaced, run(&mut always, updates, transmission, (period, 10)));
    }
}

#[test]
fn without_the_conditions_time_division_is_beaten() {
    let (period, transmission) = (1_000, 100);
    let time_division = [(4, 3), (6, 4), (8, 5)].map(|(frame, closed)| {
        let outcome = tdm(period, transmission, frame, closed);
        assert!(is_near(outcome.rate, 0.5 / period as f64), "{outcome:?}");
        outcome.age
    });
    let best = time_division.into_iter().fold(f64::INFINITY, f64::min);
    let is_beaten_by = |outcome: Outcome| {
        assert!(is_near(outcome.rate, 0.5 / period as f64), "{outcome:?}");
        assert!(outcome.age < 0.9 * best, "{outcome:?}, {time_division:?}");
    };
    for phase in [0, 300, 999] {
        let updates = (period, phase);
        // At a single T, here T_o / 2: the theorem needs all of them.
        let mut spaced = Spaced { period: 2 * period, last: None };
        is_beaten_by(run(&mut spaced, updates, transmission, (2 * period, 10)));
        // By a scheduler that leaves an update waiting, at a T just below T_o.
        let spaced = Spaced { period: 1_050, last: None };
        let mut waiting = Waiting { spaced, updates };
        is_beaten_by(run(&mut waiting, updates, transmission, (2 * period, 10)));
    }
}
