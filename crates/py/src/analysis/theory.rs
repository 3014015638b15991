//! The mean age that theory predicts, and statistics.

use freshline_core::age::theory::{Hop, Queues as Closed, path_lower_bound as bound};
use freshline_core::unit::{Span, UpdateRate};
use pyo3::prelude::*;

use super::numbers_of;
use crate::time::{Rate, Seconds};

/// Closed forms of the mean age for simple queues: first come, first served, without loss.
///
/// Kaul, Yates, Gruteser, "Real-time status: How often should one update?", INFOCOM 2012.
#[pyclass(frozen, module = "freshline")]
pub(crate) struct Queues(Closed);

#[pymethods]
impl Queues {
    /// M/M/1: updates as a Poisson process, exponential service times of rate `service` per second.
    #[staticmethod]
    fn mm1(service: Rate) -> Self {
        Self(Closed::Mm1 { service: service.0 })
    }

    /// M/D/1: updates as a Poisson process, a constant service time.
    #[staticmethod]
    fn md1(service: Rate) -> Self {
        Self(Closed::Md1 { service: service.0 })
    }

    /// D/M/1: periodic updates, exponential service times.
    #[staticmethod]
    fn dm1(service: Rate) -> Self {
        Self(Closed::Dm1 { service: service.0 })
    }

    /// Two M/M/1 queues in series, with independent service times.
    #[staticmethod]
    fn tandem_mm1(first: Rate, second: Rate) -> Self {
        Self(Closed::TandemMm1 { first: first.0, second: second.0 })
    }

    /// The rate up to which the queues stay finite, per second.
    #[getter]
    fn capacity(&self) -> f64 {
        self.0.capacity().per_second()
    }

    /// The rate with the smallest mean age, per second.
    #[getter]
    fn optimal_rate(&self) -> f64 {
        self.0.optimal_rate().per_second()
    }

    /// The mean age in s at this rate per second; None at or above the capacity, where it grows without bound.
    fn mean_age(&self, rate: f64) -> Option<f64> {
        let rate = UpdateRate::new(rate)?;
        self.0.mean_age(rate).map(Span::as_secs_f64)
    }

    /// The mean number of queued updates at this rate, without the one in service; None at or above the capacity.
    fn mean_queued(&self, rate: f64) -> Option<f64> {
        self.0.mean_waiting(UpdateRate::new(rate)?)
    }

    fn __repr__(&self) -> String {
        format!("<freshline.Queues {:?}>", self.0)
    }
}

/// The smallest mean age in s over a path of store-and-forward hops with constant delays. Each hop is a pair: the time to
/// put an update on the link (its size over the rate), and the propagation delay, in s.
#[pyfunction]
pub(crate) fn path_lower_bound(hops: Vec<(Seconds, Seconds)>) -> f64 {
    let hops = hops.into_iter().map(|(serialisation, propagation)| Hop {
        serialisation: serialisation.0.into(),
        propagation: propagation.0.into(),
    });
    bound(hops).as_secs_f64()
}

/// Jain's index of fairness: 1 if all shares are equal, also if all are zero; 1/n if one has all. None without shares, or
/// if one is negative or not finite.
#[pyfunction]
pub(crate) fn jain_index(shares: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    Ok(freshline_core::age::jain_index(numbers_of(shares)?))
}

/// Half the width of the 95 % confidence interval of the mean, by Student's t; None of fewer than two values.
#[pyfunction]
pub(crate) fn confidence(values: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    Ok(freshline_lab::run::confidence(&numbers_of(values)?))
}
