//! What a monitor tells of its sources.

use std::collections::VecDeque;
use std::net::SocketAddr;

use freshline_core::age::AgeMeter;
use freshline_core::session::{self, MonitorCounters, SourceKey};
use freshline_core::unit::{Span, Time};
use serde::Serialize;

use super::{Record, Sender};

/// A source as the monitor sees it at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct SourceStatus {
    /// The name that the source gave itself, or its session if it gave none.
    pub source: String,
    /// The session's name on the wire.
    pub session: String,
    /// Where its last update came from.
    pub address: SocketAddr,
    /// Age of the freshest state in ms, once the source has told its clock's offset.
    pub age_ms: Option<f64>,
    /// Time-average age in ms.
    pub age_mean_ms: Option<f64>,
    /// 95th percentile of age in ms.
    pub age_p95_ms: Option<f64>,
    /// Mean of the ages just before each reset, in ms.
    pub peak_age_mean_ms: Option<f64>,
    /// Largest age in ms.
    pub age_max_ms: Option<f64>,
    /// Fresh updates per second, while the age was known.
    pub updates_per_s: f64,
    /// Updates that were the freshest when they came.
    pub fresh: u32,
    /// Updates that came after a fresher one.
    pub stale: u32,
    /// Updates that have not come.
    pub missing: u32,
    /// States that a newer one replaced before an output took them.
    pub replaced: u64,
    /// Sequence number of the freshest update.
    pub seq: u64,
    /// The freshest state.
    #[serde(skip)]
    pub payload: Vec<u8>,
}

/// A monitor's run in numbers.
#[derive(Debug, Clone, Serialize)]
pub struct MonitorReport {
    /// Length of the run in s.
    pub duration_s: f64,
    /// Sources at its end.
    pub sources_open: usize,
    /// What was counted over all sources.
    #[serde(flatten)]
    pub counters: MonitorCounters,
    /// The sources of now, those watched in detail first.
    pub sources: Vec<SourceStatus>,
    /// The last that was known of sources that have left, the latest last, up to the number of
    /// those watched in detail.
    pub ended: Vec<SourceStatus>,
}

/// What is kept beside the records for the first sources, up to a limit.
pub(super) struct Details {
    limit: usize,
    kept: usize,
    by_index: Vec<Option<Box<AgeMeter>>>,
    ended: VecDeque<SourceStatus>,
}

impl Details {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, kept: 0, by_index: Vec::new(), ended: VecDeque::new() }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn insert(&mut self, source: SourceKey) {
        self.forget(source);
        if self.kept < self.limit {
            let index = source.index();
            if self.by_index.len() <= index {
                self.by_index.resize_with(index + 1, || None);
            }
            self.by_index[index] = Some(Box::new(AgeMeter::new()));
            self.kept += 1;
        }
    }

    /// A source has left; this is the last of it.
    pub(super) fn end(&mut self, source: SourceKey, record: &Record, now: Time, replaced: u64) {
        let meter = self.meter(source);
        if meter.is_some() {
            self.ended.push_back(status(meter, record, now, replaced));
            if self.ended.len() > self.limit {
                self.ended.pop_front();
            }
        }
        self.forget(source);
    }

    fn forget(&mut self, source: SourceKey) {
        let slot = self.by_index.get_mut(source.index());
        if slot.is_some_and(|slot| slot.take().is_some()) {
            self.kept -= 1;
        }
    }

    fn meter(&self, source: SourceKey) -> Option<&AgeMeter> {
        self.by_index.get(source.index()).and_then(Option::as_deref)
    }

    pub(super) fn ended(&self) -> Vec<SourceStatus> {
        self.ended.iter().cloned().collect()
    }

    pub(super) fn on_fresh(&mut self, source: SourceKey, record: &Record, now: Time) {
        if let Some(Some(meter)) = self.by_index.get_mut(source.index())
            && let Some(age) = record.age.age(now)
        {
            meter.on_update(now, now - age);
        }
    }

    /// At most `most` sources; those watched in detail first.
    pub(super) fn statuses(
        &self,
        sessions: &session::Monitor<Sender>,
        now: Time,
        most: usize,
        replaced: impl Fn(SourceKey) -> u64,
    ) -> Vec<SourceStatus> {
        let (mut first, others): (Vec<_>, Vec<_>) =
            sessions.records().partition(|(source, _)| self.meter(*source).is_some());
        first.extend(others);
        first.truncate(most);
        let status = |(source, record): (SourceKey, &Record)| {
            status(self.meter(source), record, now, replaced(source))
        };
        first.into_iter().map(status).collect()
    }
}

fn status(meter: Option<&AgeMeter>, record: &Record, now: Time, replaced: u64) -> SourceStatus {
    let session = record.session.to_string();
    let ms = |span: Option<Span>| span.map(Span::as_millis_f64);
    let elapsed = record.age.duration(now).as_secs_f64();
    SourceStatus {
        source: if record.name.is_empty() { session.clone() } else { record.name.to_string() },
        session,
        address: record.peer.address,
        age_ms: ms(record.age.age(now)),
        age_mean_ms: ms(record.age.mean(now)),
        age_p95_ms: ms(meter.and_then(|meter| meter.summary(now)).map(|summary| summary.p95)),
        peak_age_mean_ms: ms(record.age.peaks().map(|peaks| peaks.mean)),
        age_max_ms: ms(record.age.max(now)),
        updates_per_s: if elapsed > 0.0 { f64::from(record.fresh()) / elapsed } else { 0.0 },
        fresh: record.fresh(),
        stale: record.stale(),
        missing: record.missing(),
        replaced,
        seq: record.newest_seq,
        payload: record.payload.clone(),
    }
}
