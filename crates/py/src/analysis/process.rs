//! The age at a receiver, from the times at which states were generated and received.

use freshline_core::age::{AgeProcess as Process, Freshness};
use freshline_core::unit::{Span, Time};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::numbers_of;
use crate::table::{Columns, Table};

/// The longest span of time, in s: a century.
const MAX_SECONDS: f64 = 3.2e9;

/// The age over time, from the deliveries of states: exact means, quantiles and shape.
///
/// The age grows by a second per second, and falls when a fresher state arrives. It is measured from `start`, at which
/// it is 0, or else from the first delivery on; until `end`, or else until the last delivery.
#[pyclass(frozen, module = "freshline")]
pub(crate) struct AgeProcess {
    process: Process,
    /// The offset that is subtracted from all times.
    base: f64,
    end: Time,
    /// Between two falls: when it begins, and the age there and at its end.
    teeth: Vec<Tooth>,
}

/// A piece of the saw-tooth.
#[derive(Debug, Clone, Copy)]
struct Tooth {
    at: Time,
    from: Span,
    to: Span,
}

#[pymethods]
impl AgeProcess {
    /// From the times in s at which states were received and generated, on one clock and in any order.
    #[new]
    #[pyo3(signature = (received, generated, *, start=None, end=None))]
    fn new(
        received: &Bound<'_, PyAny>,
        generated: &Bound<'_, PyAny>,
        start: Option<f64>,
        end: Option<f64>,
    ) -> PyResult<Self> {
        let (received, generated) = (numbers_of(received)?, numbers_of(generated)?);
        check(&received, &generated, start, end)?;
        let mut deliveries: Vec<_> = received.into_iter().zip(generated).collect();
        // Of several at one moment, the freshest counts.
        deliveries.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.total_cmp(&one.1)));
        let earliest = deliveries.iter().map(|(_, generated)| *generated).chain(start);
        let base = earliest.fold(f64::INFINITY, f64::min);
        let time = |seconds: f64| Time::ZERO + Span::from_secs_f64((seconds - base).max(0.0));
        let last = deliveries.last().map(|(received, _)| *received).or(start).unwrap_or(0.0);
        let end = time(end.unwrap_or(last));
        let mut process =
            start.map_or_else(Process::new, |start| Process::starting_at(time(start)));
        let mut teeth = Vec::new();
        let begun = start.map(time);
        let mut since = begun;
        for (received, generated) in deliveries {
            let at = time(received);
            if at > end || begun.is_some_and(|begun| at < begun) {
                continue;
            }
            let before = process.ramp(at);
            if process.on_update(at, time(generated)) == Freshness::Fresh {
                if let (Some(ramp), Some(since)) = (before, since) {
                    teeth.push(Tooth { at: since, from: ramp.from(), to: ramp.to() });
                }
                since = Some(at);
            }
        }
        if let (Some(ramp), Some(since)) = (process.ramp(end), since) {
            teeth.push(Tooth { at: since, from: ramp.from(), to: ramp.to() });
        }
        Ok(Self { process, base, end, teeth })
    }

    /// The time average of the age in s; None if no time was measured.
    #[getter]
    fn mean(&self) -> Option<f64> {
        self.process.mean(self.end).map(Span::as_secs_f64)
    }

    /// The largest age in s.
    #[getter]
    fn max(&self) -> Option<f64> {
        self.process.max(self.end).map(Span::as_secs_f64)
    }

    /// The mean of the ages just before each fall in s; None before the first.
    #[getter]
    fn peak_mean(&self) -> Option<f64> {
        self.process.peaks().map(|peaks| peaks.mean.as_secs_f64())
    }

    /// The measured time in s.
    #[getter]
    fn duration(&self) -> f64 {
        self.process.duration(self.end).as_secs_f64()
    }

    /// The age that is not exceeded for the fraction `q` of the time, 0 to 1, in s.
    fn quantile(&self, q: f64) -> PyResult<Option<f64>> {
        if !(0.0..=1.0).contains(&q) {
            return Err(PyValueError::new_err(format!("q is {q}; give 0 to 1")));
        }
        let cdf = self.distribution();
        let Some(upper) = cdf.iter().position(|(_, fraction)| *fraction >= q) else {
            return Ok(cdf.last().map(|(age, _)| *age));
        };
        let (age, fraction) = cdf[upper];
        let (age_below, below) = cdf[upper.saturating_sub(1)];
        let part = if fraction > below { (q - below) / (fraction - below) } else { 1.0 };
        Ok(Some(age_below + (age - age_below) * part.clamp(0.0, 1.0)))
    }

    /// The fraction of the time, 0 to 1, at which the age is at most `limit` s; None if no time was measured.
    fn fraction_within(&self, limit: f64) -> Option<f64> {
        let within = |tooth: &Tooth| {
            let (from, to) = (tooth.from.as_secs_f64(), tooth.to.as_secs_f64());
            (limit.min(to) - from).max(0.0)
        };
        let total: f64 = self.teeth.iter().map(|tooth| (tooth.to - tooth.from).as_secs_f64()).sum();
        (total > 0.0).then(|| self.teeth.iter().map(within).sum::<f64>() / total)
    }

    /// The saw-tooth: time_s and age_s, a line at the beginning and at the end of each tooth.
    fn sawtooth(&self) -> PyResult<Table> {
        let start = |tooth: &Tooth| self.base + tooth.at.since(Time::ZERO).as_secs_f64();
        let lines = self.teeth.iter().flat_map(|tooth| {
            let (at, from, to) = (start(tooth), tooth.from.as_secs_f64(), tooth.to.as_secs_f64());
            [(at, from), (at + (to - from), to)]
        });
        let (times, ages) = lines.unzip();
        Columns::default().numbers("time_s", times).numbers("age_s", ages).table()
    }

    /// The distribution of the age over time: age_s and probability, at most `points` lines. Between lines it is linear.
    #[pyo3(signature = (points=1000))]
    fn cdf(&self, points: usize) -> PyResult<Table> {
        let cdf = self.distribution();
        let points = points.max(2);
        let kept: Vec<_> = match cdf.len() > points {
            true => (0..points).map(|at| cdf[at * (cdf.len() - 1) / (points - 1)]).collect(),
            false => cdf,
        };
        let (ages, probabilities) = kept.into_iter().unzip();
        Columns::default().numbers("age_s", ages).numbers("probability", probabilities).table()
    }

    fn __repr__(&self) -> String {
        let mean = self.mean().map_or("unknown".to_owned(), |mean| format!("{mean:.4} s"));
        format!("<freshline.AgeProcess of {:.3} s, mean {mean}>", self.duration())
    }
}

impl AgeProcess {
    /// Ages and the fraction of time at or below them, exact: each tooth spends equal time at each of its ages.
    fn distribution(&self) -> Vec<(f64, f64)> {
        let mut edges: Vec<(Span, i64)> =
            self.teeth.iter().flat_map(|tooth| [(tooth.from, 1), (tooth.to, -1)]).collect();
        edges.sort_unstable();
        let total: f64 = self.teeth.iter().map(|tooth| (tooth.to - tooth.from).as_secs_f64()).sum();
        if total <= 0.0 {
            return Vec::new();
        }
        let (mut covered, mut teeth) = (0.0, 0i64);
        let mut cdf: Vec<(f64, f64)> = Vec::with_capacity(edges.len());
        let mut last = Span::ZERO;
        for (age, change) in edges {
            covered += teeth as f64 * (age - last).as_secs_f64();
            (last, teeth) = (age, teeth + change);
            let point = (age.as_secs_f64(), (covered / total).min(1.0));
            match cdf.last_mut() {
                Some(known) if known.0 == point.0 => *known = point,
                _ => cdf.push(point),
            }
        }
        cdf
    }
}

fn check(
    received: &[f64],
    generated: &[f64],
    start: Option<f64>,
    end: Option<f64>,
) -> PyResult<()> {
    let bad = |what: String| Err(PyValueError::new_err(what));
    if received.len() != generated.len() {
        return bad(format!(
            "{} times of receipt and {} of generation; give one of each per delivery",
            received.len(),
            generated.len()
        ));
    }
    for (at, (received, generated)) in received.iter().zip(generated).enumerate() {
        if !(received.is_finite() && generated.is_finite()) {
            return bad(format!("delivery {at} has a time that is no number; leave it out"));
        }
        if generated > received {
            return bad(format!(
                "delivery {at} was received {} s before it was generated; correct the offset of the two clocks",
                generated - received
            ));
        }
    }
    if received.is_empty() && start.is_none() {
        return bad("no delivery; give at least one, or `start`".to_owned());
    }
    if let Some(start) = start.filter(|start| !start.is_finite()) {
        return bad(format!("`start` is {start}; give a time in s"));
    }
    let all = || received.iter().chain(generated).copied().chain(start).chain(end);
    let (earliest, latest) =
        (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    if latest - earliest > MAX_SECONDS {
        return bad(format!(
            "the times span {} s, which is more than a century; give them in s",
            latest - earliest
        ));
    }
    let first = received.iter().copied().fold(f64::INFINITY, f64::min);
    if let (Some(start), Some(end)) = (start.or(Some(first)), end)
        && (!end.is_finite() || end < start)
    {
        return bad(format!("`end` ({end} s) is before the start ({start} s)"));
    }
    Ok(())
}
