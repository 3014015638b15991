//! One source of the demonstration, as observed at both ends.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use freshline_core::age::{AgeMeter, AgeSummary, Freshness};
use freshline_core::session::{self, SourceKey};
use freshline_core::unit::{Span, Time, UpdateRate};
use freshline_net::{monitor, source};

/// How much of the sawtooth is kept for drawing.
pub(super) const HISTORY: Span = Span::from_secs(5);

/// Resets kept for drawing, whatever the rate.
const RESETS: usize = 4096;

/// A source's name and its measurements: the age by the monitor, the rest by the source.
pub(super) struct Lane {
    pub(super) law: &'static str,
    gauge: Mutex<Gauge>,
}

#[derive(Default)]
struct Gauge {
    meter: AgeMeter,
    /// The resets of the age: when, from which and to which value.
    resets: VecDeque<(Time, Span, Span)>,
    rate: Option<UpdateRate>,
    backlog: u64,
}

/// A lane at one moment.
pub(super) struct Glance {
    pub(super) law: &'static str,
    pub(super) rate: Option<UpdateRate>,
    pub(super) backlog: u64,
    pub(super) age: Option<Span>,
    pub(super) age_mean: Option<Span>,
    /// The last seconds of the age: (s from now, which is 0 or less; ms).
    pub(super) sawtooth: Vec<(f64, f64)>,
}

impl Lane {
    pub(super) fn new(law: &'static str) -> Self {
        Self { law, gauge: Mutex::default() }
    }

    fn gauge(&self) -> MutexGuard<'_, Gauge> {
        // A panic elsewhere ends the run; the measurements stay valid.
        self.gauge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The age at the monitor, from the first update that arrived until `now`.
    pub(super) fn summary(&self, now: Time) -> Option<AgeSummary> {
        self.gauge().meter.summary(now)
    }

    pub(super) fn glance(&self, now: Time) -> Glance {
        let gauge = self.gauge();
        let process = gauge.meter.process();
        Glance {
            law: self.law,
            rate: gauge.rate,
            backlog: gauge.backlog,
            age: process.age(now),
            age_mean: process.mean(now),
            sawtooth: gauge.sawtooth(now),
        }
    }
}

impl Gauge {
    fn on_update(&mut self, now: Time, generated_at: Time) {
        let before = self.meter.process().age(now);
        if self.meter.on_update(now, generated_at) == Freshness::Stale {
            return;
        }
        let after = now.since(generated_at);
        self.resets.push_back((now, before.unwrap_or(after), after));
        let old = |(at, ..): &(Time, Span, Span)| now.since(*at) > HISTORY;
        while self.resets.len() > RESETS || self.resets.front().is_some_and(old) {
            self.resets.pop_front();
        }
    }

    fn sawtooth(&self, now: Time) -> Vec<(f64, f64)> {
        let point = |at: Time, age: Span| (-now.since(at).as_secs_f64(), age.as_millis_f64());
        let resets = self.resets.iter();
        let open = self.meter.process().age(now).map(|age| point(now, age));
        resets
            .flat_map(|&(at, before, after)| [point(at, before), point(at, after)])
            .chain(open)
            .collect()
    }
}

/// Observes the monitor. Sources are identified by their names.
pub(super) struct AtMonitor<'a>(pub(super) &'a [Lane]);

impl monitor::Watch for AtMonitor<'_> {
    fn fresh(&mut self, now: Time, _source: SourceKey, record: &monitor::Record) {
        if let Some(lane) = self.0.iter().find(|lane| *lane.law == *record.name) {
            // Both ends are in one process and share its clock: this age is exact.
            lane.gauge().on_update(now, record.generated_at);
        }
    }
}

/// Observes the source.
pub(super) struct AtSource<'a>(pub(super) &'a Lane);

impl source::Watch for AtSource<'_> {
    fn turn(&mut self, _now: Time, source: &session::Source) {
        let mut gauge = self.0.gauge();
        gauge.rate = Some(source.law().rate());
        gauge.backlog = source.backlog().backlog();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sawtooth_falls_at_updates_and_forgets_what_is_old() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut gauge = Gauge::default();
        gauge.on_update(at(30), at(10));
        gauge.on_update(at(50), at(40));
        gauge.on_update(at(55), at(35));
        let drawn = gauge.sawtooth(at(60));
        assert_eq!(
            drawn,
            [(-0.03, 20.0), (-0.03, 20.0), (-0.01, 40.0), (-0.01, 10.0), (0.0, 20.0)]
        );
        gauge.on_update(at(6_000), at(5_990));
        assert_eq!(gauge.resets.len(), 1);
    }
}
