//! States as Python gives them, and codecs for them.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PyString};

/// The bytes of a state: `bytes`, text as UTF-8, or anything with the buffer protocol, such as a `numpy` array. They are
/// copied once.
pub(crate) fn bytes_of(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_str()?.as_bytes().to_vec());
    }
    let py = value.py();
    if let Ok(buffer) = PyBuffer::<u8>::get(value) {
        return buffer.to_vec(py);
    }
    let view = PyMemoryView::from(value).map_err(|_| {
        PyTypeError::new_err(format!(
            "a state is bytes, text, or an object with the buffer protocol, not {}; see put_json, put_msgpack and \
             put_numpy, and array.view(\"uint8\") of arrays whose items no buffer can describe",
            value.get_type()
        ))
    })?;
    let format: String = view.getattr("format")?.extract()?;
    if format.contains(['O', 'P']) {
        let what = format!(
            "a state of items of format {format:?} would send addresses of memory; use put_msgpack or put_json"
        );
        return Err(PyTypeError::new_err(what));
    }
    // Of other items than bytes: as bytes in C order.
    match view.call_method1("cast", ("B",)) {
        Ok(bytes) => PyBuffer::<u8>::get(&bytes)?.to_vec(py),
        Err(_) => {
            let bytes = view.call_method0("tobytes")?;
            let bytes = bytes.cast::<PyBytes>().map_err(|_| {
                PyBufferError::new_err("this buffer cannot be read as bytes; make it contiguous")
            })?;
            Ok(bytes.as_bytes().to_vec())
        }
    }
}

/// A value as compact JSON.
pub(crate) fn to_json(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = value.py();
    let options = PyDict::new(py);
    options.set_item("separators", (",", ":"))?;
    options.set_item("allow_nan", false)?;
    options.set_item("ensure_ascii", false)?;
    let text = py.import("json")?.call_method("dumps", (value,), Some(&options))?;
    bytes_of(&text)
}

/// A value of JSON.
pub(crate) fn from_json<'py>(py: Python<'py>, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (PyBytes::new(py, payload),))
}

/// A value as MessagePack.
pub(crate) fn to_msgpack(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let packed = codec(value.py(), "msgpack")?.call_method1("packb", (value,))?;
    bytes_of(&packed)
}

/// A value of MessagePack.
pub(crate) fn from_msgpack<'py>(py: Python<'py>, payload: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    codec(py, "msgpack")?.call_method1("unpackb", (PyBytes::new(py, payload),))
}

/// An array with its type and shape, in numpy's own format (NPY).
pub(crate) fn to_numpy(array: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = array.py();
    let file = py.import("io")?.call_method0("BytesIO")?;
    let options = PyDict::new(py);
    options.set_item("allow_pickle", false)?;
    codec(py, "numpy")?.call_method("save", (&file, array), Some(&options))?;
    bytes_of(&file.call_method0("getbuffer")?)
}

/// The array of a state in numpy's own format (NPY), which reads the state's memory. Objects are refused: to unpickle them
/// would run code of the sender.
pub(crate) fn from_numpy<'py>(
    state: &Bound<'py, PyAny>,
    payload: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let py = state.py();
    let numpy = codec(py, "numpy")?;
    let format = py.import("numpy.lib.format")?;
    let not_one = |why: &dyn std::fmt::Display| {
        PyValueError::new_err(format!("the payload is no array that put_numpy sent: {why}"))
    };
    let front = &payload[..payload.len().min(MAX_HEADER)];
    let file = py.import("io")?.call_method1("BytesIO", (PyBytes::new(py, front),))?;
    let read = || {
        let version: (u8, u8) = format.call_method1("read_magic", (&file,))?.extract()?;
        let header = match version {
            (1, 0) => "read_array_header_1_0",
            _ => "read_array_header_2_0",
        };
        let (shape, is_fortran, dtype): (Bound<'_, PyAny>, bool, Bound<'_, PyAny>) =
            format.call_method1(header, (&file,))?.extract()?;
        if dtype.getattr("hasobject")?.extract()? {
            return Err(PyValueError::new_err("it has Python objects"));
        }
        let offset: usize = file.call_method0("tell")?.extract()?;
        let order = if is_fortran { "F" } else { "C" };
        let options = PyDict::new(py);
        let settings = [("shape", shape), ("dtype", dtype), ("buffer", state.clone())];
        settings.into_iter().try_for_each(|(name, value)| options.set_item(name, value))?;
        options.set_item("offset", offset)?;
        options.set_item("order", order)?;
        let array = numpy.call_method("ndarray", (), Some(&options))?;
        let len: usize = array.getattr("nbytes")?.extract()?;
        match offset + len == payload.len() {
            true => Ok(array),
            false => Err(PyValueError::new_err("its length is not that of its header")),
        }
    };
    read().map_err(|error: PyErr| not_one(&error))
}

/// The longest header of NPY that is read, in bytes.
const MAX_HEADER: usize = 16_384;

/// An optional package.
fn codec<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(name).map_err(|error| {
        let what = format!("this needs the package {name}: pip install freshline[{name}]");
        let missing = pyo3::exceptions::PyImportError::new_err(what);
        missing.set_cause(py, Some(error));
        missing
    })
}
