//! One law on the path: open a session, let it settle, measure, let the path drain.

use std::cell::RefCell;

use freshline_core::age::Integral;
use freshline_core::path::PathId;
use freshline_core::session::{self, Reach, SourceCounters, SourceEvent, SourceParams};
use freshline_core::source::RateLaw;
use freshline_core::unit::{Span, Time};
use freshline_net::clock::Clock;
use freshline_net::dial::Remote;
use freshline_net::marks::MarkReport;
use freshline_net::source::sampler::Synthetic;
use freshline_net::source::{
    Event, LinkEvent, Source, SourceConfig, SourceError, SourcePaths, States, Transport, Watch,
};
use freshline_net::stop::Stop;

use super::interrupt::Interrupt;
use crate::mark;
use crate::output::Troubles;

/// A monitor without an answer for this long counts as absent. A queue that has not drained after
/// it is left to the settling time.
const PATIENCE: Span = Span::from_secs(5);

/// A source that runs over the path several times, each time with another law.
pub(super) struct Probe {
    pub(super) monitor: Remote,
    pub(super) transport: Transport,
    pub(super) params: SourceParams,
    /// Bytes in each update.
    pub(super) payload: usize,
    pub(super) interrupt: Interrupt,
    /// The state of marks as last printed, if marks are requested.
    pub(super) marks: Option<RefCell<Troubles>>,
    /// How packets of all sessions so far arrived.
    pub(super) arrived: RefCell<Option<MarkReport>>,
}

/// How long a law runs once its session is open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) settle: Span,
    pub(super) measure: Span,
}

/// The measurements of a law after the settling time, except where noted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    /// Updates sent per second.
    pub(super) updates_per_s: f64,
    /// From round trips: an upper bound, as it includes the delay of the ack.
    pub(super) age_mean: Span,
    /// The mean age including the settling time.
    pub(super) age_mean_from_start: Span,
    /// `None` if no ack arrived.
    pub(super) rtt_mean: Option<Span>,
    /// The minimum, including the settling time.
    pub(super) rtt_min: Span,
    /// Time average of the number of updates sent and not acknowledged.
    pub(super) backlog_mean: f64,
    /// How long the updates in flight at the end took to arrive at the rate of the acks.
    drain: Span,
}

/// Why a law could not be tried.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum TrialError {
    #[error("no monitor answers at {monitor}{reason}")]
    #[diagnostic(help("`freshline monitor --help` shows how to start one"))]
    Absent { monitor: Remote, reason: String },
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl Probe {
    /// Sends by `law` and measures; `None` if it was interrupted. The path is empty afterwards.
    pub(super) fn run(
        &self,
        law: Box<dyn RateLaw>,
        timing: Timing,
    ) -> Result<Option<Trial>, TrialError> {
        let Some(stop) = self.interrupt.next_run() else { return Ok(None) };
        let mut source = Source::new(SourceConfig {
            monitor: self.monitor.clone(),
            transport: self.transport.clone(),
            paths: SourcePaths::default(),
            params: self.params.clone(),
            law,
            states: States::Of(Box::new(Synthetic::new(self.payload))),
        })?;
        let give_up_at = Clock::new().now() + PATIENCE;
        let mut observer = Observer {
            timing,
            stop: stop.clone(),
            stage: Stage::Opening { give_up_at },
            reason: String::new(),
        };
        source.run(&stop, None, &mut observer)?;
        self.report_marks(source.session());
        match observer.stage {
            Stage::Over(trial) => {
                self.interrupt.sleep(trial.drain);
                Ok(Some(trial))
            }
            _ if self.interrupt.is_interrupted() => Ok(None),
            _ => Err(TrialError::Absent { monitor: self.monitor.clone(), reason: observer.reason }),
        }
    }

    /// Counts how packets arrived, and reports once if the path changes marks.
    fn report_marks(&self, source: &session::Source) {
        let Some(marks) = source.marks(PathId::FIRST) else { return };
        let report = MarkReport::of(source.dscp(), marks);
        let before = self.arrived.take();
        self.arrived.replace(Some(before.map_or(report, |before| before.and(report))));
        let Some(printed_marks) = &self.marks else { return };
        for change in mark::changed(&report, ["updates", "acks"]) {
            printed_marks.borrow_mut().report_once(change);
        }
    }
}

/// Observes the source after each of its turns, and ends it once there is a result.
struct Observer {
    timing: Timing,
    stop: Stop,
    stage: Stage,
    /// Why the monitor may be absent, as a suffix of its address.
    reason: String,
}

enum Stage {
    Opening { give_up_at: Time },
    Settling { until: Time },
    Measuring { from: Box<Mark>, until: Time },
    Over(Trial),
}

impl Watch for Observer {
    fn event(&mut self, _now: Time, _source: &session::Source, event: &Event<'_>) {
        match event {
            Event::Session(SourceEvent::Closed(reason)) => self.reason = format!(": {reason}"),
            Event::Link(LinkEvent::Lost(reason)) => self.reason = format!(": {reason}"),
            Event::Link(LinkEvent::Unreachable) => {
                self.reason = ": nothing listens there".to_owned();
            }
            Event::Link(LinkEvent::Waiting(why)) => self.reason = format!(": {why}"),
            _ => {}
        }
    }

    fn turn(&mut self, now: Time, source: &session::Source) {
        match &self.stage {
            Stage::Opening { .. } if source.reach() == Reach::Open => {
                self.stage = Stage::Settling { until: now + self.timing.settle };
            }
            Stage::Opening { give_up_at } if now >= *give_up_at => self.stop.stop(),
            Stage::Settling { until } if now >= *until => {
                let until = now + self.timing.measure;
                self.stage = Stage::Measuring { from: Box::new(Mark::new(source, now)), until };
            }
            Stage::Measuring { from, until } if now >= *until => {
                if let Some(trial) = from.trial(source, now) {
                    self.stage = Stage::Over(trial);
                }
                self.stop.stop();
            }
            _ => {}
        }
    }
}

/// The state of a source at the start of the measurement.
struct Mark {
    at: Time,
    age: Integral,
    backlog: Integral,
    counters: SourceCounters,
}

impl Mark {
    fn new(source: &session::Source, now: Time) -> Self {
        Self {
            at: now,
            age: source.age().process().mark(now),
            backlog: source.backlog().mark(now),
            counters: *source.counters(),
        }
    }

    /// The measurement since then; `None` if no time has passed, or no ack ever arrived.
    fn trial(&self, source: &session::Source, now: Time) -> Option<Trial> {
        let (age, counters) = (source.age().process(), source.counters());
        let seconds = now.since(self.at).as_secs_f64();
        let acked = counters.acked - self.counters.acked;
        let in_flight = source.backlog().backlog() as f64;
        Some(Trial {
            updates_per_s: (counters.sent - self.counters.sent) as f64 / seconds,
            age_mean: age.mean_since(self.age, now)?,
            age_mean_from_start: age.mean(now)?,
            rtt_mean: (acked > 0).then(|| (counters.rtt_sum - self.counters.rtt_sum) / acked),
            rtt_min: counters.rtt_min?,
            backlog_mean: source.backlog().mean_since(self.backlog, now)?,
            drain: match acked {
                0 => PATIENCE,
                _ => Span::from_secs_f64(in_flight * seconds / acked as f64).min(PATIENCE),
            },
        })
    }
}
