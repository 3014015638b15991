//! Invariants of every law, for any input at any time: the contract of `RateLaw`.

use std::fmt::Debug;

use freshline_core::source::{
    Ack, Acp, AcpParams, AcpPlus, AcpPlusParams, DelaySource, EpochEnd, EstimatorParams, Fixed,
    Lazy, LazyParams, MultiplicativeDecrease, Phase, RateBounds, RateLaw, Reset, SendTime,
    ShortfallCheck, Tenth, TenthParams, Tie,
};
use freshline_core::unit::{Span, Time, UpdateRate};
use proptest::prelude::*;

const FLOOR: f64 = 0.5;
const CEILING: f64 = 100.0;

/// A law whose whole state can be compared.
trait Law: RateLaw + Debug {}
impl<L: RateLaw + Debug> Law for L {}

fn bounds() -> RateBounds {
    let [floor, ceiling] = [FLOOR, CEILING].map(UpdateRate::saturating);
    RateBounds { floor, ceiling }
}

fn acp_plus() -> AcpPlusParams {
    AcpPlusParams { bounds: bounds(), ..AcpPlusParams::default() }
}

fn acp() -> AcpParams {
    AcpParams { bounds: bounds(), ..AcpParams::default() }
}

fn tenth() -> TenthParams {
    TenthParams { bounds: bounds(), ..TenthParams::default() }
}

/// Every law, with each choice that it offers taken at least once.
fn laws() -> Vec<Box<dyn Law>> {
    let other_estimator = EstimatorParams::departure();
    let departure = AcpPlusParams { bounds: bounds(), ..AcpPlusParams::departure() };
    let repeating = AcpPlusParams { tie: Tie::Repeat, ..acp_plus() };
    let other_acp_plus = AcpPlusParams {
        tie: Tie::Hold,
        estimator: other_estimator,
        multiplicative_decrease: MultiplicativeDecrease::LargestStep,
        ..acp_plus()
    };
    let other_acp = AcpParams {
        step: 0.25,
        shortfall_check: ShortfallCheck::AsPrinted,
        epoch_end: EpochEnd::Moving,
        reset: Reset::Below,
        estimator: other_estimator,
        ..acp()
    };
    vec![
        Box::new(AcpPlus::new(acp_plus())),
        Box::new(AcpPlus::new(departure)),
        Box::new(AcpPlus::new(repeating)),
        Box::new(AcpPlus::new(other_acp_plus)),
        Box::new(Acp::new(acp())),
        Box::new(Acp::new(other_acp)),
        Box::new(Tenth::new(tenth())),
        Box::new(Tenth::new(TenthParams {
            target_queue: 3.0,
            delay: DelaySource::RoundTrip,
            ..tenth()
        })),
        Box::new(Lazy::new(LazyParams { bounds: bounds(), ..LazyParams::default() })),
        Box::new(Lazy::new(LazyParams {
            bounds: bounds(),
            send_time: SendTime::Moving,
            ..LazyParams::default()
        })),
        Box::new(Fixed::new(UpdateRate::saturating(CEILING))),
    ]
}

/// An event for a law. Acks contain any values that a hostile monitor may choose.
#[derive(Debug, Clone)]
enum Input {
    Wait(u64),
    Send,
    /// An honest ack of the newest update.
    Answer,
    /// Everything but the times that the source itself knows.
    Hostile {
        seq: u64,
        hold: u64,
        received_at: u64,
        fresh: u32,
    },
    Tick,
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        3 => (0u32..36).prop_map(|bits| Input::Wait((1 << bits) - 1)),
        3 => Just(Input::Send),
        3 => Just(Input::Answer),
        1 => any::<(u64, u64, u64, u32)>().prop_map(|(seq, hold, received_at, fresh)| {
            Input::Hostile { seq: seq % 64, hold, received_at, fresh }
        }),
        3 => Just(Input::Tick),
    ]
}

/// A law between a driver and a path of which only the inputs are known.
struct Driver {
    law: Box<dyn Law>,
    now: Time,
    sent: Vec<Time>,
    newest_acked: Option<u64>,
}

impl Driver {
    fn new(law: Box<dyn Law>) -> Self {
        Self { law, now: Time::ZERO, sent: Vec::new(), newest_acked: None }
    }

    fn apply(&mut self, input: &Input) {
        match *input {
            Input::Wait(nanos) => self.now += Span::from_nanos(nanos),
            Input::Send => self.send(),
            Input::Answer => {
                if let Some(newest) = (self.sent.len() as u64).checked_sub(1) {
                    self.ack(newest, Span::ZERO, self.now, newest as u32 + 1);
                }
            }
            Input::Hostile { seq, hold, received_at, fresh } => {
                if seq < self.sent.len() as u64 {
                    let received_at = Time::from_nanos(received_at);
                    self.ack(seq, Span::from_nanos(hold), received_at, fresh);
                }
            }
            Input::Tick => self.law.handle_timeout(self.now),
        }
    }

    fn send(&mut self) {
        self.law.on_sent(self.now, self.sent.len() as u64);
        self.sent.push(self.now);
    }

    fn ack(&mut self, seq: u64, hold: Span, received_at: Time, fresh: u32) {
        let sent_at = self.sent[seq as usize];
        // Any length will do.
        let (generated_at, len) = (sent_at, fresh);
        let ack = Ack { seq, generated_at, sent_at, len, hold, received_at, fresh, stale: 0 };
        self.law.on_ack(self.now, &ack);
        self.newest_acked = self.newest_acked.max(Some(seq));
    }

    /// Sends at the law's rate for `length`, without any ack; returns the number of steps.
    fn stay_silent(&mut self, length: Span) -> u64 {
        let end = self.now + length;
        let mut steps = 0;
        while let Some(next) = Time::earliest([self.law.poll_timeout(), self.law.next_update_at()])
        {
            self.now = self.now.max(next);
            if self.now > end {
                return steps;
            }
            if self.law.poll_timeout().is_some_and(|at| at <= self.now) {
                self.law.handle_timeout(self.now);
            }
            if self.law.next_update_at().is_some_and(|at| at <= self.now) {
                self.send();
            }
            steps += 1;
            // Both an update and the end of an epoch may come as often as the ceiling allows.
            let most = 1_000.0 + 3.0 * CEILING * length.as_secs_f64();
            assert!((steps as f64) < most, "{} spins: {:?}", self.law.name(), self.law);
        }
        panic!("{} stalls: {:?}", self.law.name(), self.law);
    }
}

proptest! {
    #[test]
    fn rates_stay_within_bounds(inputs in prop::collection::vec(input(), 0..200)) {
        for law in laws() {
            let mut driver = Driver::new(law);
            for input in &inputs {
                driver.apply(input);
                let rate = driver.law.rate().per_second();
                // Tenth's floor yields to losses and to round trips above its period.
                let floor = if driver.law.name() == "tenth" { f64::MIN_POSITIVE } else { FLOOR };
                prop_assert!((floor..=CEILING).contains(&rate), "{rate}: {:?}", driver.law);
            }
        }
    }

    #[test]
    fn a_lower_ceiling_holds_at_once_and_after_a_restart(
        inputs in prop::collection::vec(input(), 0..100),
        more in prop::collection::vec(input(), 0..100),
    ) {
        for law in laws() {
            let mut driver = Driver::new(law);
            inputs.iter().for_each(|input| driver.apply(input));
            let Some(own) = driver.law.bounds() else { continue };
            let ceiling = UpdateRate::saturating(CEILING / 10.0);
            driver.law.set_bounds(RateBounds { ceiling, ..own });
            for input in &more {
                prop_assert!(driver.law.rate() <= ceiling, "{:?}", driver.law);
                driver.apply(input);
            }
            driver.law.restart(driver.now);
            prop_assert_eq!(driver.law.bounds().map(|bounds| bounds.ceiling), Some(ceiling));
            prop_assert!(driver.law.rate() <= ceiling, "{:?}", driver.law);
        }
    }

    #[test]
    fn acp_plus_takes_small_steps(inputs in prop::collection::vec(input(), 0..400)) {
        let mut driver = Driver::new(Box::new(AcpPlus::new(acp_plus())));
        for input in &inputs {
            let (phase, before) = (driver.law.phase(), driver.law.rate().per_second());
            driver.apply(input);
            let factor = driver.law.rate().per_second() / before;
            let steering = phase == Phase::Steering;
            prop_assert!(!steering || (0.75 - 1e-9..=1.25 + 1e-9).contains(&factor), "{factor}");
        }
    }

    #[test]
    fn what_is_not_news_changes_nothing(
        inputs in prop::collection::vec(input(), 0..200),
        wait in 0u64..1 << 36, hold: u64, received_at: u64, fresh: u32, back: u64,
    ) {
        for law in laws() {
            let mut driver = Driver::new(law);
            for input in &inputs {
                driver.apply(input);
            }
            driver.now += Span::from_nanos(wait);
            let before = format!("{:?}", driver.law);
            if let Some(newest) = driver.newest_acked {
                let (hold, at) = (Span::from_nanos(hold), Time::from_nanos(received_at));
                driver.ack(newest.saturating_sub(back % 4), hold, at, fresh);
                prop_assert_eq!(&before, &format!("{:?}", driver.law), "after a stale ack");
            }
            if driver.law.poll_timeout().is_none_or(|at| at > driver.now) {
                driver.law.handle_timeout(driver.now);
                prop_assert_eq!(&before, &format!("{:?}", driver.law), "after an early tick");
            }
        }
    }

    #[test]
    fn no_past_makes_a_law_stall_or_spin(inputs in prop::collection::vec(input(), 0..200)) {
        for law in laws() {
            let mut driver = Driver::new(law);
            for input in &inputs {
                driver.apply(input);
            }
            driver.stay_silent(Span::from_secs(5));
        }
    }
}

#[test]
fn a_path_that_never_answers_is_probed_and_nothing_more() {
    for law in laws() {
        let mut driver = Driver::new(law);
        driver.stay_silent(Span::from_secs(3_600));
        if driver.law.name() != "fixed" {
            assert_eq!(driver.law.phase(), Phase::Probing);
            assert!(
                driver.sent.len() < 1_810,
                "{}: {} probes",
                driver.law.name(),
                driver.sent.len()
            );
        }
    }
}

#[test]
fn a_path_that_falls_silent_slows_acp_plus_to_the_floor_and_acp_to_one_a_round_trip() {
    let round_trip = Span::from_millis(30);
    for law in laws() {
        let mut driver = Driver::new(law);
        // A while on an ideal path: every update is answered a round trip later.
        let mut in_flight = std::collections::VecDeque::new();
        while driver.now < Time::ZERO + Span::from_secs(10) {
            let back = in_flight.front().map(|(at, _)| *at);
            let wants = [driver.law.poll_timeout(), driver.law.next_update_at(), back];
            driver.now = driver.now.max(wants.into_iter().flatten().min().unwrap());
            if let Some((_, seq)) = in_flight.pop_front_if(|(at, _)| *at <= driver.now) {
                driver.ack(seq, Span::ZERO, driver.now, seq as u32 + 1);
            }
            driver.apply(&Input::Tick);
            if driver.law.next_update_at().is_some_and(|at| at <= driver.now) {
                in_flight.push_back((driver.now + round_trip, driver.sent.len() as u64));
                driver.send();
            }
        }
        assert!(driver.law.rate().per_second() > 25.0, "{:?}", driver.law);
        driver.stay_silent(Span::from_secs(3_600));
        let rate = driver.law.rate().per_second();
        match driver.law.name() {
            "acp+" | "acp+d" => assert_eq!(rate, FLOOR),
            "acp" | "lazy" | "tenth" => {
                assert!((rate * round_trip.as_secs_f64() - 1.0).abs() < 0.01, "{rate}");
            }
            _ => assert_eq!(rate, CEILING),
        }
    }
}
