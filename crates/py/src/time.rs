//! Times and rates as Python gives them.

use std::time::Duration;

use freshline_core::unit::{BitRate, Span, Time, UpdateRate};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDelta, PyString};

use crate::error;

/// The longest time that is accepted, in s: a century.
const MAX_SECONDS: f64 = 3.2e9;

/// A length of time: a number of seconds, a `datetime.timedelta`, or text such as "200ms".
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

impl FromPyObject<'_, '_> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            let span: Span = parsed(text.to_str()?)?;
            return Ok(Self(span.into()));
        }
        let seconds = match value.extract::<f64>() {
            Ok(seconds) => seconds,
            Err(_) => {
                let delta = value.cast::<PyDelta>().map_err(|_| {
                    let what = "a time is a number of seconds, a datetime.timedelta, or text such as \"200ms\"";
                    PyTypeError::new_err(what)
                })?;
                delta.call_method0("total_seconds")?.extract::<f64>()?
            }
        };
        if !(0.0..=MAX_SECONDS).contains(&seconds) {
            let what = format!("a time of {seconds} s: give 0 to {MAX_SECONDS:e} s");
            return Err(error::setting(what));
        }
        Ok(Self(Duration::from_secs_f64(seconds)))
    }
}

/// A moment of virtual time in s.
pub(crate) fn seconds(time: Time) -> f64 {
    time.since(Time::ZERO).as_secs_f64()
}

/// A time in s, as all times are read.
#[pyfunction]
#[pyo3(name = "_seconds")]
pub(crate) fn seconds_of(time: Seconds) -> f64 {
    time.0.as_secs_f64()
}

/// A rate of updates: a number per second, or text such as "50/s".
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate(pub(crate) UpdateRate);

impl FromPyObject<'_, '_> for Rate {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return parsed(text.to_str()?).map(Self);
        }
        let per_second: f64 = value.extract()?;
        let rate = UpdateRate::new(per_second).ok_or_else(|| {
            error::setting(format!("a rate of {per_second}/s: give 1e-10 to 1e9 per second"))
        })?;
        Ok(Self(rate))
    }
}

/// A bandwidth: a number of bits per second, or text such as "5mbit".
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bandwidth(pub(crate) BitRate);

impl FromPyObject<'_, '_> for Bandwidth {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return parsed(text.to_str()?).map(Self);
        }
        let bps: f64 = value.extract()?;
        match (1.0..=1e15).contains(&bps) {
            true => Ok(Self(BitRate::from_bps(bps.round() as u64))),
            false => Err(error::setting(format!("a bandwidth of {bps} bit/s: give 1 to 1e15"))),
        }
    }
}

/// Reads a text, with the library's message if it cannot be understood.
pub(crate) fn parsed<T>(text: &str) -> PyResult<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| error::setting(error.to_string()))
}
