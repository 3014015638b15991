//! The handle of a topic.

use std::process;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::open::is_exiting;
use crate::error;
use crate::payload::{bytes_of, to_json, to_msgpack, to_numpy};
use crate::time::Seconds;

/// A handle to one topic, through which an application gives states to a source. Any thread can use it.
#[pyclass(frozen, module = "freshline")]
pub(crate) struct Topic {
    topic: freshline::Topic,
    /// The process that has its source.
    process: u32,
}

/// The replaced state, as bytes.
type Replaced<'py> = Option<Bound<'py, PyBytes>>;

impl Topic {
    pub(crate) fn new(topic: freshline::Topic) -> Self {
        Self { topic, process: process::id() }
    }

    /// The handle, unless this is a child by `fork`, from which nothing is sent.
    fn here(&self) -> PyResult<&freshline::Topic> {
        if self.process == process::id() { Ok(&self.topic) } else { Err(error::forked()) }
    }

    /// Sets a state that was sampled `age` ago, now unless given.
    pub(crate) fn set<'py>(
        &self,
        py: Python<'py>,
        state: Vec<u8>,
        age: Option<Seconds>,
    ) -> PyResult<Replaced<'py>> {
        let replaced = match age {
            Some(age) => self.here()?.put_aged(age.0, state),
            None => self.here()?.put(state),
        };
        let replaced = replaced.map_err(|error| error::of_put(&error))?;
        Ok(replaced.map(|state| PyBytes::new(py, &state)))
    }
}

#[pymethods]
impl Topic {
    /// The topic's name; empty for a source without topics.
    #[getter]
    fn name(&self) -> &str {
        self.topic.name()
    }

    /// Sets the newest state, sampled now, or `age` seconds ago. Never waits for the network. Returns the previous
    /// state if it was replaced before it was sent.
    ///
    /// A state is bytes, text, or any object with the buffer protocol, such as a numpy array.
    #[pyo3(signature = (state, *, age=None))]
    fn put<'py>(&self, state: &Bound<'py, PyAny>, age: Option<Seconds>) -> PyResult<Replaced<'py>> {
        self.set(state.py(), bytes_of(state)?, age)
    }

    /// `put` of a value as JSON.
    #[pyo3(signature = (value, *, age=None))]
    fn put_json<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        age: Option<Seconds>,
    ) -> PyResult<Replaced<'py>> {
        self.set(value.py(), to_json(value)?, age)
    }

    /// `put` of a value as MessagePack; needs the package msgpack.
    #[pyo3(signature = (value, *, age=None))]
    fn put_msgpack<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        age: Option<Seconds>,
    ) -> PyResult<Replaced<'py>> {
        self.set(value.py(), to_msgpack(value)?, age)
    }

    /// `put` of a numpy array with its type and shape (NPY), for `State.numpy`; adds some 128 bytes. `put(array)` sends
    /// the bare numbers.
    #[pyo3(signature = (array, *, age=None))]
    fn put_numpy<'py>(
        &self,
        array: &Bound<'py, PyAny>,
        age: Option<Seconds>,
    ) -> PyResult<Replaced<'py>> {
        self.set(array.py(), to_numpy(array)?, age)
    }

    /// Sets the newest state of a key of 1 to 64 bytes, for topics of kind "keyed".
    fn put_key<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        state: &Bound<'py, PyAny>,
    ) -> PyResult<Replaced<'py>> {
        let replaced = self.here()?.put_key(bytes_of(key)?, bytes_of(state)?);
        let replaced = replaced.map_err(|error| error::of_put(&error))?;
        Ok(replaced.map(|state| PyBytes::new(key.py(), &state)))
    }

    /// Removes a key, also at the monitors. Returns the state of the key that was not sent yet.
    fn remove_key<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Replaced<'py>> {
        let replaced =
            self.here()?.remove_key(bytes_of(key)?).map_err(|error| error::of_put(&error))?;
        Ok(replaced.map(|state| PyBytes::new(key.py(), &state)))
    }

    /// Queues a record of at most 64 KiB, for topics of kind "every": each record arrives once and in order. Raises
    /// FullError while the buffer is full.
    fn push(&self, record: &Bound<'_, PyAny>) -> PyResult<()> {
        self.here()?.push(bytes_of(record)?).map_err(|error| error::of_put(&error))
    }

    /// Calls `sample()` for each update, at the moment of sending, which gives the freshest state.
    /// It runs on the network's thread and must be quick. If it raises, no update leaves, the event
    /// "trouble" gives the reason, and it is called again after 100 ms. `put` ends it. The source
    /// holds the function, and everything that it refers to, until it is closed.
    fn sample_with(&self, sample: Py<PyAny>) -> PyResult<()> {
        if !Python::attach(|py| sample.bind(py).is_callable()) {
            return Err(PyTypeError::new_err("sample_with needs a function that returns a state"));
        }
        let sampled = self.here()?.try_sample_with(move |state| {
            if is_exiting() {
                return Err("the interpreter exits".to_owned());
            }
            Python::attach(|py| {
                let sampled = sample.call0(py).and_then(|value| bytes_of(value.bind(py)));
                *state =
                    sampled.map_err(|error| format!("the function for samples raised {error}"))?;
                Ok(())
            })
        });
        sampled.map_err(|error| error::of_put(&error))
    }

    /// The number of states that were replaced by a newer one before they were sent.
    #[getter]
    fn replaced(&self) -> u64 {
        self.topic.replaced()
    }

    fn __repr__(&self) -> String {
        format!("<freshline.Topic {:?}>", self.topic.name())
    }
}
