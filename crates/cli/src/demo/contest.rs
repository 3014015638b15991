//! The threads of the demonstration.
//!
//! ```text
//!   source ─► emulator ─┐
//!   source ─► emulator ─┼─► monitor          the calling thread draws
//!   …                  ─┘
//! ```

use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

use freshline_core::age::AgeSummary;
use freshline_core::link::ConditionsConfig;
use freshline_core::session::SourceParams;
use freshline_core::source::RateLaw;
use freshline_core::unit::{Span, Time};
use freshline_net::clock::Clock;
use freshline_net::emulate::{Emulator, EmulatorConfig};
use freshline_net::source::{Source, SourceReport};
use freshline_net::stop::Stop;
use miette::IntoDiagnostic;

use super::PAYLOAD;
use super::lane::{AtMonitor, AtSource, Lane};
use super::view::View;
use crate::loopback::{self, Curtain, LOOPBACK};

/// The laws that run at the same time, their path and the duration.
pub(super) struct Contest {
    pub(super) conditions: ConditionsConfig,
    /// Each law with the name of its run.
    pub(super) laws: Vec<(&'static str, Box<dyn RateLaw>)>,
    pub(super) seed: u64,
    pub(super) duration: Span,
}

/// The result of one law.
pub(super) struct Run {
    pub(super) law: &'static str,
    /// The age at the monitor; `None` if no update arrived.
    pub(super) age: Option<AgeSummary>,
    /// The report of the source.
    pub(super) source: SourceReport,
}

impl Contest {
    /// Runs all sources at the same time until they end by themselves, or until `stop`.
    pub(super) fn run(self, stop: &Stop, view: &mut View) -> miette::Result<Vec<Run>> {
        let (mut monitor, target) = loopback::monitor()?;
        let mut emulators = Vec::new();
        let mut sources = Vec::new();
        let mut lanes = Vec::new();
        for (name, law) in self.laws {
            let config =
                EmulatorConfig { conditions: self.conditions.clone(), ..Default::default() };
            let emulator = Emulator::bind(LOOPBACK, target, config, self.seed).into_diagnostic()?;
            let params = SourceParams { name: name.to_owned(), ..Default::default() };
            sources.push(loopback::source(params, law, PAYLOAD, emulator.local_addr())?);
            emulators.push(emulator);
            lanes.push(Lane::new(name));
        }

        let backstage = Stop::new();
        let clock = Clock::new();
        let began_at = clock.now();
        let end = began_at + self.duration;
        thread::scope(|scope| {
            let curtain = Curtain {
                endpoints: vec![stop.clone(), backstage.clone()],
                emulators: emulators.iter().map(Emulator::handle).collect(),
            };
            let monitor = scope.spawn(|| monitor.run(&backstage, None, &mut AtMonitor(&lanes)));
            let emulators: Vec<_> =
                emulators.iter_mut().map(|emulator| scope.spawn(|| emulator.run(None))).collect();
            let sources: Vec<_> = sources
                .into_iter()
                .zip(&lanes)
                .map(|(source, lane)| scope.spawn(move || run_source(source, lane, stop, end)))
                .collect();
            while !sources.iter().all(ScopedJoinHandle::is_finished) {
                view.show(&lanes, clock.now().since(began_at), stop);
            }
            let runs = sources.into_iter().map(join).collect();
            drop(curtain);
            join(monitor).into_diagnostic()?;
            for emulator in emulators {
                join(emulator).into_diagnostic()?;
            }
            runs
        })
    }
}

fn run_source(mut source: Source, lane: &Lane, stop: &Stop, end: Time) -> miette::Result<Run> {
    source.run(stop, Some(end), &mut AtSource(lane)).into_diagnostic()?;
    let age = lane.summary(Clock::new().now());
    Ok(Run { law: lane.law, age, source: source.report() })
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
