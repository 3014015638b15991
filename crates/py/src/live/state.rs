//! A received state.
//!
//! Unsafe: the buffer protocol is a struct of pointers that CPython asks for.

use std::ffi::c_int;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::payload;

/// A received state or record.
///
/// `memoryview(state)` and `numpy.frombuffer(state, dtype)` read the payload without a copy. A record is acknowledged
/// to its source by `done()`, or when no variable holds it any more.
#[pyclass(frozen, module = "freshline")]
pub(crate) struct State(pub(crate) freshline::State);

#[pymethods]
impl State {
    /// The name of its source, or a label of the session if it has none.
    #[getter]
    fn source(&self) -> &str {
        self.0.source()
    }

    /// The name of its topic; empty for a source without topics.
    #[getter]
    fn topic(&self) -> &str {
        self.0.topic()
    }

    /// `SOURCE/TOPIC`, or the source's name alone if it has no topics.
    #[getter]
    fn name(&self) -> String {
        self.0.name()
    }

    /// The key, for topics with keys.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0.key().map(|key| PyBytes::new(py, key))
    }

    /// The payload as bytes, which is a copy; empty if the key was removed.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.payload())
    }

    /// The payload as text. Raises UnicodeDecodeError if it is not UTF-8.
    fn text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        match self.0.text() {
            Some(text) => Ok(PyString::new(py, text)),
            None => {
                let text = self.payload(py).call_method0("decode")?;
                text.cast_into().map_err(|_| PyTypeError::new_err("not text"))
            }
        }
    }

    /// The value of a payload of JSON.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        payload::from_json(py, self.0.payload())
    }

    /// The value of a payload of MessagePack; needs the package msgpack.
    fn msgpack<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        payload::from_msgpack(py, self.0.payload())
    }

    /// The array that `Topic.put_numpy` sent, which reads the payload's memory and cannot be written; needs the package
    /// numpy.
    fn numpy<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        payload::from_numpy(this.as_any(), this.get().0.payload())
    }

    /// Whether this reports that the key was removed.
    #[getter]
    fn is_removed(&self) -> bool {
        self.0.is_removed()
    }

    /// Whether this is a record.
    #[getter]
    fn is_record(&self) -> bool {
        self.0.is_record()
    }

    /// Acknowledges a record to its source now, although a variable still holds it. Does nothing with a state.
    fn done(&self, py: Python<'_>) {
        py.detach(|| self.0.done());
    }

    /// The sequence number of the session's newest update at the time of receipt.
    #[getter]
    fn seq(&self) -> u64 {
        self.0.seq()
    }

    /// Its age now, in s; None in the first round trips of a session.
    #[getter]
    fn age(&self) -> Option<f64> {
        self.0.age().map(|age| age.as_secs_f64())
    }

    /// The maximum error of `age` in s, in either direction.
    #[getter]
    fn age_uncertainty(&self) -> Option<f64> {
        self.0.age_uncertainty().map(|age| age.as_secs_f64())
    }

    /// Whether the state is younger than the maximum age; True without a maximum age.
    #[getter]
    fn is_usable(&self) -> bool {
        self.0.is_usable()
    }

    fn __len__(&self) -> usize {
        self.0.payload().len()
    }

    /// True, also without a payload: `while state := states.next()` ends at the end alone.
    fn __bool__(&self) -> bool {
        true
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.payload(py)
    }

    fn __repr__(&self) -> String {
        let (name, len) = (self.name(), self.0.payload().len());
        let age = self.age().map_or("of unknown age".to_owned(), |age| format!("{age:.4} s old"));
        format!("<freshline.State {name} of {len} bytes, {age}>")
    }

    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let payload = this.get().0.payload();
        let (start, len) = (payload.as_ptr().cast_mut().cast(), payload.len().cast_signed());
        // SAFETY: CPython gives a view to be filled, which then holds the state. The payload lives as long as the
        // state, and is never changed; the view is read-only.
        match unsafe { ffi::PyBuffer_FillInfo(view, this.as_ptr(), start, len, 1, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(this.py())),
        }
    }
}
