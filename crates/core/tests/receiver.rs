//! Invariants of every law of the receive window, for any arrivals.

use freshline_core::receiver::{
    Arrival, DrwaParams, Limits, Remote, RtacParams, Slope, WindowLaw, WindowLawConfig,
};
use freshline_core::unit::{Bytes, Span, Time};
use proptest::prelude::*;

const LIMITS: Limits = Limits { initial: Bytes::new(65_536), most: Bytes::new(4 << 20) };
const SEGMENT: Bytes = Bytes::new(1448);

fn laws() -> Vec<Box<dyn WindowLaw>> {
    let fixed = RtacParams { slope: Slope::Fixed(15e-5), ..RtacParams::default() };
    let configs = [
        WindowLawConfig::Rtac(RtacParams::default()),
        WindowLawConfig::Rtac(fixed),
        WindowLawConfig::Rtac(RtacParams { pure: true, ..fixed }),
        WindowLawConfig::Drwa(DrwaParams::default()),
        WindowLawConfig::Autotune,
    ];
    let build = |config: &WindowLawConfig| config.build(LIMITS, &Remote::default()).unwrap();
    configs.iter().map(build).collect()
}

#[derive(Debug, Clone)]
enum Input {
    RoundTrip(u64),
    Arrival { bytes: u64, segment: u64 },
    Read(u64),
}

fn inputs() -> impl Strategy<Value = Vec<(u64, Input)>> {
    let size = prop_oneof![Just(0), 1..3000u64, Just(u64::MAX)];
    let nanos = prop_oneof![Just(0), 1..500_000_000u64, Just(u64::MAX)];
    let segment = prop_oneof![1..3000u64, Just(u64::MAX)];
    let input = prop_oneof![
        nanos.clone().prop_map(Input::RoundTrip),
        (size.clone(), segment).prop_map(|(bytes, segment)| Input::Arrival { bytes, segment }),
        size.prop_map(Input::Read),
    ];
    prop::collection::vec((nanos, input), 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_window_is_never_zero_nor_above_its_limit(inputs in inputs()) {
        for mut law in laws() {
            let mut now = Time::ZERO;
            for (gap, input) in &inputs {
                now += Span::from_nanos(*gap);
                match *input {
                    Input::RoundTrip(nanos) => law.on_round_trip(now, Span::from_nanos(nanos)),
                    Input::Arrival { bytes, segment } => {
                        let (bytes, segment) = (Bytes::new(bytes), Bytes::new(segment));
                        law.on_arrival(now, Arrival { bytes, segment });
                    }
                    Input::Read(bytes) => law.on_read(now, Bytes::new(bytes)),
                }
                let window = law.window();
                prop_assert!(window > Bytes::ZERO && window <= LIMITS.most, "{}", law.name());
            }
        }
    }
}

/// A link without competing flows: the round trip is the base RTT, or the time in which the window
/// drains.
fn settle(law: &mut dyn WindowLaw, packets_per_rtt: u64, base: Span, rounds: usize) -> f64 {
    let packet = base / packets_per_rtt;
    let mut now = Time::ZERO;
    let mut stretch = 1.0;
    law.on_round_trip(now, base);
    for _ in 0..rounds {
        let in_flight = law.window().get() / SEGMENT.get();
        let rtt = base.max(packet * in_flight);
        for _ in 0..in_flight {
            now += rtt / in_flight;
            law.on_round_trip(now, rtt);
            law.on_arrival(now, Arrival { bytes: SEGMENT, segment: SEGMENT });
            law.on_read(now, SEGMENT);
        }
        stretch = rtt.as_secs_f64() / base.as_secs_f64();
    }
    stretch
}

#[test]
fn alone_each_law_settles_where_its_equation_says() {
    let base = Span::from_millis(20);
    let remote = Remote::default;
    let mut own = RtacParams::default().build(LIMITS, remote()).unwrap();
    let stretch = settle(&mut own, 100, base, 200);
    assert!((stretch - 1.38).abs() < 0.05, "θ, and was {stretch}");

    // K for a path of 100 packets.
    let slope = Slope::Fixed(freshline_core::receiver::slope(100.0, 1.38));
    let mut set = RtacParams { slope, ..RtacParams::default() }.build(LIMITS, remote()).unwrap();
    let stretch = settle(&mut set, 100, base, 200);
    assert!((stretch - 1.38).abs() < 0.05, "θ, and was {stretch}");

    let mut drwa = DrwaParams::default().build(LIMITS).unwrap();
    let stretch = settle(&mut drwa, 100, base, 200);
    assert!((stretch - 3.0).abs() < 0.1, "λ, and was {stretch}");
}

#[test]
fn a_k_set_by_hand_is_too_large_a_window_where_the_path_is_slower() {
    let slope = Slope::Fixed(freshline_core::receiver::slope(100.0, 1.38));
    let mut set =
        RtacParams { slope, ..RtacParams::default() }.build(LIMITS, Remote::default()).unwrap();
    let stretch = settle(&mut set, 25, Span::from_millis(20), 200);
    // w − BDP = a/(K·BDP²) = 38·16 packets.
    assert!(stretch > 20.0, "{stretch}");
    let mut own = RtacParams::default().build(LIMITS, Remote::default()).unwrap();
    let stretch = settle(&mut own, 25, Span::from_millis(20), 200);
    assert!(stretch < 1.5, "{stretch}");
}
