//! Tables of numbers and texts, as Arrow has them.
//!
//! Other packages read them through the PyCapsule interface of Arrow without a copy, and `numpy` through the buffer
//! protocol.
//!
//! Unsafe: the buffer protocol is a struct of pointers that CPython asks for.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, RecordBatchIterator, StringViewArray,
    UInt32Array, UInt64Array,
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyBufferError, PyIndexError, PyKeyError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

/// A table in memory: columns of numbers and texts, all of one length.
///
/// It has Arrow's PyCapsule interface: `polars.DataFrame(table)`, `pyarrow.table(table)` and
/// `pandas.DataFrame.from_arrow(table)` read it without copying numbers.
#[pyclass(frozen, module = "freshline")]
pub(crate) struct Table(RecordBatch);

/// Makes a [`Table`], column by column.
#[derive(Default)]
pub(crate) struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl Columns {
    /// Whether values may be missing is said by the kind of a column and not by its values, so that the tables of several
    /// runs have one schema.
    fn add(mut self, name: &str, array: ArrayRef, is_nullable: bool) -> Self {
        self.fields.push(Field::new(name, array.data_type().clone(), is_nullable));
        self.arrays.push(array);
        self
    }

    /// Numbers; NaN is unknown.
    pub(crate) fn numbers(self, name: &str, values: Vec<f64>) -> Self {
        let is_complete = values.iter().all(|value| !value.is_nan());
        let known = (!is_complete).then(|| values.iter().map(|value| !value.is_nan()).collect());
        let values = ScalarBuffer::from(values);
        self.add(name, Arc::new(Float64Array::new(values, known.map(NullBuffer::new))), true)
    }

    /// Numbers, some of which are unknown.
    pub(crate) fn options(self, name: &str, values: impl Iterator<Item = Option<f64>>) -> Self {
        self.numbers(name, values.map(|value| value.unwrap_or(f64::NAN)).collect())
    }

    /// Counts.
    pub(crate) fn counts(self, name: &str, values: Vec<u32>) -> Self {
        self.add(name, Arc::new(UInt32Array::from(values)), false)
    }

    /// Long counts.
    pub(crate) fn long_counts(self, name: &str, values: Vec<u64>) -> Self {
        self.add(name, Arc::new(UInt64Array::from(values)), false)
    }

    /// Yes or no.
    pub(crate) fn flags(self, name: &str, values: Vec<bool>) -> Self {
        self.add(name, Arc::new(BooleanArray::from(values)), false)
    }

    /// Texts.
    pub(crate) fn texts<T: AsRef<str>>(
        self,
        name: &str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        self.add(name, Arc::new(StringViewArray::from_iter_values(values)), false)
    }

    /// Texts, some of which are missing.
    pub(crate) fn optional_texts<T: AsRef<str>>(
        self,
        name: &str,
        values: impl Iterator<Item = Option<T>>,
    ) -> Self {
        self.add(name, Arc::new(values.collect::<StringViewArray>()), true)
    }

    /// The table.
    pub(crate) fn table(self) -> PyResult<Table> {
        let schema = Arc::new(Schema::new(self.fields));
        RecordBatch::try_new(schema, self.arrays)
            .map(Table)
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }
}

#[pymethods]
impl Table {
    /// The number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.num_rows()
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.num_rows()
    }

    fn __getitem__(&self, name: &str) -> PyResult<Column> {
        let Some(array) = self.0.column_by_name(name) else {
            let known = self.column_names().join(", ");
            return Err(PyKeyError::new_err(format!("no column {name:?}; there are: {known}")));
        };
        Ok(Column::new(name, Arc::clone(array)))
    }

    fn __contains__(&self, name: &str) -> bool {
        self.0.column_by_name(name).is_some()
    }

    /// All columns as lists, by their names; None marks an unknown value.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (field, array) in self.0.schema_ref().fields().iter().zip(self.0.columns()) {
            let column = Column::new(field.name(), Arc::clone(array));
            let values =
                (0..array.len()).map(|at| column.at(py, at)).collect::<PyResult<Vec<_>>>()?;
            dict.set_item(field.name(), PyList::new(py, values)?)?;
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!("<freshline.Table of {} rows: {}>", self.num_rows(), self.column_names().join(", "))
    }

    /// The schema for Arrow's PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.0.schema_ref().as_ref())
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The table for Arrow's PyCapsule interface. Requested schemas are not followed, as the interface permits.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// A column of a [`Table`]. One of numbers has the buffer protocol: `numpy.asarray(column)` does not copy them, and an
/// unknown value is NaN there.
#[pyclass(frozen, module = "freshline", sequence)]
pub(crate) struct Column {
    /// Its name.
    #[pyo3(get)]
    name: String,
    array: ArrayRef,
    /// Of the buffer protocol.
    shape: [ffi::Py_ssize_t; 1],
    strides: [ffi::Py_ssize_t; 1],
}

impl Column {
    fn new(name: &str, array: ArrayRef) -> Self {
        let width = array.data_type().primitive_width().unwrap_or(0);
        let (shape, strides) = ([array.len().cast_signed()], [width.cast_signed()]);
        Self { name: name.to_owned(), array, shape, strides }
    }

    fn at<'py>(&self, py: Python<'py>, at: usize) -> PyResult<Bound<'py, PyAny>> {
        if self.array.is_null(at) {
            return Ok(py.None().into_bound(py));
        }
        Ok(match self.array.data_type() {
            DataType::Float64 => {
                self.array.as_primitive::<Float64Type>().value(at).into_pyobject(py)?.into_any()
            }
            DataType::UInt32 => {
                self.array.as_primitive::<UInt32Type>().value(at).into_pyobject(py)?.into_any()
            }
            DataType::UInt64 => {
                self.array.as_primitive::<UInt64Type>().value(at).into_pyobject(py)?.into_any()
            }
            DataType::Boolean => {
                self.array.as_boolean().value(at).into_pyobject(py)?.to_owned().into_any()
            }
            _ => self.array.as_string_view().value(at).into_pyobject(py)?.into_any(),
        })
    }

    /// Its numbers with the format of `struct`; `None` of texts and flags.
    fn numbers(&self) -> Option<(*const u8, &'static std::ffi::CStr)> {
        match self.array.data_type() {
            DataType::Float64 => {
                let values = self.array.as_primitive::<Float64Type>().values();
                Some((values.inner().as_ptr(), c"d"))
            }
            DataType::UInt32 => {
                let values = self.array.as_primitive::<UInt32Type>().values();
                Some((values.inner().as_ptr(), c"I"))
            }
            DataType::UInt64 => {
                let values = self.array.as_primitive::<UInt64Type>().values();
                Some((values.inner().as_ptr(), c"Q"))
            }
            _ => None,
        }
    }
}

/// The values of a column, one after the other.
#[pyclass(frozen, module = "freshline._native")]
pub(crate) struct Values {
    column: Py<Column>,
    next: AtomicUsize,
}

#[pymethods]
impl Values {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let column = self.column.get();
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        (at < column.array.len()).then(|| column.at(py, at)).transpose()
    }
}

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.array.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, at: isize) -> PyResult<Bound<'py, PyAny>> {
        let len = self.array.len().cast_signed();
        let from_start = if at < 0 { at + len } else { at };
        match from_start {
            0.. if from_start < len => self.at(py, from_start.unsigned_abs()),
            _ => Err(PyIndexError::new_err(format!("row {at} of a column of {len} rows"))),
        }
    }

    fn __iter__(this: Bound<'_, Self>) -> Values {
        Values { column: this.unbind(), next: AtomicUsize::new(0) }
    }

    fn __repr__(&self) -> String {
        format!("<freshline.Column {} of {} rows>", self.name, self.array.len())
    }

    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let column = this.get();
        let Some((values, format)) = column.numbers() else {
            let what = format!("column {} holds no numbers; use list(column)", column.name);
            return Err(PyBufferError::new_err(what));
        };
        if flags & ffi::PyBUF_WRITABLE != 0 {
            return Err(PyBufferError::new_err("a column cannot be written"));
        }
        // SAFETY: CPython gives a view to be filled. Its memory lives as long as the column, which
        // the view holds, and neither moves nor changes: arrays are immutable, and the column is
        // frozen.
        unsafe {
            (*view).buf = values.cast_mut().cast::<c_void>();
            (*view).len = column.shape[0] * column.strides[0];
            (*view).readonly = 1;
            (*view).itemsize = column.strides[0];
            (*view).format = match flags & ffi::PyBUF_FORMAT {
                0 => ptr::null_mut(),
                _ => format.as_ptr().cast_mut(),
            };
            (*view).ndim = 1;
            (*view).shape = match flags & ffi::PyBUF_ND {
                0 => ptr::null_mut(),
                _ => column.shape.as_ptr().cast_mut(),
            };
            (*view).strides = match flags & ffi::PyBUF_STRIDES {
                ffi::PyBUF_STRIDES => column.strides.as_ptr().cast_mut(),
                _ => ptr::null_mut(),
            };
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = ptr::null_mut();
            (*view).obj = this.into_any().into_ptr();
        }
        Ok(())
    }
}
