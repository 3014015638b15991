//! The lab's metrics compared with an independent computation: ages from the packets that arrive,
//! backlog and rates from the time series. Scenarios are random, with starvation, outages, start
//! and stop.

#[path = "common/scenarios.rs"]
mod scenarios;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::rc::Rc;

use freshline_core::link::Direction;
use freshline_core::unit::{Span, Time};
use freshline_core::wire::Message;
use freshline_lab::run::Metric;
use freshline_lab::scenario::{Built, Scenario};
use freshline_lab::series::{Csv, Series};
use freshline_lab::world::{Body, Carrier, Flow, Leg};
use proptest::prelude::*;
use scenarios::{measured, scenario, value};

/// One `[[flow]]`; times are in quarters of a second.
#[derive(Debug, Clone)]
struct Plan {
    traffic: &'static str,
    path: &'static str,
    count: u64,
    start: u64,
    apart: u64,
    stop: Option<u64>,
}

/// Times in quarters of a second.
#[derive(Debug, Clone)]
struct Whole {
    duration: u64,
    warm_up: u64,
    rate_kbps: u64,
    queue: u64,
    /// When the link carries almost nothing.
    outage: Option<(u64, u64)>,
    seed: u64,
    flows: Vec<Plan>,
}

const QUARTER: Span = Span::from_millis(250);

fn plan() -> impl Strategy<Value = Plan> {
    let updates = prop::sample::select(vec![
        r#"updates = { law = "fixed", rate = "2/s", payload = "100B" }"#,
        r#"updates = { law = "fixed", rate = "40/s", payload = "400B" }"#,
        r#"updates = { law = "fixed", rate = "100/s", payload = "300B" }"#,
        r#"updates = { law = "poisson", rate = "20/s", payload = "100B", ack = "0B" }"#,
        r#"updates = { law = "poisson", rate = "60/s", payload = "900B" }"#,
        r#"updates = { law = "acp+d", payload = "200B" }"#,
        r#"updates = { law = "lazy", payload = "500B" }"#,
        r#"updates = { law = "tenth", payload = "100B" }"#,
        r#"tcp = { control = "cubic" }"#,
        r#"tcp = { control = "reno", rate = "50kbit", updates = true, block = "400B" }"#,
        r#"cross_traffic = { pattern = "on-off", rate = "600kbit", size = "700B", on = "1s", off = "1s" }"#,
    ]);
    let path = prop::sample::select(vec![
        r#"["link"]"#,
        r#"["link"]"#,
        r#"["link"]"#,
        r#"["link", "lossy"]"#,
        // Delivers nothing.
        r#"["link", "dead"]"#,
        // Delivers, and no ack comes back.
        r#"["deaf", "link"]"#,
    ]);
    let apart = prop::sample::select(vec![0, 1, 10]);
    (updates, path, 1u64..4, 0u64..40, apart, prop::option::of(1u64..30)).prop_map(
        |(traffic, path, count, start, apart, lasts)| {
            // Half of the flows begin with the run.
            let start = start.saturating_sub(20);
            let stop = lasts.map(|lasts| start + apart * (count - 1) + lasts);
            Plan { traffic, path, count, start, apart, stop }
        },
    )
}

fn whole() -> impl Strategy<Value = Whole> {
    let outage = prop::option::of((0u64..40, 1u64..40).prop_map(|(at, lasts)| (at, at + lasts)));
    let link = (50u64..800, 1u64..30, outage);
    let flows = prop::collection::vec(plan(), 1..5);
    (40u64..60, 0u64..30, link, any::<u32>(), flows).prop_map(
        |(duration, warm_up, (rate_kbps, queue, outage), seed, flows)| Whole {
            duration,
            warm_up,
            rate_kbps,
            queue,
            outage,
            seed: seed.into(),
            flows,
        },
    )
}

impl Whole {
    fn text(&self) -> String {
        let Self { duration, warm_up, rate_kbps, queue, outage, seed, flows } = self;
        let time = |quarters: u64| format!("{}ms", quarters * 250);
        let change = outage.map_or(String::new(), |(from, until)| {
            format!(
                "change = [{{ at = \"{}\", rate = \"1kbit\" }}, {{ at = \"{}\", rate = \
                 \"{rate_kbps}kbit\" }}]",
                time(from),
                time(until)
            )
        });
        let mut text = format!(
            "title = \"random\"\nduration = \"{}\"\nwarm_up = \"{}\"\nseed = {seed}\n\
             [[link]]\nname = \"link\"\n{change}\n\
             forward = {{ rate = \"{rate_kbps}kbit\", delay = \"20ms\", queue = \"{queue}p\" }}\n\
             [[link]]\nname = \"lossy\"\nforward = {{ delay = \"1ms\", loss = 0.3 }}\n\
             [[link]]\nname = \"dead\"\nforward = {{ delay = \"1ms\", loss = 1.0 }}\n\
             reverse = {{ delay = \"1ms\" }}\n\
             [[link]]\nname = \"deaf\"\nforward = {{ delay = \"1ms\" }}\n\
             reverse = {{ delay = \"1ms\", loss = 1.0 }}\n",
            time(*duration),
            time(*warm_up),
        );
        for (number, Plan { traffic, path, count, start, apart, stop }) in flows.iter().enumerate()
        {
            let stop = stop.map_or(String::new(), |stop| format!("stop = \"{}\"\n", time(stop)));
            text += &format!(
                "[[flow]]\nname = \"f{number}\"\npath = {path}\ncount = {count}\nstart = \"{}\"\n\
                 start_interval = \"{}\"\n{stop}{traffic}\n",
                time(*start),
                time(*apart),
            );
        }
        text
    }

    /// A flow's start, and its measured time, in quarters; empty where it has none.
    fn times(&self, plan: &Plan, number: u64) -> (u64, u64, u64) {
        let start = plan.start + plan.apart * number;
        let until = plan.stop.unwrap_or(self.duration).min(self.duration);
        let from = start.max(self.warm_up);
        (start, from, until.max(from))
    }
}

fn at(quarters: u64) -> Time {
    Time::ZERO + QUARTER * quarters
}

/// Updates that arrived, by flow: when, and when they were generated.
fn arrivals(scenario: &Scenario) -> (Built, Vec<Vec<(Time, Time)>>) {
    let mut built = scenario.build(0).unwrap();
    let last =
        built.world.flows().iter().map(|routed| routed.legs[routed.forward_legs as usize - 1]);
    let last: Vec<Leg> = last.collect();
    let mut all = vec![Vec::new(); last.len()];
    built.world.run_watched(Time::ZERO + scenario.duration, |left| {
        let flow = left.parcel.flow as usize;
        let Carrier::Hop(hop) = left.carrier else { return };
        if let (Body::Update(number), Flow::Updates(updates)) = (left.parcel.load.body, left.flow)
            && let Some(Message::Update(update)) = updates.message(number)
            && left.parcel.direction == Direction::Forward
            && last[flow] == Leg::Hop(hop as u32)
        {
            all[flow].push((
                left.at,
                update
                    .frames
                    .state()
                    .map_or(update.sent_at, |(id, _)| id.generated_at(update.sent_at)),
            ));
        }
    });
    (built, all)
}

/// The age of one flow in its measured time.
struct Ages {
    mean: f64,
    peaks: Vec<f64>,
    /// From which age to which it grew.
    teeth: Vec<(f64, f64)>,
}

impl Ages {
    fn of(arrivals: &[(Time, Time)], start: Time, from: Time, until: Time) -> Self {
        let (mut newest, mut since) = (start, from);
        let (mut area, mut peaks, mut teeth) = (0.0, Vec::new(), Vec::new());
        let age = |now: Time, newest: Time| now.since(newest).as_secs_f64();
        let mut tooth = |newest: Time, since: Time, now: Time| {
            let (low, high) = (age(since, newest), age(now, newest));
            area += (high * high - low * low) / 2.0;
            teeth.push((low, high));
        };
        for &(now, generated_at) in arrivals.iter().filter(|(now, _)| *now <= until) {
            if generated_at <= newest {
                continue;
            }
            // An arrival at the end of the warm-up belongs to it.
            if now > from {
                tooth(newest, since, now);
                peaks.push(age(now, newest));
                since = now;
            }
            newest = generated_at;
        }
        tooth(newest, since, until);
        Self { mean: area / until.since(from).as_secs_f64(), peaks, teeth }
    }

    /// How much of the time the age is at most this.
    fn fraction_up_to(&self, age: f64) -> f64 {
        let below = |(low, high): &(f64, f64)| (high.min(age) - low).max(0.0);
        let whole: f64 = self.teeth.iter().map(|(low, high)| high - low).sum();
        self.teeth.iter().map(below).sum::<f64>() / whole
    }

    /// The age that is not exceeded for this part of the time.
    fn quantile(&self, q: f64) -> f64 {
        let (mut low, mut high) = (0.0, self.teeth.iter().fold(0.0, |max, tooth| tooth.1.max(max)));
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if self.fraction_up_to(middle) >= q { high = middle } else { low = middle }
        }
        high
    }
}

/// A table in memory.
#[derive(Clone, Default)]
struct Table(Rc<RefCell<Vec<u8>>>);

impl Write for Table {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The series by flow's name and number, a row a quarter: the values by column, if known.
type Rows = BTreeMap<(String, u64), Vec<BTreeMap<String, f64>>>;

fn series(scenario: &Scenario) -> Rows {
    let mut built = scenario.build(0).unwrap();
    let mut tables = BTreeMap::new();
    let mut series = Series::new(scenario, &built, QUARTER, |name, columns| {
        let table: &mut Table = tables.entry(name.to_owned()).or_default();
        Csv::new(table.clone(), columns)
    })
    .unwrap();
    while built.world.now() < Time::ZERO + scenario.duration {
        built.world.run_until(series.next_at());
        series.on_interval(&built.world).unwrap();
    }
    series.finish().unwrap();
    let mut rows = Rows::new();
    for (name, Table(bytes)) in tables {
        let Some(name) = name.strip_prefix("flow-") else { continue };
        let text = String::from_utf8(bytes.borrow().clone()).unwrap();
        let mut lines = text.lines();
        let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
        for line in lines {
            let values = columns.iter().zip(line.split(','));
            let known = values.filter(|(_, value)| !value.is_empty());
            let row: BTreeMap<String, f64> =
                known.map(|(key, value)| ((*key).to_owned(), value.parse().unwrap())).collect();
            rows.entry((name.to_owned(), row["number"] as u64)).or_default().push(row);
        }
    }
    rows
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn jain(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    values.iter().sum::<f64>().powi(2) / (values.len() as f64 * squares)
}

/// The report's number, which must be present exactly if one is expected.
fn check(
    metrics: &[Metric],
    (name, of): (&str, &str),
    expected: Option<f64>,
    tolerance: f64,
) -> Result<(), TestCaseError> {
    let told = metrics.iter().find(|metric| metric.name == name && metric.of == of);
    let told = told.map(|metric| metric.value);
    match (told, expected) {
        (None, None) => Ok(()),
        (Some(told), Some(expected)) => {
            let is_near = (told - expected).abs() <= tolerance * expected.abs() + 1e-7;
            prop_assert!(is_near, "{name} of {of}: {told}, and by the events {expected}");
            Ok(())
        }
        _ => {
            prop_assert!(false, "{name} of {of}: {told:?}, and by the events {expected:?}");
            Ok(())
        }
    }
}

/// The mean of the values, if any.
fn mean_of(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| mean(values))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_metric_equals_its_computation_from_events_and_series(whole in whole()) {
        let text = whole.text();
        let scenario = scenario(&text, &[]).unwrap();
        let metrics = measured(&text, &[]);
        let (built, arrivals) = arrivals(&scenario);
        let rows = series(&scenario);
        for (index, plan) in whole.flows.iter().enumerate() {
            let name = format!("f{index}");
            let first = built.flows[index].start;
            let (mut ages, mut by_column, mut never) = (Vec::new(), BTreeMap::new(), 0.0);
            for number in 0..plan.count {
                let (start, from, until) = whole.times(plan, number);
                let arrived = &arrivals[first + number as usize];
                never += f64::from(u8::from(arrived.is_empty() && start < whole.duration));
                if from == until {
                    continue;
                }
                ages.push(Ages::of(arrived, at(start), at(from), at(until)));
                // Row n has the events after n quarters, until n + 1; the first those at zero too.
                // Events at the end of the warm-up belong to it, those at a start to the flow.
                let rows = &rows[&(name.clone(), number)];
                let at_start = from.checked_sub(1).filter(|_| from > whole.warm_up);
                let at_start = at_start.and_then(|row| rows[row as usize].get("updates_per_s"));
                let rows = &rows[from as usize..until as usize];
                for column in
                    ["age_s", "backlog", "updates_per_s", "goodput_bps", "throughput_bps"]
                {
                    let values: Vec<f64> =
                        rows.iter().filter_map(|row| row.get(column).copied()).collect();
                    if !values.is_empty() {
                        prop_assert_eq!(values.len(), rows.len(), "{} has gaps", column);
                        let before = at_start.filter(|_| column == "updates_per_s");
                        let sum = values.iter().chain(before).sum::<f64>();
                        let all = by_column.entry(column).or_insert_with(Vec::new);
                        all.push(sum / values.len() as f64);
                    }
                }
            }
            let of = |metric: &'static str| (metric, name.as_str());
            let by_series = |column: &str| by_column.get(column).and_then(|all| mean_of(all));
            if plan.traffic.starts_with("cross_traffic") {
                check(&metrics, of("throughput"), by_series("throughput_bps"), 1e-6)?;
                continue;
            }
            check(&metrics, of("age_mean"), by_series("age_s"), 1e-6)?;
            if plan.traffic.starts_with("tcp") {
                check(&metrics, of("goodput"), by_series("goodput_bps"), 1e-6)?;
                continue;
            }
            let each = |value: fn(&Ages) -> f64| ages.iter().map(value).collect::<Vec<_>>();
            let means = each(|ages| ages.mean);
            check(&metrics, of("age_mean"), mean_of(&means), 1e-6)?;
            check(&metrics, of("age_p95"), mean_of(&each(|ages| ages.quantile(0.95))), 0.01)?;
            check(&metrics, of("age_p99"), mean_of(&each(|ages| ages.quantile(0.99))), 0.01)?;
            let with_peaks = ages.iter().filter(|ages| !ages.peaks.is_empty());
            let peaks: Vec<f64> = with_peaks.map(|ages| mean(&ages.peaks)).collect();
            check(&metrics, of("peak_age_mean"), mean_of(&peaks), 1e-6)?;
            let index = (means.len() > 1).then(|| jain(&means));
            check(&metrics, of("age_jain"), index, 1e-6)?;
            let has_acks = !plan.traffic.contains("ack");
            let backlog = by_series("backlog").filter(|_| has_acks);
            check(&metrics, of("backlog"), backlog, 1e-6)?;
            check(&metrics, of("updates"), by_series("updates_per_s"), 1e-6)?;
            check(&metrics, of("never_delivered"), Some(never), 0.0)?;
        }
    }
}

const STARVED: &str = r#"
title = "A source is starved from 5 to 50 s, another one for ever"
duration = "60s"
warm_up = "10s"

[[link]]
name = "link"
forward = { rate = "1mbit", delay = "5ms", queue = "1p" }
change = [{ at = "5s", rate = "1bit" }, { at = "50s", rate = "1mbit" }]

[[link]]
name = "dead"
forward = { delay = "1ms", loss = 1.0 }

[[link]]
name = "clear"
forward = { delay = "1ms" }

[[flow]]
name = "starved"
path = ["link"]
updates = { law = "fixed", rate = "50/s", payload = "100B" }

[[flow]]
name = "dead"
count = 2
path = ["dead"]
updates = { law = "fixed", rate = "10/s", payload = "100B" }

[[flow]]
name = "download"
count = 1
path = ["clear"]
tcp = { control = "cubic", file = "1MB" }

[[flow]]
name = "endless"
count = 2
start = "20s"
start_interval = "10s"
path = ["dead"]
tcp = { control = "cubic", file = "1MB" }

[[flow]]
name = "short"
path = ["clear"]
start = "20s"
stop = "25s"
updates = { law = "fixed", rate = "10/s", payload = "100B" }

[[flow]]
name = "short-load"
path = ["clear"]
start = "20s"
stop = "25s"
cross_traffic = { pattern = "constant", rate = "1mbit", size = "1000B" }
"#;

#[test]
fn a_starved_source_is_as_old_as_its_silence() {
    let metrics = measured(STARVED, &[]);
    // The age grows from 5 s at 10 s to 45 s at 50 s, and is small for the last 10 s.
    let age = value(&metrics, "age_mean", "starved");
    assert!((age / 20.0 - 1.0).abs() < 0.01, "{age} s");
    assert_eq!(value(&metrics, "never_delivered", "starved"), 0.0);
    // From 10 to 60 s after the start.
    let age = value(&metrics, "age_mean", "dead");
    assert!((age - 35.0).abs() < 1e-6, "{age} s");
    assert_eq!(value(&metrics, "never_delivered", "dead"), 2.0);
    assert!((value(&metrics, "age_jain", "dead") - 1.0).abs() < 1e-9);
}

#[test]
fn an_unfinished_download_counts_with_its_time_so_far() {
    let metrics = measured(STARVED, &[]);
    assert_eq!(value(&metrics, "unfinished", "download"), 0.0);
    assert!(value(&metrics, "completion", "download") < 1.0);
    let age = |of| metrics.iter().find(|metric| metric.name == "age_mean" && metric.of == of);
    assert_eq!(age("download"), None, "it was complete before the warm-up ended");
    // Begun at 20 and 30 s, and not done at 60 s.
    assert_eq!(value(&metrics, "unfinished", "endless"), 2.0);
    assert!((value(&metrics, "completion", "endless") - 35.0).abs() < 1e-6);
}

#[test]
fn rates_are_of_the_time_in_which_a_flow_sends() {
    let metrics = measured(STARVED, &[]);
    assert!((value(&metrics, "updates", "short") - 10.0).abs() < 0.3);
    let throughput = value(&metrics, "throughput", "short-load");
    assert!((throughput / 1e6 - 1.0).abs() < 0.01, "{throughput} bit/s");
}
