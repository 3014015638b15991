//! The laws of the downlink in closed loop with the model.

#[path = "common/downlink.rs"]
mod downlink;

use downlink::{DELTA, Downlink, MOST, PACKET, best_effort, goodput, link, round, vht};
use freshline_core::age::jain_index;
use freshline_core::unit::{BitRate, Bytes, Span, Time};
use freshline_core::wlan::mac::{Framing, MAX_ON_AIR, Mode, Standard, Timing};
use freshline_core::wlan::{
    Allocation, Binding, DownlinkLaw, Fixed, Limits, Linear, LinearParams, Link, Nonlinear,
    NonlinearParams, Report, StationId, gain_limit,
};
use proptest::prelude::*;

fn nonlinear(delay_ms: f64, level: f64) -> Nonlinear {
    let delay = Span::from_secs_f64(delay_ms / 1e3);
    NonlinearParams { delay, level, ..NonlinearParams::default() }.build().unwrap()
}

fn linear() -> Linear {
    LinearParams::default().build().unwrap()
}

fn optimum(stations: &[Mode], delay_ms: f64, level: f64) -> Allocation {
    let delay = Span::from_secs_f64(delay_ms / 1e3);
    round(stations).allocate(Limits { delay, level, airtime: MAX_ON_AIR }).unwrap()
}

fn is_near(level: f64, target: f64) -> bool {
    (level - target).abs() <= 0.1 * target
}

/// After how many slots every level stays within a tenth of its target, of `slots`.
fn settling<L: DownlinkLaw>(downlink: &mut Downlink<L>, targets: &[f64], slots: usize) -> usize {
    let mut settled = 0;
    for slot in 1..=slots {
        let seen = downlink.slot();
        if !seen.iter().zip(targets).all(|(report, target)| is_near(report.level, *target)) {
            settled = slot;
        }
    }
    settled
}

#[test]
fn a_frame_takes_in_the_model_what_it_takes_in_a_cell() {
    let (timing, framing) = (Timing::of(Standard::Ac), Framing::VHT);
    let before = timing.aifs(best_effort().aifsn) + best_effort().mean_backoff(timing.slot);
    for (mcs, streams) in (0..10).flat_map(|mcs| (1..=4).map(move |nss| (mcs, nss))) {
        if (mcs, streams) == (6, 3) {
            continue;
        }
        let (mode, link) = (vht(mcs, streams), link(vht(mcs, streams)));
        let mut ampdu = Bytes::ZERO;
        for level in 1..=64u32 {
            ampdu = framing.appended(ampdu, framing.mpdu(PACKET));
            let response = framing.response(&mode, level as usize);
            let cell = before + mode.duration(ampdu) + timing.sifs + response;
            let model = link.overhead + Span::from_secs_f64(link.airtime * f64::from(level));
            // Half a symbol in either direction, and the padding of the last word; a single packet
            // is acknowledged by less than a block acknowledgement.
            let apart = cell.max(model) - cell.min(model);
            let most = Span::from_nanos(2_001) + mode.rate().time_to_send(Bytes::new(3));
            assert!(level == 1 || apart <= most, "{mode:?}, {level}: {cell} {model}");
        }
    }
}

#[test]
fn a_frame_of_a_msdus_takes_in_the_model_what_it_takes_in_a_cell() {
    let (timing, framing) = (Timing::of(Standard::Ac), Framing::VHT.with_msdus(2));
    let before = timing.aifs(best_effort().aifsn) + best_effort().mean_backoff(timing.slot);
    let mpdu = framing.joined(framing.mpdu(PACKET), 1, PACKET);
    for (mcs, streams) in [(0, 1), (4, 1), (9, 1), (9, 2), (9, 4)] {
        let mode = vht(mcs, streams);
        let link = Link::new(&mode, &timing, &framing, &best_effort(), PACKET);
        let mut ampdu = Bytes::ZERO;
        for mpdus in 1..=64u32 {
            ampdu = framing.appended(ampdu, mpdu);
            let response = framing.response(&mode, mpdus as usize);
            let cell = before + mode.duration(ampdu) + timing.sifs + response;
            let packets = link.airtime * f64::from(2 * mpdus);
            let model = link.overhead + Span::from_secs_f64(packets);
            let apart = cell.max(model) - cell.min(model);
            let most = Span::from_nanos(2_001) + mode.rate().time_to_send(Bytes::new(3));
            assert!(mpdus == 1 || apart <= most, "{mode:?}, {mpdus}: {cell} {model}");
        }
    }
}

#[test]
fn levels_fluctuate_as_the_recursion_says() {
    for stations in [vec![vht(9, 1)], vec![vht(9, 2); 5]] {
        let rates = round(&stations).rates(&vec![32.0; stations.len()]);
        let law = Fixed::new(goodput(&rates[..1]));
        let mut downlink = Downlink::new(law, &stations);
        downlink.slot();
        let backoff = best_effort().backoff_deviation(Timing::of(Standard::Ac).slot);
        let expected = round(&stations).fluctuation(&rates, backoff).unwrap().round * rates[0];
        let reports: Vec<Report> = (0..20).map(|_| downlink.slot()[0]).collect();
        let mean = |what: fn(&Report) -> f64| reports.iter().map(what).sum::<f64>() / 20.0;
        let (level, deviation) = (mean(|report| report.level), mean(|report| report.deviation));
        assert!((deviation / expected - 1.0).abs() < 0.05, "{deviation} {expected}");
        assert!((level / 32.0 - 1.0).abs() < 0.01, "{level}");
    }
}

#[test]
fn from_a_cold_start_levels_settle_within_8_slots_whoever_is_there() {
    for (mcs, streams, stations) in [(0, 1), (2, 1), (4, 1), (7, 1), (9, 1), (9, 2), (9, 3)]
        .into_iter()
        .flat_map(|(mcs, nss)| [1, 2, 5, 10, 20].map(|n| (mcs, nss, n)))
    {
        // Enough for each to have some packets a round.
        let delay_ms = 2.5 + 0.75 * f64::from(stations);
        let stations = vec![vht(mcs, streams); stations as usize];
        let Ok(optimum) = round(&stations).allocate(Limits {
            delay: Span::from_secs_f64(delay_ms / 1e3),
            level: 32.0,
            airtime: MAX_ON_AIR,
        }) else {
            continue;
        };
        let mut downlink = Downlink::new(nonlinear(delay_ms, 32.0), &stations);
        let slots = settling(&mut downlink, &optimum.levels, 40);
        let case = format!("MCS {mcs}, {streams} streams, {} stations", stations.len());
        assert!(slots <= 8, "{case}: {slots} slots to {:?}", optimum.levels[0]);
        let rates = downlink.rates();
        assert!(jain_index(rates.iter().copied()).unwrap() > 0.999, "{case}");
        let bound = goodput(&optimum.rates).as_bps() as f64;
        assert!(goodput(&rates).as_bps() as f64 > 0.97 * bound, "{case}: {rates:?}");
        for _ in 0..20 {
            assert!(downlink.slot().iter().all(|report| report.loss == 0.0), "{case}");
        }
    }
}

#[test]
fn with_one_stream_less_the_nonlinear_law_settles_within_8_slots() {
    let (two, one) = (vht(9, 2), vht(9, 1));
    for (delay_ms, level) in [(5.0, 32.0), (1.2, 48.0)] {
        let mut downlink = Downlink::new(nonlinear(delay_ms, level), &[two]);
        settling(&mut downlink, &[level], 40);
        downlink.stations[0] = one;
        let target = optimum(&[one], delay_ms, level).levels[0];
        let slots = settling(&mut downlink, &[target], 40);
        assert!(slots <= 8, "{slots} slots to {target}");
    }
}

#[test]
fn the_nonlinear_law_settles_before_the_linear_one() {
    fn cold_and_changed<L: DownlinkLaw>(law: L) -> [usize; 2] {
        let mut downlink = Downlink::new(law, &[vht(9, 2)]);
        let cold = settling(&mut downlink, &[32.0], 60);
        downlink.stations[0] = vht(9, 1);
        [cold, settling(&mut downlink, &[32.0], 60)]
    }
    // Figure 4.7: from two streams to one takes the linear law seven slots, of which frames are
    // full in the first four. Of 540 Mbit/s 224 are too much, and a slot takes 32 away.
    let linear = cold_and_changed(linear());
    assert_eq!(linear[1], 7);
    let nonlinear = cold_and_changed(nonlinear(5.0, 32.0));
    assert!(nonlinear[0] < linear[0] && nonlinear[1] < linear[1], "{nonlinear:?} {linear:?}");
}

#[test]
fn c_may_be_as_many_times_what_the_law_believes_as_its_margin_says() {
    // ĉ held, only N̄ bound: z ← z + K1·(N* − γ·z) with K1 = 1, stable for γ < 2.
    let params = NonlinearParams {
        inner_gain: 1.0,
        outer_gain: 0.2,
        overhead_gain: 0.0,
        level: 20.0,
        delay: Span::from_millis(100),
        ..NonlinearParams::default()
    };
    for (mismatch, converges) in [(1.1, true), (1.7, true), (2.3, false)] {
        let mut downlink = Downlink::new(params.build().unwrap(), &[vht(9, 1)]);
        let believed = params.overhead.as_secs_f64();
        downlink.contention = mismatch * believed / link(vht(9, 1)).overhead.as_secs_f64();
        for _ in 0..60 {
            downlink.slot();
        }
        let levels: Vec<f64> = (0..20).map(|_| downlink.slot()[0].level).collect();
        let holds = levels.iter().all(|level| is_near(*level, 20.0));
        let swings = levels.windows(2).all(|two| (two[0] - two[1]).abs() > 10.0);
        assert_eq!((holds, swings), (converges, !converges), "γ = {mismatch}: {levels:?}");
    }
    assert_eq!(params.margin(), 2.0);
}

#[test]
fn c_is_found_again_when_others_take_the_channel() {
    // Figure 5.7 (b) has a change of more than ten times; here by strangers, at 15 s.
    let mut downlink = Downlink::new(nonlinear(10.0, 32.0), &[vht(9, 1)]);
    for _ in 0..30 {
        downlink.slot();
    }
    let idle = link(vht(9, 1)).overhead.as_secs_f64();
    let learnt = |downlink: &Downlink<Nonlinear>| downlink.law.law().overhead().as_secs_f64();
    assert!((learnt(&downlink) / idle - 1.0).abs() < 0.05, "{}", learnt(&downlink));
    downlink.contention = 11.0;
    for _ in 0..100 {
        downlink.slot();
    }
    assert!((learnt(&downlink) / (11.0 * idle) - 1.0).abs() < 0.05, "{}", learnt(&downlink));
    assert!(is_near(downlink.slot()[0].level, 32.0));
}

#[test]
fn a_gain_above_its_limit_makes_the_linear_law_swing() {
    let limit = gain_limit(link(vht(9, 1)), PACKET, 32.0).as_bps();
    for (part, converges) in [(0.9, true), (1.2, false)] {
        let gain = BitRate::from_bps((limit as f64 * part) as u64);
        let law = LinearParams { gain, ..LinearParams::default() }.build().unwrap();
        let mut downlink = Downlink::new(law, &[vht(9, 1)]);
        for _ in 0..100 {
            downlink.slot();
        }
        let levels: Vec<f64> = (0..20).map(|_| downlink.slot()[0].level).collect();
        let swings = levels.windows(2).all(|two| (two[0] - two[1]).abs() > 6.4);
        let holds = levels.iter().all(|level| is_near(*level, 32.0));
        assert_eq!((holds, swings), (converges, !converges), "{part}: {levels:?}");
    }
}

#[test]
fn the_linear_law_gives_equal_airtime() {
    let stations = [vht(9, 1), vht(4, 1), vht(2, 1)];
    let mut downlink = Downlink::new(linear(), &stations);
    let fastest = stations[0].rate().as_bps() as f64;
    let targets = stations.map(|station| 32.0 * station.rate().as_bps() as f64 / fastest);
    let slots = settling(&mut downlink, &targets, 200);
    assert!(slots < 150, "{slots}");
}

#[test]
fn the_third_bound_is_met_where_stations_differ() {
    let stations = [vht(0, 1), vht(9, 3)];
    let optimum = optimum(&stations, 100.0, 32.0);
    assert_eq!(optimum.binding, Binding::Share);
    let mut downlink = Downlink::new(nonlinear(100.0, 32.0), &stations);
    let slots = settling(&mut downlink, &optimum.levels, 60);
    assert!(slots <= 8, "{slots} {optimum:?}");
}

#[test]
fn stations_that_come_and_go_are_given_room_at_once() {
    let mut downlink = Downlink::new(nonlinear(10.0, 32.0), &[vht(9, 1)]);
    settling(&mut downlink, &[32.0], 20);
    for _ in 0..9 {
        downlink.join(vht(9, 1));
    }
    let levels = optimum(&[vht(9, 1); 10], 10.0, 32.0).levels;
    let slots = settling(&mut downlink, &levels, 40);
    assert!(slots <= 8, "{slots} slots to {levels:?}");
    for gone in (1..10).rev() {
        downlink.law.on_leave(downlink.now, StationId(gone));
        downlink.stations.pop();
    }
    let slots = settling(&mut downlink, &[32.0], 40);
    assert!(slots <= 8, "{slots}");
}

#[test]
fn with_a_fifth_of_the_reports_lost_levels_hold() {
    let stations = [vht(9, 2), vht(7, 1), vht(4, 1)];
    let levels = optimum(&stations, 8.0, 32.0).levels;
    let mut downlink = Downlink::new(nonlinear(8.0, 32.0), &stations);
    for slot in 0..60usize {
        let seen = downlink
            .slot_with(|station, report| ((slot * 3 + station) * 7 % 5 != 0).then_some(report));
        for (report, level) in seen.iter().zip(&levels).filter(|_| slot > 12) {
            assert!(is_near(report.level, *level), "slot {slot}: {} {level}", report.level);
        }
    }
}

#[test]
fn clients_that_report_at_other_times_still_settle_within_8_slots() {
    // A report that arrives after this fraction of a slot reflects the former rates for that part.
    const OLD_PART: [f64; 4] = [0.0, 0.3, 0.6, 0.9];
    let stations = [vht(9, 1); 4];
    let level = optimum(&stations, 5.0, 32.0).levels[0];
    let mut downlink = Downlink::new(nonlinear(5.0, 32.0), &stations);
    let mut before = downlink.slot();
    for slot in 2..40 {
        let seen = downlink.slot_with(|station, now| {
            let old = OLD_PART[station];
            Some(Report { level: old * before[station].level + (1.0 - old) * now.level, ..now })
        });
        let all_hold = seen.iter().all(|report| is_near(report.level, level));
        assert!(slot <= 8 || all_hold, "slot {slot}: {seen:?}");
        before = seen;
    }
}

#[test]
fn a_station_that_went_away_leaves_its_airtime_to_the_others() {
    let stations = [vht(9, 1); 2];
    let mut downlink = Downlink::new(nonlinear(1.6, 32.0), &stations);
    for _ in 0..20 {
        downlink.slot();
    }
    let before = downlink.rates();
    for _ in 0..3 {
        downlink.slot_with(|station, report| (station == 1).then_some(report));
    }
    assert!(downlink.rates()[0] > 0.9 * before[0], "three slots it holds");
    for _ in 0..20 {
        downlink.slot_with(|station, report| (station == 1).then_some(report));
    }
    let after = downlink.rates();
    assert!(after[0] < 0.1 * before[0] && after[1] > before[1], "{before:?} {after:?}");
}

#[test]
fn less_to_send_than_allowed_says_nothing_of_c() {
    let mut downlink = Downlink::new(nonlinear(5.0, 32.0), &[vht(9, 1)]);
    for _ in 0..20 {
        downlink.slot();
    }
    let (learnt, rates) = (downlink.law.law().overhead(), downlink.rates());
    for _ in 0..20 {
        downlink.law.on_app_limited(downlink.now, StationId(0));
        downlink.slot_with(|_, report| Some(Report { level: 2.0, ..report }));
    }
    assert_eq!(downlink.law.law().overhead(), learnt);
    // ν rises to the value that the delay allows.
    assert!((downlink.rates()[0] / rates[0] - 1.0).abs() < 0.02, "{:?}", downlink.rates());
}

#[test]
fn who_says_that_its_frames_are_small_gets_at_most_twice_its_share() {
    for honest in [1, 4] {
        let stations = vec![vht(5, 1); honest + 1];
        let delay_ms = 0.6 * (honest + 1) as f64;
        let fair = optimum(&stations, delay_ms, 32.0);
        let mut downlink = Downlink::new(nonlinear(delay_ms, 32.0), &stations);
        let small = |station, report: Report| {
            Some(if station == 0 { Report { level: 1.0, ..report } } else { report })
        };
        for _ in 0..100 {
            downlink.slot_with(small);
        }
        let seen = downlink.slot_with(small);
        // A round of n shares has n + 1, and T̄ makes all of them smaller by that.
        let part = (honest + 1) as f64 / (honest + 2) as f64;
        let level = seen[1].level / fair.levels[1];
        assert!(level > 0.9 * part, "{level} of {part}");
        let frames = DELTA / seen[1].frames;
        assert!(frames.as_millis_f64() < 1.1 * delay_ms, "{frames}");
    }
}

/// False reports that one of five stations may send.
fn lies() -> impl Strategy<Value = Report> {
    let wild = prop_oneof![Just(1.0), Just(64.0), Just(f64::NAN), 0.0..1e6f64];
    let mbps = prop_oneof![Just(0), 1..8_000u64, Just(u64::MAX / 2_000_000)];
    (wild, mbps).prop_map(|(level, mbps)| {
        let rate = BitRate::from_mbps(mbps);
        Report { level, deviation: level, frames: 1, rate, loss: level }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_closed_loop_finds_the_proportional_fair_optimum(
        mcs in prop::collection::vec(1u8..10, 2..6),
        delay_ms in 4.0..20.0f64,
        level in 8.0..48.0f64,
    ) {
        let stations: Vec<Mode> = mcs.iter().map(|mcs| vht(*mcs, 1)).collect();
        let optimum = optimum(&stations, delay_ms, level);
        let mut downlink = Downlink::new(nonlinear(delay_ms, level), &stations);
        for _ in 0..80 {
            downlink.slot();
        }
        let seen = downlink.slot();
        for (report, wanted) in seen.iter().zip(&optimum.levels) {
            prop_assert!(is_near(report.level, *wanted), "{seen:?} {optimum:?}");
            prop_assert!(report.level <= 1.1 * level && report.loss == 0.0);
        }
        let round = round(&stations);
        let bound = round.delay_bound(&downlink.rates(), MOST, 0).unwrap();
        prop_assert!(bound <= Span::from_secs_f64(1.05 * delay_ms / 1e3), "{bound}");
    }

    #[test]
    fn a_station_that_lies_does_not_raise_the_others_delay(lie in lies()) {
        let stations = [vht(9, 1); 5];
        let mut downlink = Downlink::new(nonlinear(5.0, 32.0), &stations);
        let mut slot = || {
            downlink.slot_with(|station, report| Some(if station == 0 { lie } else { report }))
        };
        for _ in 0..60 {
            slot();
        }
        for _ in 0..20 {
            let seen = slot();
            let took = DELTA / seen[1].frames;
            prop_assert!(took <= Span::from_micros(5_500), "{took} {seen:?}");
            prop_assert!(seen.iter().all(|report| report.loss == 0.0), "{seen:?}");
        }
    }

    #[test]
    fn lies_that_change_make_single_slots_long_but_not_the_mean(
        lies in prop::collection::vec(lies(), 2..10),
    ) {
        let stations = [vht(9, 1); 5];
        let mut downlink = Downlink::new(nonlinear(5.0, 32.0), &stations);
        let mut frames = 0;
        for slot in 0..100 {
            let lie = lies[slot % lies.len()];
            let seen = downlink
                .slot_with(|station, report| Some(if station == 0 { lie } else { report }));
            frames += seen[1].frames;
        }
        let mean = DELTA * 100 / frames;
        prop_assert!(mean <= Span::from_micros(5_500), "{mean}");
    }

    #[test]
    fn rates_stay_finite_whatever_is_reported(
        inputs in prop::collection::vec((0u32..4, 0u64..2_000, lies(), 0u8..6), 1..200),
    ) {
        let laws: [Box<dyn DownlinkLaw>; 2] = [Box::new(linear()), Box::new(nonlinear(5.0, 32.0))];
        for mut law in laws {
            let mut now = Time::ZERO;
            for (station, millis, report, what) in &inputs {
                now += Span::from_millis(*millis);
                let station = StationId(*station);
                match what {
                    0 => law.on_join(now, station).unwrap(),
                    1 => law.on_leave(now, station),
                    2 => law.on_app_limited(now, station),
                    _ => law.on_report(now, station, *report),
                }
                law.handle_timeout(now);
                for station in (0..4).map(StationId) {
                    // A packet takes no less than 3 µs on the air.
                    prop_assert!(law.rate(station) <= BitRate::from_mbps(4_000), "{law:?}");
                }
                prop_assert!(law.poll_timeout().is_none_or(|next| next + DELTA > now));
            }
        }
    }
}
