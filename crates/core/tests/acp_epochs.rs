//! ACP's control epochs over a path in virtual time: when they end, and which rates become one update
//! per round trip.

#[allow(dead_code)]
#[path = "common/path_run.rs"]
mod path_run;

use freshline_core::source::{
    Ack, Acp, AcpParams, EpochEnd, EpochRecord, Phase, RateBounds, RateLaw, Reset,
};
use freshline_core::unit::{Span, Time, UpdateRate};
use path_run::{Course, two_slow_one_fast};

/// ACP that keeps the records of all its epochs.
struct Recorded {
    law: Acp,
    epochs: Vec<EpochRecord>,
}

impl Recorded {
    fn run(params: AcpParams, course: &Course) -> Vec<EpochRecord> {
        let mut recorded = Self { law: Acp::new(params), epochs: Vec::new() };
        course.run(&mut recorded);
        assert!(recorded.epochs.len() > 20, "{} epochs", recorded.epochs.len());
        recorded.epochs
    }
}

impl RateLaw for Recorded {
    fn name(&self) -> &'static str {
        self.law.name()
    }

    fn restart(&mut self, now: Time) {
        self.law.restart(now);
    }

    fn on_sent(&mut self, now: Time, seq: u64) {
        self.law.on_sent(now, seq);
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        self.law.on_ack(now, ack);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.law.handle_timeout(now);
        let last = self.law.last_epoch().copied();
        let is_new = last.map(|one| one.number) != self.epochs.last().map(|one| one.number);
        self.epochs.extend(last.filter(|_| is_new));
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.law.poll_timeout()
    }

    fn next_update_at(&self) -> Option<Time> {
        self.law.next_update_at()
    }

    fn rate(&self) -> UpdateRate {
        self.law.rate()
    }

    fn phase(&self) -> Phase {
        self.law.phase()
    }
}

/// T in s: min(srtt, Z) as of the end of an epoch.
fn time_scale(epoch: &EpochRecord) -> f64 {
    epoch.srtt_s.min(epoch.inter_delivery_s)
}

/// Epochs that do not last ten times the T of their begin.
fn epochs_of_another_length(end: EpochEnd) -> (usize, usize) {
    let params = AcpParams { epoch_end: end, ..AcpParams::default() };
    let epochs = Recorded::run(params, &two_slow_one_fast());
    let lasted_otherwise = |two: &&[EpochRecord]| {
        let length = two[1].ended_s - two[1].began_s;
        // Times are rounded to ns.
        (length - 10.0 * time_scale(&two[0])).abs() > 1e-6
    };
    (epochs.windows(2).filter(lasted_otherwise).count(), epochs.len() - 1)
}

#[test]
fn an_epoch_ends_at_ten_t_of_its_begin_and_fresh_acks_do_not_move_that() {
    let (otherwise, all) = epochs_of_another_length(EpochEnd::Fixed);
    assert_eq!(otherwise, 0, "of {all}");
    // The other choice moves most of them.
    let (otherwise, all) = epochs_of_another_length(EpochEnd::Moving);
    assert!(otherwise * 2 > all, "{otherwise} of {all}");
}

#[test]
fn rates_that_are_not_above_0_become_one_update_per_round_trip_and_lower_ones_only_if_asked() {
    // So large a step asks for rates below 0 now and then.
    let bounds = RateBounds::default();
    for reset in [Reset::Negative, Reset::Below] {
        let params = AcpParams { step: 4.0, reset, bounds, ..AcpParams::default() };
        let course = Course { length: Span::from_secs(120), ..two_slow_one_fast() };
        let [mut negative, mut below, mut above] = [0; 3];
        for epoch in Recorded::run(params, &course) {
            let wish = 1.0 / epoch.inter_delivery_s + epoch.wanted_change / time_scale(&epoch);
            let one_a_round_trip = 1.0 / epoch.srtt_s;
            let expected = if wish <= 0.0 {
                negative += 1;
                one_a_round_trip
            } else if wish < one_a_round_trip {
                below += 1;
                if reset == Reset::Below { one_a_round_trip } else { wish }
            } else {
                above += 1;
                wish
            };
            let [floor, ceiling] = [bounds.floor, bounds.ceiling].map(UpdateRate::per_second);
            let expected = expected.clamp(floor, ceiling);
            let ratio = epoch.rate_per_s / expected;
            assert!((0.999..1.001).contains(&ratio), "{reset:?}: {expected} for {epoch:?}");
        }
        assert!(negative > 0 && above > 0, "{reset:?}: {negative}, {below}, {above}");
    }
}
