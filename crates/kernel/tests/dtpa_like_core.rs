//! The kernel's DTPA compared with the core's: both get the same segments, losses and round trips,
//! and must learn the same, wait equally long, to the microsecond, and hold the same windows.

mod common;

use std::fmt::Write as _;

use common::on_host;
use freshline_core::mesh::{Dtpa, DtpaParams, Share};
use freshline_core::unit::{Span, Time};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// Of `dtpa_on_host.c`.
const SEGMENT: u64 = 1000;

/// The result of a round trip.
struct Row {
    node: Dtpa,
    window: u32,
}

/// As many of the magnitudes up to 10^`digits`.
fn any_magnitude(rng: &mut Pcg32, digits: f64) -> u64 {
    10_f64.powf(digits * rng.random::<f64>()) as u64
}

/// The history of a node: its events as lines, and the core's results of its round trips.
fn live(rng: &mut Pcg32, lines: &mut String, rows: &mut Vec<Row>) {
    let mut some = |digits, least: u64| {
        rng.random::<bool>().then(|| any_magnitude(rng, digits).max(least) as u32)
    };
    let [max_window, memory] = [some(3.0, 2), some(4.0, 2)];
    let peak_bound = rng.random_range(0..4) > 0;
    let params = DtpaParams { max_window, memory, peak_bound, rtt_weight: 8 };
    let share = Share::per_second(any_magnitude(rng, 7.0) as f64 / 1e3);
    let mut node = Dtpa::new(params, share).unwrap();
    let DtpaParams { rtt_weight, .. } = params;
    let numbers = [max_window, memory].map(|number| number.unwrap_or(0));
    let [max_window, memory] = numbers;
    let per_1000_s = share.unwrap().per_1000_s();
    let without_peak = u32::from(!peak_bound);
    writeln!(lines, "new {per_1000_s} {rtt_weight} {max_window} {memory} {without_peak}").unwrap();
    for _ in 0..200 {
        let segments = any_magnitude(rng, 2.5);
        writeln!(lines, "sent {segments}").unwrap();
        (0..segments).for_each(|_| node.on_sent(Time::ZERO));
        match rng.random_range(0..6) {
            0 => {
                writeln!(lines, "timeout").unwrap();
                node.on_rto(Time::ZERO);
            }
            1 => {
                writeln!(lines, "fast_retransmit").unwrap();
                node.on_fast_retransmit(Time::ZERO);
            }
            _ => {}
        }
        // A window is whatever a stack held where the kernel skips a program: 0, or anything.
        let any = any_magnitude(rng, 9.6) as u32;
        let window = if rng.random_range(0..20) == 0 { any } else { rng.random_range(0..100) };
        let sample = any_magnitude(rng, 7.5);
        writeln!(lines, "round_trip {sample} {window}").unwrap();
        node.on_round_trip(Time::ZERO, Span::from_micros(sample));
        rows.push(Row { node, window });
    }
}

#[test]
fn periods_follow_from_luck_as_in_the_core() {
    let mut rng = Pcg32::seed_from_u64(8);
    let (mut lines, mut rows) = (String::new(), Vec::new());
    (0..60).for_each(|_| live(&mut rng, &mut lines, &mut rows));
    let told = on_host("dtpa_on_host", &lines);
    assert_eq!(told.len(), rows.len());
    for (kernel, Row { node, window }) in told.iter().zip(&rows) {
        let [period, srtt, rate, most, sent, losses, held, repairing, threshold] = kernel[..]
        else {
            panic!("{kernel:?}")
        };
        let in_use = u64::from(*window);
        assert_eq!(held, in_use.clamp(2, most));
        assert_eq!(repairing, in_use.clamp(1, most));
        assert_eq!(threshold, (in_use / 2).max(2), "Reno's (RFC 5681, equation 4)");
        assert_eq!(Span::from_micros(period), node.period(), "{kernel:?} {node:?}");
        assert_eq!(Some(Span::from_micros(srtt)), node.round_trip(), "{kernel:?} {node:?}");
        assert_eq!(losses as f64 / sent as f64, node.loss(), "{kernel:?} {node:?}");
        assert_eq!(most, u64::from(node.max_window()), "{kernel:?} {node:?}");
        match node.spacing(*window) {
            None => assert_eq!(rate, 0),
            // Bytes a second, and microseconds a segment, both rounded down.
            Some(spacing) => {
                let window = u64::from(*window).clamp(1, most);
                let exact = window * SEGMENT * 1_000_000 / (period + srtt);
                assert_eq!(rate, exact.max(1));
                let apart = SEGMENT as f64 / rate as f64;
                let rounding = 1.1e-6 + apart / rate as f64;
                assert!((apart - spacing.as_secs_f64()).abs() <= rounding, "{kernel:?} {node:?}");
                // No segment is put off for longer than a period and a round trip.
                assert!(apart <= (period + srtt) as f64 / 1e6 * (1.0 + 1.0 / rate as f64));
            }
        }
    }
    let held = rows.iter().filter(|row| row.window > row.node.max_window()).count();
    assert!(held > rows.len() / 10, "{held}");
    let waiting = rows.iter().filter(|row| row.node.period() > Span::ZERO).count();
    assert!(waiting > rows.len() / 5 && waiting < rows.len() * 4 / 5, "{waiting}");
}
