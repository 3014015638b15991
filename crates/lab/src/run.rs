//! Runs a scenario several times in parallel, and aggregates the results.
//!
//! One thread per run. Runs are independent of each other, so that the numbers do not depend on the
//! number of threads.

mod document;
mod goodput;
mod mesh;
mod offered;
mod sampled;
mod topics;

use std::collections::BTreeMap;

use freshline_core::age::jain_index;
use freshline_core::unit::{Span, Time};
use goodput::goodput_sum;
use rayon::prelude::*;
use serde::Serialize;

use self::offered::Offered;
use self::sampled::{mean, samples};
use crate::scenario::{
    ACCESS_POINT, Built, Change, FlowConfig, Laws, LinkHops, NoLaws, Scenario, ScenarioError,
    SetError, Source, TOPOLOGY,
};
use crate::tcp::multipath::MultipathStats;
use crate::world::{
    Completion, DownlinkOutcome, ExchangeOutcome, Flow, FrameRecord, HostOutcome, Leg,
    MultipathOutcome, Parcel, Passed, Period, Routed, StreamOutcome, UpdateOutcome,
};
use freshline_core::wlan::mac::{Cell, StationStats};

pub use self::document::{Document, PointResult};
pub use self::sampled::{Sampled, confidence};

/// A number with its name, as `freshline lab run --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metric {
    /// The metric.
    pub name: &'static str,
    /// The flow or link that it belongs to.
    pub of: String,
    /// The mean over the runs.
    pub value: f64,
    /// Its unit: `s`, `1/s`, `bit/s`, `packets`, `updates`, `states`, `flows`, or `1` for a plain number.
    pub unit: &'static str,
    /// Half the width of the 95 % confidence interval; `None` with one run.
    pub ci95: Option<f64>,
}

/// A scenario at one point of its sweep.
#[derive(Debug, Clone)]
pub struct Point {
    /// The swept values, by key.
    pub set: BTreeMap<String, toml::Value>,
    /// The scenario with these values.
    pub scenario: Scenario,
}

/// The points of a scenario's sweep: all combinations, or one point without a sweep.
pub fn points<'a>(
    source: impl Into<Source<'a>>,
    changes: &[Change],
) -> Result<Vec<Point>, SetError> {
    let source = source.into();
    let base = Scenario::parse_with(source, changes)?;
    let mut combinations = vec![Vec::new()];
    for (key, values) in &base.sweep {
        if values.is_empty() {
            return Err(SetError::EmptySweep(key.clone()));
        }
        let extended = combinations.iter().flat_map(|combination: &Vec<Change>| {
            values.iter().map(move |value| {
                let change = Change::new(key.clone(), value.clone());
                combination.iter().cloned().chain([change]).collect()
            })
        });
        combinations = extended.collect();
    }
    let point = |swept: Vec<Change>| {
        let set = swept.iter().map(|change| (change.key().to_owned(), change.value().clone()));
        let all: Vec<_> = changes.iter().cloned().chain(swept.iter().cloned()).collect();
        Ok(Point { set: set.collect(), scenario: Scenario::parse_with(source, &all)? })
    };
    combinations.into_iter().map(point).collect()
}

/// Runs a scenario as often as its `runs` requires. Calls `done` after each run, from any thread.
pub fn run(scenario: &Scenario, done: impl Fn() + Sync) -> Result<Vec<Metric>, ScenarioError> {
    Ok(sample(scenario, done)?.iter().map(Sampled::metric).collect())
}

/// As [`run`], but returns the values of each run.
pub fn sample(scenario: &Scenario, done: impl Fn() + Sync) -> Result<Vec<Sampled>, ScenarioError> {
    sample_with(scenario, &NoLaws, done)
}

/// As [`sample`], with laws of the caller.
pub fn sample_with(
    scenario: &Scenario,
    laws: &dyn Laws,
    done: impl Fn() + Sync,
) -> Result<Vec<Sampled>, ScenarioError> {
    let runs: Result<Vec<Vec<Number>>, _> = (0..scenario.runs)
        .into_par_iter()
        .map(|run| {
            let measured = run_one(scenario, run, laws);
            done();
            measured
        })
        .collect();
    Ok(samples(runs?))
}

/// A number that one run measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// The metric, as in [`Metric::name`].
    pub name: &'static str,
    /// The flow, link, cell or mesh that it belongs to.
    pub of: String,
    /// Its value.
    pub value: f64,
    /// Its unit, as in [`Metric::unit`].
    pub unit: &'static str,
}

/// Runs one run of a scenario, which has the number `run`, with the caller's laws.
///
/// The same scenario, number and laws give the same numbers in the same order.
///
/// # Errors
/// Errors of [`Scenario::build_with_laws`].
pub fn run_one(
    scenario: &Scenario,
    run: u32,
    laws: &dyn Laws,
) -> Result<Vec<Number>, ScenarioError> {
    let mut built = scenario.build_with_laws(run, laws)?;
    let end = Time::ZERO + scenario.duration;
    // Without a warm-up, the events of time zero count.
    if !scenario.warm_up.is_zero() {
        built.world.run_until(Time::ZERO + scenario.warm_up);
        built.world.begin_measuring();
    }
    let offered = Offered::run(scenario, &mut built, end);
    Ok(measure(scenario, &built, &offered))
}

/// The means over runs, with their intervals, as [`run()`] reports them. The runs are in the order of
/// their numbers; a number that a run lacks is left out there.
pub fn metrics_of(runs: Vec<Vec<Number>>) -> Vec<Metric> {
    samples(runs).iter().map(Sampled::metric).collect()
}

/// The frames of downlinks that locate their bottleneck, in the order of flows, from the end of
/// the warm-up on.
pub fn frames(scenario: &Scenario, run: u32) -> Result<Vec<Vec<FrameRecord>>, ScenarioError> {
    let mut built = scenario.build(run)?;
    built.world.run_until(Time::ZERO + scenario.warm_up);
    built.world.downlinks_mut().for_each(|downlink| downlink.keep_records());
    built.world.run_until(Time::ZERO + scenario.duration);
    let downlinks = built.world.flows().iter().filter_map(|routed| routed.flow.downlink());
    Ok(downlinks.map(|downlink| downlink.records().to_vec()).collect())
}

fn measure(scenario: &Scenario, built: &Built, offered: &Offered) -> Vec<Number> {
    let now = built.world.now();
    let flows = built.world.flows();
    let mut all = Vec::new();
    for (config, range) in scenario.flows.iter().zip(&built.flows) {
        let mut group = Group { of: &config.name, measured: &mut all };
        let all_alike = || flows[range.clone()].iter().map(|routed| &routed.flow);
        let updates = outcomes(all_alike().filter_map(Flow::updates), |it| it.outcome(now));
        let topics = outcomes(all_alike().filter_map(Flow::topics), |it| it.outcome(now));
        let streams = outcomes(all_alike().filter_map(Flow::stream), |it| it.outcome(now));
        let multipaths = outcomes(all_alike().filter_map(Flow::multipath), |it| it.outcome(now));
        let exchanges = outcomes(all_alike().filter_map(Flow::exchange), |it| it.outcome(now));
        let downlinks = outcomes(all_alike().filter_map(Flow::downlink), |it| it.outcome(now));
        let cross = outcomes(all_alike().filter_map(Flow::cross), |it| it.throughput_bps(now));
        // None of these flows.
        if range.is_empty() {
            continue;
        }
        let dropped: u64 = flows[range.clone()].iter().map(|flow| flow.dropped).sum();
        group.add("drops", "packets", dropped as f64);
        group.stations(flows[range.clone()].iter().filter_map(|flow| station(built, flow)), now);
        if !updates.is_empty() {
            group.updates(&updates);
            on_links(scenario, built, config, range.start, &mut all);
            continue;
        }
        if !topics.is_empty() {
            group.topics(&topics);
            topics::each(&config.name, &topics, &mut all);
            continue;
        }
        if !streams.is_empty() {
            group.streams(&streams);
            mesh::by_hops(config, built, range.clone(), &streams, &mut all);
        }
        let mut group = Group { of: &config.name, measured: &mut all };
        if !multipaths.is_empty() {
            group.multipaths(&multipaths);
            of_subflows(&config.name, &multipaths, &mut all);
            continue;
        }
        if !exchanges.is_empty() {
            group.exchanges(&exchanges);
        }
        if !downlinks.is_empty() {
            group.downlinks(&downlinks);
        }
        group.mean("throughput", "bit/s", cross.iter().copied());
    }
    for (config, cell) in scenario.cells.iter().zip(built.world.cells()) {
        Group { of: &config.name, measured: &mut all }.cell(cell, now);
        let access_point = &cell.stats().stations[ACCESS_POINT as usize];
        let of = &format!("{}/ap", config.name);
        Group { of, measured: &mut all }.stations([access_point], now);
    }
    for (config, mesh) in scenario.meshes.iter().zip(built.world.meshes()) {
        mesh::nodes(&config.name, mesh, &mut all);
    }
    for (config, hops) in scenario.links.iter().zip(&built.links) {
        let mut group = Group { of: &config.name, measured: &mut all };
        group.link(built, hops);
        offered.overload("overload", &hops.forward, &mut group);
        offered.overload("reverse_overload", &hops.reverse, &mut group);
        offered.load("load", &hops.forward, &mut group);
        offered.load("reverse_load", &hops.reverse, &mut group);
    }
    offered.cells(scenario, &mut all);
    Group { of: TOPOLOGY, measured: &mut all }.link(built, &built.topology);
    all
}

/// The outcomes of flows of one kind.
fn outcomes<'a, F: 'a, O>(flows: impl Iterator<Item = &'a F>, of: impl Fn(&F) -> O) -> Vec<O> {
    flows.map(of).collect()
}

/// The station at which a flow begins; `None` outside of cells.
fn station<'a>(built: &'a Built, flow: &Routed) -> Option<&'a StationStats> {
    let Some(Leg::Air { cell, from, .. }) = flow.legs.first() else { return None };
    Some(&built.world.cells()[*cell as usize].stats().stations[*from as usize])
}

/// The mean number of a flow's updates in queues or in transmission on its forward path, without
/// propagation. For the first one of equal flows.
fn on_links(
    scenario: &Scenario,
    built: &Built,
    config: &FlowConfig,
    flow: usize,
    all: &mut Vec<Number>,
) {
    let Routed { flow, passed, .. } = &built.world.flows()[flow];
    let Some(updates) = flow.updates() else { return };
    let Some(seconds) = updates.measured(built.world.now()).map(Span::as_secs_f64) else { return };
    let mut legs = passed.iter();
    for name in config.path.iter().filter(|_| !config.reverse && !config.each_hop) {
        let link = scenario.links.iter().find(|link| link.name == *name);
        // A cell is one leg, without a propagation delay.
        let (count, delay) = link.map_or((1, Span::ZERO), |link| (link.count, link.forward.delay));
        let held = |passed: &Passed| {
            let on_the_line = delay.as_secs_f64() * passed.packets as f64;
            (passed.time.as_secs_f64() - on_the_line) / seconds
        };
        let value = legs.by_ref().take(count as usize).map(held).sum();
        let of = format!("{}@{name}", config.name);
        all.push(Number { name: "backlog", of, value, unit: "updates" });
    }
}

/// The numbers of each subflow, named by the flow and the path's number, from 1.
fn of_subflows(name: &str, flows: &[MultipathOutcome], all: &mut Vec<Number>) {
    let most = flows.iter().map(|flow| flow.subflows.len()).max().unwrap_or(0);
    for path in 0..most {
        let of = &format!("{name}/{}", path + 1);
        let subflows: Vec<_> = flows.iter().filter_map(|flow| flow.subflows.get(path)).collect();
        let mut group = Group { of, measured: all };
        group.mean("goodput", "bit/s", subflows.iter().map(|subflow| subflow.goodput_bps));
        group.mean_time("rtt_mean", &subflows, |subflow| Some(subflow.rtt?.mean));
        group.mean_time("rtt_p95", &subflows, |subflow| Some(subflow.rtt?.p95));
        let again = subflows.iter().map(|subflow| Some(subflow.retransmitted));
        group.mean("retransmitted", "1", again);
        group.mean(
            "device_queue_mean",
            "packets",
            subflows.iter().map(|subflow| subflow.device_queue_mean),
        );
        group.mean("max_run", "packets", subflows.iter().map(|subflow| subflow.max_run));
    }
}

type Count = fn(&MultipathStats) -> u64;

/// The counters of a stream over several paths.
const MULTIPATH_COUNTS: [(&str, Count); 6] = [
    ("copies", |stats| stats.copies),
    ("opportunistic", |stats| stats.opportunistic),
    ("reinjections", |stats| stats.reinjections),
    ("penalties", |stats| stats.penalties),
    ("window_blocked", |stats| stats.blocked),
    ("blocks_dropped", |stats| stats.refused),
];

/// Adds the numbers of a group of flows, or of a link.
struct Group<'a> {
    of: &'a str,
    measured: &'a mut Vec<Number>,
}

impl Group<'_> {
    fn updates(&mut self, flows: &[UpdateOutcome]) {
        self.mean_time("age_mean", flows, |flow| Some(flow.age?.mean));
        self.mean_time("age_p95", flows, |flow| Some(flow.age?.p95));
        self.mean_time("age_p99", flows, |flow| Some(flow.age?.p99));
        self.mean_time("peak_age_mean", flows, |flow| flow.age?.peak_mean);
        self.mean_time("source_age_mean", flows, |flow| flow.source_age_mean);
        self.mean_time("rtt_mean", flows, |flow| flow.rtt_mean);
        self.mean_time("rtt_p99", flows, |flow| flow.rtt_p99);
        self.mean("backlog", "updates", flows.iter().map(|flow| flow.backlog));
        self.mean("updates", "1/s", flows.iter().map(|flow| flow.updates_per_s));
        self.mean("packets", "1/s", flows.iter().map(|flow| flow.packets_per_s));
        self.goodputs(flows.iter().map(|flow| (flow.goodput_bps, flow.measured)));
        let fresh = || flows.iter().map(|flow| flow.fresh_per_s);
        self.jain("updates_jain", fresh());
        self.slowest(fresh().flatten().collect());
        self.jain("age_jain", flows.iter().map(|flow| Some(flow.age?.mean.as_secs_f64())));
        self.count("never_delivered", flows.iter().map(|flow| flow.never_delivered));
    }

    fn streams(&mut self, flows: &[StreamOutcome]) {
        self.mean_time("age_mean", flows, |flow| Some(flow.age?.mean));
        self.mean_time("age_p95", flows, |flow| Some(flow.age?.p95));
        self.mean_time("rtt_mean", flows, |flow| Some(flow.rtt?.mean));
        self.mean_time("rtt_p50", flows, |flow| Some(flow.rtt?.p50));
        self.mean_time("rtt_p95", flows, |flow| Some(flow.rtt?.p95));
        self.mean_time("rtt_max", flows, |flow| Some(flow.rtt?.max));
        self.mean_time("source_age_mean", flows, |flow| flow.source_age_mean);
        self.completions(flows.iter().filter_map(|flow| flow.completion));
        self.goodputs(flows.iter().map(|flow| (flow.goodput_bps, flow.measured)));
        self.mean("retransmitted", "1", flows.iter().map(|flow| Some(flow.retransmitted)));
        self.jain("goodput_jain", flows.iter().map(|flow| flow.goodput_bps));
        self.count("never_delivered", flows.iter().map(|flow| flow.never_delivered));
        self.hosts(flows.iter().map(|flow| &flow.host));
    }

    fn multipaths(&mut self, flows: &[MultipathOutcome]) {
        self.completions(flows.iter().filter_map(|flow| flow.completion));
        self.mean_time("page_mean", flows, |flow| flow.page_mean);
        let videos = || flows.iter().map(|flow| flow.video);
        self.mean("bitrate_mean", "bit/s", videos().map(|video| Some(video?.bitrate)));
        self.mean("switches", "1", videos().map(|video| Some(video?.switches as f64)));
        self.mean("stalls", "1", videos().map(|video| Some(video?.stalls as f64)));
        self.mean_time("stall_time", flows, |flow| Some(flow.video?.stalled));
        self.mean_time("reorder_mean", flows, |flow| flow.reorder_mean);
        self.mean_time("reorder_p95", flows, |flow| flow.reorder_p95);
        self.goodputs(flows.iter().map(|flow| (flow.goodput_bps, flow.measured)));
        self.count("never_delivered", flows.iter().map(|flow| flow.never_delivered));
        for (name, of) in MULTIPATH_COUNTS {
            self.mean(name, "packets", flows.iter().map(|flow| Some(of(&flow.stats) as f64)));
        }
    }

    /// Adds the host-queue measurements of streams.
    fn hosts<'o>(&mut self, hosts: impl Iterator<Item = &'o HostOutcome> + Clone) {
        self.mean("occupancy_mean", "1", hosts.clone().map(|host| host.occupancy_mean));
        self.mean("queue_per_window", "1", hosts.clone().map(|host| host.queue_per_window));
        self.mean("bulk", "1", hosts.clone().map(|host| host.bulk));
        let bulk_after = hosts.map(|host| host.bulk_after.map(Span::as_secs_f64));
        self.mean("bulk_after", "s", bulk_after);
    }

    fn exchanges(&mut self, flows: &[ExchangeOutcome]) {
        self.mean_time("response_mean", flows, |flow| flow.response_mean);
        self.mean_time("response_p95", flows, |flow| flow.response_p95);
        self.mean("responses", "1/s", flows.iter().map(|flow| flow.responses_per_s));
        self.mean_time("rtt_mean", flows, |flow| Some(flow.stream.rtt?.mean));
        let streams = || flows.iter().map(|flow| &flow.stream);
        self.goodputs(streams().map(|stream| (stream.goodput_bps, stream.measured)));
        self.count("never_delivered", streams().map(|stream| stream.never_delivered));
        self.mean("retransmitted", "1", streams().map(|stream| Some(stream.retransmitted)));
        self.hosts(flows.iter().map(|flow| &flow.host));
    }

    fn downlinks(&mut self, flows: &[DownlinkOutcome]) {
        self.mean_time("delay_mean", flows, |flow| flow.delay_mean);
        self.mean_time("delay_p50", flows, |flow| flow.delay_p50);
        self.mean_time("delay_p95", flows, |flow| flow.delay_p95);
        self.mean_time("round_mean", flows, |flow| flow.round_mean);
        self.mean("level_mean", "packets", flows.iter().map(|flow| flow.level_mean));
        self.mean("level_deviation", "packets", flows.iter().map(|flow| flow.level_deviation));
        self.mean_time("level_time_constant", flows, |flow| flow.level_time_constant);
        self.mean("report_deviation", "packets", flows.iter().map(|flow| flow.report_deviation));
        self.goodputs(flows.iter().map(|flow| (flow.goodput_bps, flow.measured)));
        self.jain("goodput_jain", flows.iter().map(|flow| flow.goodput_bps));
        self.mean("loss", "1", flows.iter().map(|flow| flow.loss));
        self.mean("frames_f1", "1", flows.iter().map(|flow| flow.frames_f1));
        self.mean("level_accuracy", "1", flows.iter().map(|flow| flow.level_accuracy));
        self.mean("level_rmse", "packets", flows.iter().map(|flow| flow.level_rmse));
        if let Some(settled) = flows.iter().map(|flow| flow.settled).collect::<Option<Vec<_>>>() {
            let last = settled.into_iter().max().unwrap_or(Span::ZERO);
            self.add("settling_time", "s", last.as_secs_f64());
        }
        let overheads = flows.iter().map(|flow| flow.belief.overhead);
        self.mean("overhead", "s", overheads.map(|it| it.map(Span::as_secs_f64)));
        self.mean("offered_max", "bit/s", flows.iter().map(|flow| flow.offered_max));
        self.mean("offered_ratio", "1", flows.iter().map(|flow| flow.offered_ratio));
        self.mean("limited", "1", flows.iter().map(|flow| flow.limited));
        self.mean("control_level", "packets", flows.iter().map(|flow| flow.belief.control_level));
        self.mean("slowest_target", "packets", flows.iter().map(|flow| flow.belief.slowest_target));
        let located = || flows.iter().map(|flow| flow.located);
        self.mean("located", "1", located().map(|located| located?.right));
        self.mean("located_slots", "1", located().map(|located| located?.slots));
        self.mean("located_f1", "1", located().map(|located| located?.f1));
        if let Some(slowest) = located().filter_map(|located| located?.slowest_move).max() {
            self.add("located_after", "s", slowest.as_secs_f64());
        }
        let by_settings = || located().map(|located| located?.by_settings);
        self.mean("located_set", "1", by_settings().map(|it| it?.right));
        self.mean("located_still", "1", by_settings().map(|it| it?.right_when_still));
        if let Some(slowest) = by_settings().filter_map(|it| it?.slowest_move).max() {
            self.add("located_set_after", "s", slowest.as_secs_f64());
        }
    }

    /// Counted since time zero, warm-up included.
    fn stations<'s>(
        &mut self,
        stations: impl IntoIterator<Item = &'s StationStats> + Clone,
        now: Time,
    ) {
        let each = || stations.clone().into_iter();
        let seconds = now.since(Time::ZERO).as_secs_f64();
        let airtime = |station: &StationStats| Some(station.airtime.as_secs_f64() / seconds);
        self.mean("retries", "1", each().map(|station| Some(station.retry_rate())));
        self.mean("collisions", "1", each().map(|station| Some(station.collision_rate())));
        self.mean("airtime", "1", each().map(airtime));
    }

    /// Counted since time zero, warm-up included.
    fn cell(&mut self, cell: &Cell<Parcel>, now: Time) {
        let sum = |of: fn(&StationStats) -> u64| cell.stats().sum(of) as f64;
        let attempts = sum(|station| station.attempts).max(1.0);
        self.add("retries", "1", sum(|station| station.retries) / attempts);
        let transmissions = sum(|station| station.transmissions).max(1.0);
        self.add("collisions", "1", sum(|station| station.collisions) / transmissions);
        let busy = cell.stats().busy.as_secs_f64();
        self.add("utilisation", "1", busy / now.since(Time::ZERO).as_secs_f64());
    }

    fn link(&mut self, built: &Built, hops: &LinkHops) {
        let now = built.world.now();
        let names: [(&[usize], _, _, _, _); 2] = [
            (&hops.forward, "sojourn_mean", "utilisation", "drops", "queue_mean"),
            (
                &hops.reverse,
                "reverse_sojourn_mean",
                "reverse_utilisation",
                "reverse_drops",
                "reverse_queue_mean",
            ),
        ];
        for (hops, sojourn, utilisation, drops, queue) in names {
            if hops.is_empty() {
                continue;
            }
            let each = hops.iter().map(|&hop| &built.world.hops()[hop]);
            let sojourns = each.clone().map(|hop| &hop.stats().sojourn);
            self.mean(sojourn, "s", sojourns.clone().map(|wait| Some(wait.mean().as_secs_f64())));
            // Little's law: the mean number of queued packets is the arrival rate times the mean
            // sojourn time.
            let seconds = now.since(Time::ZERO).as_secs_f64();
            let waiting =
                sojourns.map(|wait| wait.mean().as_secs_f64() * wait.count() as f64 / seconds);
            self.mean(queue, "packets", waiting.map(Some));
            let used = each.clone().map(|hop| hop.utilisation(Time::ZERO, now));
            self.mean(utilisation, "1", used.map(Some));
            let dropped: u64 = each.map(|hop| hop.stats().drops.total().get()).sum();
            self.add(drops, "packets", dropped as f64);
        }
    }

    /// Adds the mean of the flows' goodputs, each over its own measured time, and their sum.
    fn goodputs(&mut self, flows: impl Iterator<Item = (Option<f64>, Option<Period>)> + Clone) {
        self.mean("goodput", "bit/s", flows.clone().map(|(bps, _)| bps));
        let known = flows.filter_map(|(bps, measured)| bps.zip(measured)).collect();
        self.add("goodput_sum", "bit/s", goodput_sum(known));
    }

    /// Adds the durations of transfers, and the number of unfinished ones. These count with the
    /// time until now, which is a lower bound.
    fn completions(&mut self, all: impl Iterator<Item = Completion> + Clone) {
        self.mean("completion", "s", all.clone().map(|it| Some(it.took.as_secs_f64())));
        if all.clone().next().is_some() {
            self.count("unfinished", all.map(|it| !it.is_finished));
        }
    }

    /// Adds Jain's index of equal flows, if there are at least two.
    fn jain(&mut self, name: &'static str, shares: impl Iterator<Item = Option<f64>>) {
        let shares: Vec<f64> = shares.flatten().collect();
        let index = jain_index(shares.iter().copied()).filter(|_| shares.len() > 1);
        if let Some(index) = index {
            self.add(name, "1", index);
        }
    }

    /// Adds the minimum of the rates of equal flows over their mean, if there are at least two.
    fn slowest(&mut self, rates: Vec<f64>) {
        let all = mean(&rates);
        if rates.len() > 1 && all > 0.0 {
            self.add("slowest", "1", rates.iter().copied().fold(f64::INFINITY, f64::min) / all);
        }
    }

    /// Adds the number of flows for which this holds.
    fn count(&mut self, name: &'static str, holds: impl Iterator<Item = bool>) {
        self.add(name, "flows", holds.filter(|holds| *holds).count() as f64);
    }

    /// Adds the mean over the flows of a time.
    fn mean_time<F>(&mut self, name: &'static str, flows: &[F], of: fn(&F) -> Option<Span>) {
        self.mean(name, "s", flows.iter().map(|flow| of(flow).map(Span::as_secs_f64)));
    }

    /// Adds the mean of the known values, if there is any.
    fn mean(
        &mut self,
        name: &'static str,
        unit: &'static str,
        values: impl Iterator<Item = Option<f64>>,
    ) {
        let known: Vec<f64> = values.flatten().collect();
        if !known.is_empty() {
            self.add(name, unit, mean(&known));
        }
    }

    fn add(&mut self, name: &'static str, unit: &'static str, value: f64) {
        self.measured.push(Number { name, of: self.of.to_owned(), value, unit });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_one_by_one_give_the_metrics_of_all_together() {
        let text = crate::library::find("one-mm1-queue").unwrap();
        let short = ["runs=3", "duration=5s", "warm_up=1s", "sweep={}"];
        let short = short.map(|change| Change::parse(change).unwrap());
        let scenario = Scenario::parse_with(text.source(), &short).unwrap();
        let one_by_one = (0..3).map(|run| run_one(&scenario, run, &NoLaws).unwrap());
        assert_eq!(metrics_of(one_by_one.collect()), run(&scenario, || {}).unwrap());
    }
}
