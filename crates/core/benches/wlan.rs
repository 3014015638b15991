//! CPU time per packet of estimating frames from kernel timestamps.
//!
//! `cargo bench -p freshline-core --features serde --bench wlan`. Stamps are those of the model at 400
//! Mbit/s: frames of 13 packets. Each estimator is measured alone and as part of its complete counter,
//! which adds sequence numbers and reports every 100 ms. The baseline is the threshold; the ratios to it
//! are printed at the end.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wlan::estimator::{
    FRAMES, FrameEstimator, FrameWeights, KernelCounterParams, LEVELS, LevelWeights,
};
use freshline_core::wlan::{Arrival, LevelCounter, NapiParams};
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// The stamps of frames of 13 packets, every 393 µs.
fn stamps() -> Vec<Time> {
    let mut napi = NapiParams::HANDSET.build(Pcg64::seed_from_u64(1)).expect("it makes sense");
    let mut stamp = |packet: u64| napi.stamp(Time::ZERO + Span::from_micros(packet / 13 * 393));
    (0..1 << 16).map(&mut stamp).collect()
}

/// Passes all stamps to an estimator.
fn estimate(estimator: &mut dyn FrameEstimator, stamps: &[Time]) {
    for stamp in stamps {
        black_box(estimator.on_packet(*stamp));
    }
}

/// Passes all stamps to a counter, as further packets.
fn count(counter: &mut dyn LevelCounter, stamps: &[Time]) {
    let rate = BitRate::from_mbps(866);
    let mut report_at = Time::ZERO;
    for (seq, stamp) in (0..).zip(stamps) {
        counter.on_packet(*stamp, Arrival { seq, stamp: *stamp, rate });
        if *stamp >= report_at {
            report_at = *stamp + Span::from_millis(100);
            black_box(counter.report(*stamp));
        }
    }
}

fn estimators(c: &mut Criterion) {
    let stamps = stamps();
    let frames: FrameWeights = toml::from_str(FRAMES).expect("weights that ship");
    let levels: LevelWeights = toml::from_str(LEVELS).expect("weights that ship");
    let params = KernelCounterParams::default();
    let mut medians = Vec::new();
    let mut group = c.benchmark_group("estimators");
    let mut measure = |name: &'static str, run: &mut dyn FnMut()| {
        let mut times = Vec::new();
        group.bench_function(name, |b| {
            b.iter_custom(|rounds| {
                let start = Instant::now();
                for _ in 0..rounds {
                    run();
                }
                let spent = start.elapsed();
                times.push(spent.as_nanos() as f64 / rounds as f64 / stamps.len() as f64);
                spent
            });
        });
        times.sort_by(f64::total_cmp);
        medians.push((name, times[times.len() / 2]));
    };
    let mut threshold = frames.threshold().expect("weights that ship");
    measure("threshold (baseline)", &mut || estimate(&mut threshold, &stamps));
    let mut logistic = frames.logistic().expect("weights that ship");
    measure("logistic", &mut || estimate(&mut logistic, &stamps));
    let counter = || params.threshold(&frames).expect("weights that ship");
    measure("counter by threshold", &mut || count(&mut counter(), &stamps));
    let counter = || params.logistic(&frames).expect("weights that ship");
    measure("counter by logistic", &mut || count(&mut counter(), &stamps));
    let counter = || params.svm(&frames, &levels).expect("weights that ship");
    measure("counter by logistic and svm", &mut || count(&mut counter(), &stamps));
    group.finish();
    let (_, baseline) = medians[0];
    for (name, nanos) in medians {
        println!("{name}: {nanos:.1} ns a packet, {:.1} times the baseline", nanos / baseline);
    }
}

criterion_group! {
    name = all;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20);
    targets = estimators
}
criterion_main!(all);
