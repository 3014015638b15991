//! Analysis of measurements: captures, age processes, closed forms, fairness and confidence.

mod capture;
mod process;
mod theory;

pub(crate) use capture::age_of_capture;
pub(crate) use process::AgeProcess;
pub(crate) use theory::{Queues, confidence, jain_index, path_lower_bound};

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

/// Numbers: a buffer of them, such as an array of `numpy` or a column of a table, or any sequence.
pub(crate) fn numbers_of(values: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    match PyBuffer::<f64>::get(values) {
        Ok(buffer) if is_native(&buffer) => buffer.to_vec(values.py()),
        _ => values.try_iter()?.map(|value| value?.extract::<f64>()).collect(),
    }
}

/// Whether its numbers have this machine's order of bytes, which `PyBuffer` does not check.
fn is_native(buffer: &PyBuffer<f64>) -> bool {
    let foreign: &[u8] = if cfg!(target_endian = "little") { b">!" } else { b"<" };
    buffer.format().to_bytes().first().is_none_or(|order| !foreign.contains(order))
}
