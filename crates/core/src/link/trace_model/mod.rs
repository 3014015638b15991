//! Models that generate traces: [`CellularModel`] and [`LeoModel`]. The same model, seed and stream
//! give the same [`Trace`] on every machine, and its text is a trace file.

mod cellular;
mod leo;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::Trace;
use crate::unit::{BitRate, Span};

pub use cellular::{CellularModel, LongRun};
pub use leo::LeoModel;

/// A model of a path whose capacity, and perhaps delay, varies.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "model", rename_all = "snake_case"))]
pub enum TraceModel {
    /// A cellular link.
    Cellular(CellularModel),
    /// A path over satellites in low earth orbit.
    Leo(LeoModel),
}

/// A parameter of a model with a value outside its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {value}; {remedy}")]
pub struct TraceModelError {
    /// The name of the parameter.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What to give instead.
    pub remedy: &'static str,
}

impl TraceModel {
    /// The maximum number of lines of a trace, to a rough approximation: they take 80 to 160 MB.
    pub const MAX_LINES: u64 = 10_000_000;

    /// The name in files and flags.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Cellular(_) => "cellular",
            Self::Leo(_) => "leo",
        }
    }

    /// Its own seed, if set.
    pub const fn seed(&self) -> Option<u64> {
        match self {
            Self::Cellular(model) => model.seed,
            Self::Leo(model) => model.seed,
        }
    }

    /// The same model with this seed and stream where they are unset.
    pub fn or_seed(mut self, seed: u64, stream: u64) -> Self {
        let (own_seed, own_stream) = match &mut self {
            Self::Cellular(model) => (&mut model.seed, &mut model.stream),
            Self::Leo(model) => (&mut model.seed, &mut model.stream),
        };
        own_seed.get_or_insert(seed);
        own_stream.get_or_insert(stream);
        self
    }

    /// The trace. A model without a seed has seed 0, one without a stream has stream 0.
    ///
    /// # Errors
    /// A parameter outside its range, which the field of that name documents.
    pub fn generate(&self) -> Result<Trace, TraceModelError> {
        match self {
            Self::Cellular(model) => model.generate(),
            Self::Leo(model) => model.generate(),
        }
    }
}

/// The random generator number `stream` of a seed. Both are hashed: PCG streams and states that
/// have much in common give correlated output.
fn generator(seed: u64, stream: u64) -> Pcg64 {
    let word: u64 = Pcg64::seed_from_u64(seed).random();
    Pcg64::seed_from_u64(word.wrapping_add(stream))
}

/// `value`, if it is in its range.
fn checked<T: fmt::Display>(
    field: &'static str,
    value: T,
    is_in_range: impl FnOnce(&T) -> bool,
    remedy: &'static str,
) -> Result<T, TraceModelError> {
    match is_in_range(&value) {
        true => Ok(value),
        false => Err(TraceModelError { field, value: value.to_string(), remedy }),
    }
}

/// `duration`, if a trace of that length and up to `rate` has no more lines than allowed.
fn checked_duration(duration: Span, rate: f64, intervals: f64) -> Result<Span, TraceModelError> {
    let remedy = "give from 1ms to 24h";
    let range = Span::from_millis(1)..=Span::from_secs(86_400);
    let duration = checked("duration", duration, |it| range.contains(it), remedy)?;
    let lines = duration.as_secs_f64() * (rate + intervals);
    let remedy = "the trace would have more than 10 million lines; shorten it, or lower the rate";
    checked("duration", duration, |_| lines <= TraceModel::MAX_LINES as f64, remedy)
}

/// `rate` in opportunities per second.
fn per_second(rate: BitRate) -> f64 {
    rate.as_bps() as f64 / (8 * Trace::OPPORTUNITY.get()) as f64
}

/// A trace that is being generated, with times in whole ms, rounded up.
struct Draft {
    opportunities: Vec<Span>,
    delays: Vec<(Span, Span)>,
    period: Span,
}

impl Draft {
    fn new(duration: Span) -> Self {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Self { opportunities: Vec::new(), delays: Vec::new(), period: Span::from_millis(millis) }
    }

    /// An opportunity `secs` after the start; one at the end of the trace or later is left out.
    fn deliver(&mut self, secs: f64) {
        let at = Span::from_millis(libm::ceil(secs * 1e3).max(0.0) as u64);
        if at < self.period {
            self.opportunities.push(at);
        }
    }

    /// Another delay from `after` the start on; one at the end of the trace or later is left out.
    fn set_delay(&mut self, after: Span, delay: Span) {
        let at = Span::from_millis(after.as_nanos().div_ceil(1_000_000));
        if at < self.period {
            self.delays.push((at, delay));
        }
    }

    /// The trace. Its last opportunity is at its end, so that the trace lasts for all of its
    /// duration.
    fn finish(mut self) -> Trace {
        self.opportunities.push(self.period);
        Trace::new(self.opportunities, self.delays, self.period)
            .expect("a period above zero with an opportunity at its end")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn models() -> [TraceModel; 2] {
        let duration = Span::from_secs(20);
        [
            TraceModel::Cellular(CellularModel { duration, ..<_>::default() }),
            TraceModel::Leo(LeoModel { duration, ..<_>::default() }),
        ]
    }

    #[test]
    fn a_seed_and_a_stream_decide_the_trace() {
        for model in models() {
            let trace = |seed, stream| model.clone().or_seed(seed, stream).generate().unwrap();
            let first = trace(1, 0);
            assert_eq!(first, trace(1, 0));
            assert_ne!(first, trace(2, 0));
            assert_ne!(first, trace(1, 1));
            // The model's own values take precedence.
            let own = model.clone().or_seed(1, 0);
            assert_eq!(own.clone().or_seed(7, 7), own);
        }
    }

    #[test]
    fn a_trace_file_has_what_the_model_generated() {
        for model in models() {
            let trace = model.generate().unwrap();
            assert_eq!(Trace::parse(&trace.to_string()), Ok(trace.clone()));
            assert_eq!(trace.period(), Span::from_secs(20));
        }
    }

    #[test]
    fn a_trace_that_would_not_fit_into_memory_is_refused() {
        let day = Span::from_secs(86_400);
        let fast = BitRate::from_mbps(10_000);
        for (model, message) in [
            (
                TraceModel::Cellular(CellularModel { max_rate: fast, ..<_>::default() }),
                "`duration` is 300s; the trace would have more than 10 million lines; shorten it",
            ),
            (
                TraceModel::Leo(LeoModel { duration: day, ..<_>::default() }),
                "`duration` is 86400s; the trace would have more than",
            ),
            (
                TraceModel::Leo(LeoModel { duration: day + day, ..<_>::default() }),
                "`duration` is 172800s; give from 1ms to 24h",
            ),
        ] {
            let error = model.generate().unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_time_of_a_draft_is_behind_its_end(mut times in prop::collection::vec(-1.0f64..3.0, 0..9)) {
            times.sort_by(f64::total_cmp);
            let mut draft = Draft::new(Span::from_millis(1_500));
            for at in &times {
                draft.deliver(*at);
                draft.set_delay(Span::from_secs_f64(*at), Span::ZERO);
            }
            let kept = times.iter().filter(|at| **at <= 1.499).count();
            let trace = draft.finish();
            prop_assert_eq!(trace.opportunities(), kept + 1);
            prop_assert_eq!(Trace::parse(&trace.to_string()), Ok(trace));
        }
    }

    #[test]
    fn generators_of_one_seed_differ_by_their_stream() {
        let draw = |seed, stream| -> u64 { generator(seed, stream).random() };
        let mut all: Vec<_> =
            vec![(1, 0), (1, 1), (2, 0), (2, 1)].into_iter().map(|(a, b)| draw(a, b)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4);
    }
}
