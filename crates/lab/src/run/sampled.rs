//! A number in all runs of a scenario: its mean, its confidence interval, and its relation to
//! another number.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{Metric, Number};

/// A number with its values in all runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The metric.
    pub name: &'static str,
    /// The flow or link that it belongs to.
    pub of: String,
    /// Its unit, as in [`Metric::unit`].
    pub unit: &'static str,
    /// Its values in the runs in which it is known.
    values: BTreeMap<usize, f64>,
}

impl Sampled {
    /// A number with its value in each run.
    pub fn of_runs(name: &'static str, of: &str, unit: &'static str, values: &[f64]) -> Self {
        let values = values.iter().copied().enumerate().collect();
        Self { name, of: of.to_owned(), unit, values }
    }

    /// Its mean over the runs in which it is known.
    pub fn metric(&self) -> Metric {
        let Self { name, of, unit, .. } = self.clone();
        let values: Vec<f64> = self.values.values().copied().collect();
        Metric { name, of, value: mean(&values), unit, ci95: confidence(&values) }
    }

    /// The ratio of this number to another one, run by run: both have the same random numbers
    /// there. Runs in which one of them is unknown are left out.
    pub fn over(&self, other: &Self) -> Self {
        let ratio = |(run, value): (&usize, &f64)| Some((*run, value / other.values.get(run)?));
        let values = self.values.iter().filter_map(ratio).collect();
        Self { values, unit: "1", ..self.clone() }
    }

    /// This number minus `factor` times another one, run by run. Runs in which one of them is
    /// unknown are left out.
    pub fn minus(&self, factor: f64, other: &Self) -> Self {
        let less =
            |(run, value): (&usize, &f64)| Some((*run, value - factor * other.values.get(run)?));
        Self { values: self.values.iter().filter_map(less).collect(), ..self.clone() }
    }

    /// The sum of both, run by run. Runs in which one of them is unknown are left out.
    pub fn plus(&self, other: &Self) -> Self {
        self.minus(-1.0, other)
    }

    /// The standard deviation over the runs; `None` with fewer than two.
    pub fn deviation(&self) -> Option<f64> {
        deviation(&self.values.values().copied().collect::<Vec<_>>())
    }
}

/// The numbers of all runs, by name. A number that is unknown in a run is left out there.
pub(super) fn samples(runs: Vec<Vec<Number>>) -> Vec<Sampled> {
    let mut samples: Vec<Sampled> = Vec::new();
    for (run, measured) in runs.into_iter().enumerate() {
        for Number { name, of, value, unit } in measured {
            let known = samples.iter_mut().find(|known| known.name == name && known.of == of);
            if let Some(known) = known {
                known.values.insert(run, value);
            } else {
                samples.push(Sampled { name, of, unit, values: BTreeMap::from([(run, value)]) });
            }
        }
    }
    samples
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Half the width of the 95 % confidence interval of the mean, by Student's t; `None` for fewer
/// than two values.
pub fn confidence(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let deviation = deviation(values)?;
    let t = StudentsT::new(0.0, 1.0, count - 1.0).ok()?.inverse_cdf(0.975);
    Some(t * deviation / count.sqrt())
}

/// The standard deviation of the distribution from which the values were drawn.
fn deviation(values: &[f64]) -> Option<f64> {
    let freedom = values.len().checked_sub(2)? as f64 + 1.0;
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    Some((squares / freedom).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_the_one_of_the_tables() {
        assert_eq!(confidence(&[1.0]), None);
        // t for 3 degrees of freedom is 3.182; the deviation of 1 2 3 4 is 1.291.
        let width = confidence(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!((width - 3.182 * 1.291 / 2.0).abs() < 1e-3, "{width}");
    }

    #[test]
    fn a_ratio_is_of_each_run_and_leaves_out_those_that_do_not_know_both() {
        let sampled = |values: &[(usize, f64)]| Sampled {
            name: "goodput",
            of: "tcp".to_owned(),
            unit: "bit/s",
            values: values.iter().copied().collect(),
        };
        let ratio = sampled(&[(0, 1.0), (1, 3.0), (2, 9.0)]).over(&sampled(&[(0, 2.0), (1, 2.0)]));
        assert_eq!(ratio, Sampled { unit: "1", ..sampled(&[(0, 0.5), (1, 1.5)]) });
        assert_eq!(ratio.metric().value, 1.0, "and not 4.3 / 2");
        assert_eq!(ratio.deviation(), Some(0.5f64.sqrt()));
    }
}
