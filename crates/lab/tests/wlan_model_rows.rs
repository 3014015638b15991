//! The rows of the scenarios that compare the model with packets: each is derived again, and some
//! are run.

use freshline_core::unit::{Bytes, Span};
use freshline_core::wlan::mac::{Access, Category, Framing, Guard, Mode, Standard, Timing, Width};
use freshline_core::wlan::{Link, Reports, Round};
use freshline_lab::run::run;
use freshline_lab::scenario::{Change, Row, Scenario};

const SWEEP: &str = include_str!("../../../scenarios/wlan/model-sweep.toml");
const REPORTS: &str = include_str!("../../../scenarios/wlan/reports.toml");
const CAPACITY: &str = include_str!("../../../scenarios/wlan/capacity.toml");

fn rows(text: &str) -> Vec<Row> {
    Scenario::parse(text).unwrap().reproduce.unwrap().rows
}

fn number(row: &Row, key: &str) -> u8 {
    let value = row.set.get(key).and_then(toml::Value::as_integer);
    u8::try_from(value.unwrap_or_else(|| panic!("{}: {key}", row.what))).unwrap()
}

/// Packets/s to each station.
fn packets_a_second(row: &Row) -> f64 {
    let rate = row.set["flow.video.downlink.law"]["rate"].as_str().unwrap();
    rate.strip_suffix("mbit").unwrap().parse::<f64>().unwrap() * 1e6 / 12_000.0
}

/// The mode and the number of stations of a row, if it has both.
fn setting(row: &Row) -> (Mode, usize) {
    let mcs = row.set["cell.wifi.radio.rate"].as_str().unwrap().strip_prefix("mcs").unwrap();
    let streams = number(row, "cell.wifi.radio.streams");
    let mode = Mode::vht(mcs.parse().unwrap(), streams, Width::Mhz80, Guard::Long);
    (mode.unwrap(), number(row, "flow.video.count").into())
}

fn round((mode, stations): (Mode, usize)) -> Round {
    let best_effort = Access::EDCA.params(Category::BestEffort);
    let timing = Timing::of(Standard::Ac);
    let link = Link::new(&mode, &timing, &Framing::VHT, best_effort, Bytes::new(1500));
    Round::new(&vec![link; stations]).unwrap()
}

/// A row's value by packets.
fn measured(text: &str, row: &Row) -> f64 {
    let changes: Vec<_> = Change::each(&row.set).collect();
    let metrics = run(&Scenario::parse_with(text, &changes).unwrap(), || {}).unwrap();
    let found = metrics.iter().find(|seen| seen.name == row.metric && seen.of == row.of);
    found.unwrap_or_else(|| panic!("{}: no {}", row.what, row.metric)).value
}

#[test]
fn the_sweep_has_all_modes_and_each_row_is_the_models() {
    let rows = rows(SWEEP);
    assert_eq!(rows.len(), 237);
    for row in rows {
        let setting = setting(&row);
        let rates = vec![packets_a_second(&row); setting.1];
        let level = round(setting).free_levels(&rates).unwrap()[0];
        let stated = row.expected.unwrap();
        assert!((level / stated - 1.0).abs() < 0.01, "{}: {level} {stated}", row.what);
    }
}

#[test]
fn rows_with_reports_are_the_models() {
    let (timing, framing) = (Timing::of(Standard::Ac), Framing::VHT);
    let best_effort = Access::EDCA.params(Category::BestEffort);
    for row in rows(REPORTS) {
        let (mode, stations) = setting(&row);
        let mut reports = Reports::new(Span::from_millis(500), best_effort);
        for _ in 0..stations {
            reports = reports.with(Bytes::new(84), &mode, &timing, &framing, best_effort);
        }
        let stated = row.expected.unwrap();
        let rate = reports.rates(&round((mode, stations)), &vec![stated; stations])[0];
        let ratio = packets_a_second(&row) / rate;
        assert!((ratio - 1.0).abs() < 1e-3, "{}: {ratio}", row.what);
    }
}

#[test]
fn with_reports_the_model_is_within_5_percent_of_packets() {
    let slow = rows(REPORTS).into_iter().filter(|row| row.what.contains("10 stations"));
    for row in slow.filter(|row| !row.what.contains("MCS 9")) {
        let ratio = measured(REPORTS, &row) / row.expected.unwrap();
        assert!((ratio - 1.0).abs() < 0.05, "{}: {ratio}", row.what);
    }
}

/// Level, delay in s, and capacity in bit/s of payload at MCS 9 over 80 MHz, computed only from
/// numbers of IEEE 802.11-2016.
fn by_the_standard(streams: u8, stations: u8, packets_a_second: f64) -> (f64, f64, f64) {
    let (streams, stations) = (f64::from(streams), f64::from(stations));
    // 234 subcarriers of 8 bits at 5/6.
    let bits = 234.0 * 8.0 * 5.0 / 6.0 * streams;
    let (service, preamble) = (16.0 + 6.0 * streams, 36.0 + 4.0 * streams);
    let (before, behind) = (43.0 + 7.5 * 9.0, 16.0 + 32.0);
    let packet = 1544.0 * 8.0 * 4.0 / bits;
    let empty = preamble + 4.0 * service / bits + 2.0;
    let each = packets_a_second / 1e6;
    let span = stations * (before + empty + behind) / (1.0 - stations * each * packet);
    let level = each * span;
    let delay = span / 2.0 + empty + level * packet;
    let full = ((service + 8.0 * (63.0 * 1544.0 + 1542.0)) / bits).ceil() * 4.0;
    let capacity = 64.0 * 1472.0 * 8.0 / (before + preamble + full + behind);
    (level, delay / 1e6, capacity * 1e6)
}

#[test]
fn levels_delays_and_capacity_are_those_of_the_standards_timing() {
    let rows = rows(CAPACITY);
    assert_eq!(rows.len(), 36);
    for row in rows {
        let streams = number(&row, "cell.wifi.radio.streams");
        let stations = number(&row, "flow.video.count");
        let (level, delay, capacity) = by_the_standard(streams, stations, packets_a_second(&row));
        let expected = match &row.metric[..] {
            "level_mean" => level,
            "delay_mean" => delay,
            _ => capacity,
        };
        let stated = row.expected.unwrap();
        assert!((stated / expected - 1.0).abs() < 1e-4, "{}: {stated} {expected}", row.what);
        // Two stations suffice to show that packets agree; all are in `freshline lab reproduce`.
        if stations == 2 && streams == 1 {
            let ratio = measured(CAPACITY, &row) / expected;
            assert!((ratio - 1.0).abs() < 0.05, "{}: {ratio}", row.what);
        }
    }
}
