//! The result of each topic of a flow, measured from outside of the session, with the true clock.
//!
//! ```text
//!   generated ─┬─► the source has no room          refused (records alone)
//!              ├─► delivered by the monitor        delivered
//!              ├─► a newer one was delivered       replaced
//!              └─► older than the maximum age      withheld
//! ```

use std::collections::VecDeque;

use freshline_core::age::{AgeHistogram, AgeProcess, Freshness, Integral, Ramp};
use freshline_core::unit::{Span, Time};

use super::states::{Generation, States};
use crate::world::deliveries::Deliveries;
use crate::world::measured::Measured;
use crate::world::{Delivery, Period};

/// The maximum number of pending states of a series, generated and not delivered, for topics
/// without measured delivery times: of older states, only the number is kept.
const MAX_PENDING: usize = 256;

/// The result of a topic. For a topic with keys, ages are over all keys and all time, and counts
/// and times are sums.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicOutcome {
    /// Its name.
    pub name: String,
    /// The mean true age at the monitor of the delivered state, from the flow's start on; `None`,
    /// like the other ages, without measured time.
    pub age_mean: Option<Span>,
    /// The age not exceeded during 95 % of the time.
    pub age_p95: Option<Span>,
    /// The maximum age.
    pub age_max: Option<Span>,
    /// The number of states generated, and of those replaced by the delivery of a newer one; `None`
    /// if states are sampled when updates are sent.
    pub generated: Option<[u64; 2]>,
    /// The number of states that the monitor delivered.
    pub delivered: u64,
    /// The number of records for which the source had no room; `None` for other states.
    pub refused: Option<u64>,
    /// The effects of its maximum age; `None` without one.
    pub deadline: Option<DeadlineOutcome>,
    /// The time from the generation of a state until the delivery of that state or a newer one:
    /// median, 99th percentile and maximum. A state that is pending at the end counts with its time
    /// so far if that is longer than the mean. `None` for a topic that is neither urgent nor of
    /// records, or had no states.
    pub delivery: Option<[Span; 3]>,
}

/// The effects of a maximum age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeadlineOutcome {
    /// The number of states that were older, or may have been, on arrival.
    pub withheld: u64,
    /// How often the topic became stale.
    pub alarms: u64,
    /// The total time that it was stale.
    pub stale_time: Span,
    /// The total time during which the newest delivered state was older than the maximum age
    /// without being reported stale.
    pub over: Span,
}

/// One series of states: a topic without keys, or a key.
#[derive(Debug, Clone)]
struct Series {
    topic: usize,
    age: AgeProcess,
    /// The deliveries that reset it.
    deliveries: Deliveries,
    from: Integral,
    /// The generation times of the states that are newer than the last delivered one.
    pending: VecDeque<Time>,
    /// The number of further pending states, and the number of withheld states.
    earlier: u64,
    withheld: u64,
    has_state: bool,
    stale_since: Option<Time>,
    /// The start of the interval for which time over the maximum age has not been added up.
    over_from: Time,
}

/// A topic.
#[derive(Debug, Clone)]
struct OneTopic {
    name: String,
    weight: f64,
    is_sampled: bool,
    is_timed: bool,
    is_every: bool,
    max_age: Option<Span>,
    ages: AgeHistogram,
    age_max: Span,
    generated: u64,
    replaced: u64,
    delivered: u64,
    refused: u64,
    deadline: DeadlineOutcome,
    took: Vec<Span>,
}

/// The measurement. Ages run from the flow's start, so that an age from the warm-up continues.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    pub(super) measured: Measured,
    from: Time,
    topics: Vec<OneTopic>,
    series: Vec<Series>,
}

impl Tally {
    /// A tally for the streams of `states`, with the maximum ages of topics in `max_age`.
    pub(super) fn new(period: Period, states: &States, max_age: &[Option<Span>]) -> Self {
        let topics = states.topics().iter().zip(max_age).map(|(topic, max_age)| OneTopic {
            name: topic.params.name.clone(),
            weight: topic.params.weight,
            is_sampled: topic.generation == Generation::Sampled,
            is_timed: topic.params.is_urgent || topic.params.kind.is_every(),
            is_every: topic.params.kind.is_every(),
            max_age: *max_age,
            ages: AgeHistogram::new(),
            age_max: Span::ZERO,
            generated: 0,
            replaced: 0,
            delivered: 0,
            refused: 0,
            deadline: DeadlineOutcome::default(),
            took: Vec::new(),
        });
        let series = states.streams().iter().map(|stream| {
            let age = AgeProcess::starting_at(period.from);
            Series {
                topic: stream.topic.into(),
                from: age.mark(period.from),
                age,
                deliveries: Deliveries::default(),
                pending: VecDeque::new(),
                earlier: 0,
                withheld: 0,
                has_state: false,
                stale_since: None,
                over_from: period.from,
            }
        });
        Self {
            measured: Measured::between(period),
            from: period.from,
            topics: topics.collect(),
            series: series.collect(),
        }
    }

    /// From now on the deliveries that reset an age are recorded.
    pub(super) fn record_ages(&mut self) {
        self.series.iter_mut().for_each(|series| series.deliveries.record());
    }

    /// The recorded deliveries of each series, in the order of the streams.
    pub(super) fn deliveries(&self) -> impl Iterator<Item = &[Delivery]> {
        self.series.iter().map(|series| series.deliveries.all())
    }

    /// The warm-up has ended.
    pub(super) fn begin(&mut self, now: Time) {
        self.measured.begin(now);
        self.from = self.from.max(now);
        for topic in &mut self.topics {
            (topic.ages, topic.age_max) = (AgeHistogram::new(), Span::ZERO);
            (topic.generated, topic.replaced, topic.delivered) = (0, 0, 0);
            topic.refused = 0;
            topic.deadline = DeadlineOutcome::default();
            topic.took.clear();
        }
        for series in &mut self.series {
            series.from = series.age.mark(self.from);
            series.over_from = series.over_from.max(self.from);
            series.stale_since = series.stale_since.map(|at| at.max(self.from));
        }
    }

    /// A state has been generated, except sampled ones.
    pub(super) fn on_generated(&mut self, now: Time, stream: u16) {
        let series = &mut self.series[usize::from(stream)];
        let topic = &mut self.topics[series.topic];
        if topic.is_sampled || !self.measured.has(now) {
            return;
        }
        topic.generated += 1;
        series.pending.push_back(now);
        if !topic.is_timed && series.pending.len() > MAX_PENDING {
            series.pending.pop_front();
            series.earlier += 1;
        }
    }

    /// The source had no room for the record that was generated last.
    pub(super) fn on_refused(&mut self, now: Time, stream: u16) {
        if self.measured.has(now) {
            let series = &mut self.series[usize::from(stream)];
            series.pending.pop_back();
            self.topics[series.topic].refused += 1;
        }
    }

    /// The monitor delivers a state.
    pub(super) fn on_state(&mut self, now: Time, stream: u16, generated_at: Time) {
        if !self.measured.has(now) {
            return;
        }
        let series = &mut self.series[usize::from(stream)];
        let topic = &mut self.topics[series.topic];
        let ramp = series.ramp(now, self.from);
        series.add_over(now, topic);
        let freshness = series.age.on_update(now, generated_at);
        series.deliveries.on_update(now, generated_at, freshness);
        if freshness == Freshness::Stale {
            return;
        }
        topic.record(ramp);
        topic.delivered += 1;
        series.has_state = true;
        if topic.is_sampled {
            return;
        }
        let mut passed = std::mem::take(&mut series.earlier);
        while let Some(at) = series.pending.front().copied().filter(|at| *at <= generated_at) {
            series.pending.pop_front();
            passed += 1;
            if topic.is_timed && at >= self.from {
                topic.took.push(now.since(at));
            }
        }
        topic.replaced += passed.saturating_sub(1 + std::mem::take(&mut series.withheld));
    }

    /// States of a series were older than the maximum age on arrival.
    pub(super) fn on_withheld(&mut self, now: Time, stream: u16, count: u64) {
        if self.measured.has(now) {
            let series = &mut self.series[usize::from(stream)];
            series.withheld += count;
            self.topics[series.topic].deadline.withheld += count;
        }
    }

    /// A series became stale, or recovered.
    pub(super) fn on_freshness(&mut self, now: Time, stream: u16, is_stale: bool) {
        let series = &mut self.series[usize::from(stream)];
        let topic = &mut self.topics[series.topic];
        if !self.measured.has(now) || is_stale == series.stale_since.is_some() {
            return;
        }
        series.add_over(now, topic);
        if is_stale {
            topic.deadline.alarms += 1;
            series.stale_since = Some(now);
        } else if let Some(since) = series.stale_since.take() {
            topic.deadline.stale_time += now.since(since);
        }
    }

    /// The number of series that are stale now.
    pub(super) fn stale(&self) -> usize {
        self.series.iter().filter(|series| series.stale_since.is_some()).count()
    }

    /// The ages at `now`, summed up with the weights of their topics, in s.
    pub(super) fn weighted_age(&self, now: Time) -> f64 {
        let age = |series: &Series| series.age.age(now).map_or(0.0, Span::as_secs_f64);
        self.series.iter().map(|series| self.topics[series.topic].weight * age(series)).sum()
    }

    /// The mean ages until `now`, summed up with the weights of their topics, in s; `None` without
    /// measured time.
    pub(super) fn weighted_age_mean(&self, now: Time) -> Option<f64> {
        let until = self.measured.clip(now);
        let mean = |series: &Series| {
            let age = series.age.mean_since(series.from, until)?;
            Some(self.topics[series.topic].weight * age.as_secs_f64())
        };
        self.measured.passed(now)?;
        self.series.iter().map(mean).sum()
    }

    /// The measurements until `now`, for each topic.
    pub(super) fn outcomes(&self, now: Time) -> Vec<TopicOutcome> {
        let until = self.measured.clip(now);
        let has_time = self.measured.passed(now).is_some();
        let outcome = |(place, topic): (usize, &OneTopic)| {
            let mut topic = topic.clone();
            let (mut sum, mut count) = (0u128, 0u128);
            let mut open: Vec<Span> = Vec::new();
            for series in self.series.iter().filter(|series| series.topic == place) {
                let mut series = series.clone();
                topic.record(series.ramp(until, self.from));
                series.add_over(until, &mut topic);
                let stale = series.stale_since.map(|since| until.since(since));
                topic.deadline.stale_time += stale.unwrap_or(Span::ZERO);
                let mean = series.age.mean_since(series.from, until);
                sum += u128::from(mean.unwrap_or(Span::ZERO).as_nanos());
                count += 1;
                let pending = series.pending.iter().filter(|at| **at >= self.from);
                open.extend(pending.map(|at| until.since(*at)));
            }
            // The mean of 64-bit numbers has 64 bits.
            let mean = Span::from_nanos(sum.checked_div(count).unwrap_or(0) as u64);
            TopicOutcome {
                age_mean: has_time.then_some(mean),
                age_p95: topic.ages.quantile(0.95).map(|age| age.min(topic.age_max)),
                age_max: has_time.then_some(topic.age_max),
                generated: (!topic.is_sampled).then_some([topic.generated, topic.replaced]),
                delivered: topic.delivered,
                refused: topic.is_every.then_some(topic.refused),
                deadline: topic.max_age.map(|_| topic.deadline),
                delivery: if topic.is_timed { delivery(topic.took, open) } else { None },
                name: topic.name,
            }
        };
        self.topics.iter().enumerate().map(outcome).collect()
    }
}

impl OneTopic {
    fn record(&mut self, ramp: Option<Ramp>) {
        if let Some(ramp) = ramp {
            self.ages.record(ramp);
            self.age_max = self.age_max.max(ramp.to());
        }
    }
}

impl Series {
    /// The growth of age since it was last reset, without the time before `from`.
    fn ramp(&self, now: Time, from: Time) -> Option<Ramp> {
        let ramp = self.age.ramp(now)?;
        let measured = ramp.duration().min(now.since(from));
        Some(Ramp::new(ramp.to() - measured, ramp.to()))
    }

    /// Adds the time until `now` in which its state is older than the maximum age and it is not
    /// reported stale.
    fn add_over(&mut self, now: Time, topic: &mut OneTopic) {
        if let (true, None, Some(max)) = (self.has_state, self.stale_since, topic.max_age) {
            let age = self.age.age(now).unwrap_or(Span::ZERO);
            let over = age.checked_sub(max).unwrap_or(Span::ZERO);
            topic.deadline.over += over.min(now.since(self.over_from));
        }
        self.over_from = self.over_from.max(now);
    }
}

/// The median, the 99th percentile and the maximum of the delivery times.
fn delivery(mut took: Vec<Span>, open: Vec<Span>) -> Option<[Span; 3]> {
    let sum: u128 = took.iter().map(|span| u128::from(span.as_nanos())).sum();
    let mean = sum.checked_div(took.len() as u128).unwrap_or(0);
    took.extend(open.into_iter().filter(|span| u128::from(span.as_nanos()) > mean));
    took.sort_unstable();
    let rank = |percent: usize| took.get((took.len() * percent).div_ceil(100).checked_sub(1)?);
    Some([*rank(50)?, *rank(99)?, *took.last()?])
}
