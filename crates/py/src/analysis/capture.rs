//! Ages in a packet capture.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use freshline_lab::capture::{CaptureError, Limits, measure};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error;
use crate::lab::while_looking;

/// A capture: its bytes, or its path.
#[derive(FromPyObject)]
pub(crate) enum Capture {
    /// The contents of a file.
    Bytes(Vec<u8>),
    /// A file.
    Path(PathBuf),
}

/// A file of which nothing more is read once `stop` is true.
struct Stoppable<'a> {
    input: Box<dyn Read + Send>,
    stop: &'a AtomicBool,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(io::Error::other("cancelled")),
            false => self.input.read(buffer),
        }
    }
}

/// Measures the ages in a packet capture (pcap or pcapng), as `freshline age` does: a dictionary as in `docs/json.md`.
/// A capture that is cut short or damaged is measured up to there, and `error` says so.
#[pyfunction]
#[pyo3(signature = (capture, *, max_flows=1000))]
pub(crate) fn age_of_capture<'py>(
    py: Python<'py>,
    capture: Capture,
    max_flows: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let limits = Limits { max_flows: max_flows.max(1), ..Limits::default() };
    let opened;
    let bytes;
    let input: Box<dyn Read + Send> = match capture {
        Capture::Path(path) => {
            opened = File::open(&path).map_err(|error| {
                let what = format!("cannot open the capture {}: {error}", path.display());
                PyErr::from(io::Error::new(error.kind(), what))
            })?;
            Box::new(opened)
        }
        Capture::Bytes(given) => {
            bytes = std::io::Cursor::new(given);
            Box::new(bytes)
        }
    };
    let stop = AtomicBool::new(false);
    let input = Stoppable { input, stop: &stop };
    let measured = while_looking(py, &stop, || Ok(()), || measure(input, limits))?;
    if let Some(error) = measured.error.as_ref().filter(|error| CaptureError::is_foreign(error)) {
        return Err(error::of_capture(error));
    }
    let report = pythonize::pythonize(py, &measured.report)?;
    let error = measured.error.as_ref().map(|error| error::text_of(error));
    report.cast::<PyDict>()?.set_item("error", error)?;
    Ok(report)
}
