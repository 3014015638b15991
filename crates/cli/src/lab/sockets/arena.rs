//! One run over sockets.
//!
//! ```text
//!   source ─┐
//!   source ─┼─► emulator ─► monitor          all within this process, on the loopback interface
//!   …      ─┘
//! ```

use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use freshline_core::age::{AgeProcess, Integral};
use freshline_core::session::{self, SourceKey, SourceParams};
use freshline_core::unit::{Span, Time};
use freshline_lab::scenario::{Emulated, EmulatedSource};
use freshline_net::clock::Clock;
use freshline_net::emulate::{Emulator, EmulatorConfig};
use freshline_net::stop::Stop;
use freshline_net::{monitor, source};
use miette::{IntoDiagnostic, miette};

use crate::loopback::{self, Curtain, LOOPBACK};

/// How long a source that has not started may take to notice that the run was stopped.
const PATIENCE: Duration = Duration::from_millis(100);

/// The part of a run that counts, from its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) from: Span,
    pub(super) to: Span,
}

/// The results of a run over sockets: means over its sources.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// The true age at the monitor.
    pub(super) age_ms: f64,
    /// Updates per second and source.
    pub(super) updates_per_s: f64,
    /// How late the emulator sent packets on, in the later direction: the 99th percentile.
    pub(super) late_ms: f64,
}

/// Runs all sources until the window ends, or until `stop`.
pub(super) fn run(emulated: Emulated, window: Window, stop: &Stop) -> miette::Result<Measured> {
    let Emulated { conditions, seed, payload, limits, sources, .. } = emulated;
    let (mut monitor, target) = loopback::monitor()?;
    // A source that re-opens its socket needs a second place.
    let config = EmulatorConfig { conditions, max_flows: 2 * sources.len(), ..Default::default() };
    let mut emulator = Emulator::bind(LOOPBACK, target, config, seed).into_diagnostic()?;
    let address = emulator.local_addr();
    let began_at = Clock::new().now();
    let (from, to) = (began_at + window.from, began_at + window.to);
    let mut ages = Ages {
        sources: sources
            .iter()
            .map(|it| AgeProcess::starting_at(began_at + it.starts_at))
            .collect(),
        marks: Vec::new(),
        from,
        to,
    };
    let run_source = |(number, EmulatedSource { starts_at, law }): (usize, EmulatedSource)| {
        wait_until(began_at + starts_at, stop);
        let params = SourceParams { name: number.to_string(), limits, ..Default::default() };
        let mut source = loopback::source(params, law, payload.get() as usize, address)?;
        let mut sent = SentBefore { from, before: None };
        source.run(stop, Some(to), &mut sent).into_diagnostic()?;
        let all = source.session().counters().sent;
        Ok::<_, miette::Report>((all - sent.before.unwrap_or(all)) as f64)
    };

    let backstage = Stop::new();
    let report = thread::scope(|scope| {
        // Without the sources, which end by themselves: `stop` would end all further runs.
        let curtain =
            Curtain { endpoints: vec![backstage.clone()], emulators: vec![emulator.handle()] };
        let monitor = scope.spawn(|| monitor.run(&backstage, None, &mut ages));
        let emulator = scope.spawn(|| emulator.run(None));
        let count = sources.len() as f64;
        let numbered = sources.into_iter().enumerate();
        let sources: Vec<_> =
            numbered.map(|source| scope.spawn(move || run_source(source))).collect();
        let sent: miette::Result<Vec<f64>> = sources.into_iter().map(join).collect();
        drop(curtain);
        join(monitor).into_diagnostic()?;
        Ok::<_, miette::Report>((
            join(emulator).into_diagnostic()?,
            sent?.iter().sum::<f64>() / count,
        ))
    });
    let (report, sent) = report?;
    let late = [report.forward, report.reverse].map(|direction| direction.timing_error.p99_ms);
    Ok(Measured {
        age_ms: ages.mean_ms().ok_or_else(|| miette!("the run was too short"))?,
        updates_per_s: sent / (window.to - window.from).as_secs_f64(),
        late_ms: late[0].max(late[1]),
    })
}

fn wait_until(at: Time, stop: &Stop) {
    loop {
        let left = Duration::from(at.since(Clock::new().now()));
        if left.is_zero() || stop.is_stopped() {
            return;
        }
        thread::sleep(left.min(PATIENCE));
    }
}

pub(super) fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// The ages of all sources at the monitor; the name of each source is its number.
struct Ages {
    sources: Vec<AgeProcess>,
    /// The integrals at the start of the window, once it has begun.
    marks: Vec<Integral>,
    from: Time,
    to: Time,
}

impl Ages {
    fn mark(&mut self) {
        let from = self.from;
        self.marks = self.sources.iter().map(|source| source.mark(from)).collect();
    }

    fn mean_ms(mut self) -> Option<f64> {
        if self.marks.is_empty() {
            self.mark();
        }
        let count = self.sources.len() as f64;
        let each = self.sources.iter().zip(&self.marks);
        let means = each.map(|(source, mark)| source.mean_since(*mark, self.to));
        let sum: Option<f64> = means.map(|mean| mean.map(Span::as_millis_f64)).sum();
        sum.map(|sum| sum / count)
    }
}

impl monitor::Watch for Ages {
    fn fresh(&mut self, now: Time, _source: SourceKey, record: &monitor::Record) {
        if now >= self.from && self.marks.is_empty() {
            self.mark();
        }
        let source =
            record.name.parse().ok().and_then(|number: usize| self.sources.get_mut(number));
        // Both ends share the clock of this process: this age is exact.
        if let Some(source) = source.filter(|_| now <= self.to) {
            source.on_update(now, record.generated_at);
        }
    }
}

/// The updates that a source had sent before the window began.
struct SentBefore {
    from: Time,
    before: Option<u64>,
}

impl source::Watch for SentBefore {
    fn turn(&mut self, now: Time, source: &session::Source) {
        if now < self.from {
            return;
        }
        self.before.get_or_insert(source.counters().sent);
    }
}
