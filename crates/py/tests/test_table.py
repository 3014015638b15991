"""Tables: how Arrow, numpy and lists read them, without a copy."""

from __future__ import annotations

import ctypes
import gc
import math
from typing import Any

import pytest
from support import python

import freshline
from freshline import AgeProcess, Column, Table

SMALL = """
title = "one link"
duration = "2s"
runs = 1
[[link]]
name = "link"
forward = { rate = "1mbit", delay = "5ms", queue = "50p" }
[[flow]]
name = "robot"
path = ["link"]
[flow.updates]
law = "fixed"
rate = "20/s"
payload = "100B"
"""


@pytest.fixture(scope="module")
def million() -> Table:
    """A table of 10⁶ rows."""
    count = 500_000
    return AgeProcess(range(count), [at - 0.5 for at in range(count)]).sawtooth()


@pytest.fixture(scope="module")
def result() -> freshline.lab.Result:
    return freshline.lab.run(freshline.lab.Scenario.from_toml(SMALL))


def numbers() -> Table:
    return AgeProcess([1, 3, 4], [0, 2.5, 3]).sawtooth()


# Without other packages


def test_a_table_has_columns_by_name() -> None:
    table = numbers()
    assert table.column_names == ["time_s", "age_s"]
    assert len(table) == table.num_rows == 6
    assert "age_s" in table and "x" not in table
    assert list(table["age_s"]) == pytest.approx([1, 3, 0.5, 1.5, 1, 1])
    assert table.to_dict()["time_s"] == list(table["time_s"])
    assert repr(table) == "<freshline.Table of 6 rows: time_s, age_s>"
    assert repr(table["age_s"]) == "<freshline.Column age_s of 6 rows>"
    with pytest.raises(KeyError, match="time_s, age_s"):
        table["x"]


def test_a_column_is_a_sequence() -> None:
    column = numbers()["time_s"]
    assert column.name == "time_s" and len(column) == 6
    assert column[0] == column[-6] and column[-1] == column[5]
    for outside in (6, -7, 1 << 40):
        with pytest.raises(IndexError, match="of a column of 6 rows"):
            column[outside]
    with pytest.raises((IndexError, OverflowError)):
        column[1 << 70]
    with pytest.raises(TypeError):
        column["a"]  # type: ignore[index]
    assert 3.0 in list(column)
    assert list(reversed(column)) == list(column)[::-1]  # type: ignore[call-overload]


def test_columns_of_texts_and_counts(result: freshline.lab.Result) -> None:
    runs = result.runs
    assert set(runs["of"]) >= {"robot"}
    assert all(type(value) is str for value in runs["name"])
    assert list(runs["seed"]) == [1] * len(runs) and type(runs["run"][0]) is int
    assert type(runs["value"][0]) is float


def test_unknown_numbers_are_none_in_lists_and_nan_in_buffers(result: freshline.lab.Result) -> None:
    column = result.metrics["ci95"]
    assert set(column) == {None}, "of one run"
    assert all(math.isnan(value) for value in memoryview(column))
    assert result.metrics.to_dict()["ci95"][0] is None


def test_a_table_without_rows_has_its_columns(result: freshline.lab.Result) -> None:
    table = result.record(packets=False, ages=False, every=None).packets
    assert len(table) == 0 and "carrier" in table.column_names
    assert list(table["carrier"]) == [] and table.to_dict()["time_s"] == []
    assert memoryview(table["time_s"]).tolist() == []
    with pytest.raises(IndexError):
        table["time_s"][0]


# The buffer protocol


def test_the_memory_view_of_a_column_is_read_only() -> None:
    column = numbers()["age_s"]
    view = memoryview(column)
    assert (view.format, view.itemsize, view.ndim, view.shape, view.strides) == ("d", 8, 1, (6,), (8,))
    assert view.readonly and view.c_contiguous and view.obj is column
    with pytest.raises(TypeError):
        view[0] = 1.0
    assert view[1:3].tolist() == list(column)[1:3]


def test_each_kind_of_count_has_its_format(result: freshline.lab.Result) -> None:
    assert memoryview(result.runs["seed"]).format == "Q"
    assert memoryview(result.runs["run"]).format == "I"
    assert memoryview(result.runs["run"]).nbytes == 4 * len(result.runs)


def test_texts_have_no_buffer(result: freshline.lab.Result) -> None:
    with pytest.raises(BufferError, match="no numbers"):
        memoryview(result.runs["of"])
    for _ in range(3):
        with pytest.raises(BufferError, match="no numbers"):
            bytes(memoryview(result.metrics["unit"]))


class Buffer(ctypes.Structure):
    """`Py_buffer`."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    ]


SIMPLE, WRITABLE, FORMAT, ND, STRIDES, INDIRECT = 0, 1, 4, 8, 0x18, 0x118


def buffer_of(given: object, flags: int) -> Buffer:
    buffer = Buffer()
    get = ctypes.pythonapi.PyObject_GetBuffer
    get.argtypes = [ctypes.py_object, ctypes.POINTER(Buffer), ctypes.c_int]
    get(given, ctypes.byref(buffer), flags)
    return buffer


def release(buffer: Buffer) -> None:
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))


@pytest.mark.parametrize("flags", [SIMPLE, FORMAT, ND, ND | FORMAT, STRIDES, STRIDES | FORMAT, INDIRECT | FORMAT])
def test_a_buffer_has_the_fields_that_its_flags_request(flags: int) -> None:
    column = numbers()["age_s"]
    for given, length in ((column, 48), (column, 48)):
        buffer = buffer_of(given, flags)
        assert buffer.len == length and buffer.readonly == 1
        assert (buffer.format is not None) == bool(flags & FORMAT)
        assert bool(buffer.shape) == bool(flags & ND)
        assert bool(buffer.strides) == (flags & STRIDES == STRIDES)
        release(buffer)


@pytest.mark.parametrize("flags", [WRITABLE, WRITABLE | FORMAT | STRIDES])
def test_a_buffer_to_write_is_refused(flags: int) -> None:
    with pytest.raises(BufferError, match="written"):
        buffer_of(numbers()["age_s"], flags)


def test_a_buffer_keeps_a_column_and_lets_it_go() -> None:
    table = numbers()
    column = table["age_s"]
    import sys

    before = sys.getrefcount(column)
    buffer = buffer_of(column, STRIDES)
    assert sys.getrefcount(column) == before + 1
    release(buffer)
    assert sys.getrefcount(column) == before
    with pytest.raises(BufferError):
        buffer_of(column, WRITABLE)
    assert sys.getrefcount(column) == before, "an error holds nothing"


# numpy


def test_numpy_reads_a_column_without_a_copy_and_keeps_it(million: Table) -> None:
    numpy = pytest.importorskip("numpy")
    one, other = numpy.asarray(million["age_s"]), numpy.asarray(million["age_s"])
    assert one.__array_interface__["data"] == other.__array_interface__["data"]
    assert one.dtype == numpy.float64 and not one.flags.writeable
    table = numbers()
    array = numpy.asarray(table["age_s"])
    expected = list(table["age_s"])
    del table
    gc.collect()
    for _ in range(100):
        numbers()
    assert array.tolist() == expected


# Arrow


def test_pyarrow_shares_the_memory(million: Table) -> None:
    pyarrow, numpy = pytest.importorskip("pyarrow"), pytest.importorskip("numpy")
    table = pyarrow.table(million)
    assert table.num_rows == 1_000_000
    (chunk,) = table["age_s"].chunks
    assert chunk.buffers()[1].address == numpy.asarray(million["age_s"]).__array_interface__["data"][0]


def test_pyarrow_keeps_a_table_that_is_gone() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = numbers()
    expected = table.to_dict()
    read = pyarrow.table(table)
    del table
    gc.collect()
    for _ in range(100):
        numbers()
    assert read.to_pydict() == expected
    assert read.schema.names == ["time_s", "age_s"]
    assert pyarrow.schema(numbers()) == read.schema


@pytest.mark.parametrize("package", ["pyarrow", "polars", "pandas"])
def test_other_packages_read_all_columns(package: str, result: freshline.lab.Result) -> None:
    module = pytest.importorskip(package)
    for table in (result.metrics, result.runs, result.packets, result.ages):
        expected = table.to_dict()
        if package == "pandas":
            frame = module.DataFrame.from_arrow(table)
            read: dict[str, list[Any]] = {name: frame[name].tolist() for name in frame.columns}
            read = {name: [None if value != value else value for value in values] for name, values in read.items()}
        elif package == "polars":
            read = module.DataFrame(table).to_dict(as_series=False)
        else:
            read = module.table(table).to_pydict()
        assert read == expected


@pytest.mark.parametrize("package", ["pyarrow", "polars", "pandas"])
def test_other_packages_read_a_table_without_rows(package: str, result: freshline.lab.Result) -> None:
    module = pytest.importorskip(package)
    table = result.record(packets=False, ages=False, every=None).packets
    read = {"pyarrow": "table", "polars": "DataFrame"}
    frame = module.DataFrame.from_arrow(table) if package == "pandas" else getattr(module, read[package])(table)
    assert len(frame) == 0
    assert list(getattr(frame, "column_names", getattr(frame, "columns", []))) == table.column_names


def test_unknown_numbers_are_null_in_arrow(result: freshline.lab.Result) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    column = pyarrow.table(result.metrics)["ci95"]
    assert column.null_count == len(result.metrics)


def test_a_stream_that_is_not_read_is_freed() -> None:
    done = python(
        """
        import gc, resource, freshline
        table = freshline.AgeProcess(range(100_000), range(100_000)).sawtooth()
        def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(100): table.__arrow_c_stream__(), table.__arrow_c_schema__()
        before = peak()
        for _ in range(20_000): table.__arrow_c_stream__(None), table.__arrow_c_schema__()
        print(peak() - before < 4096)
        """
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_reading_a_million_rows_takes_no_memory() -> None:
    pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    done = python(
        """
        import freshline, numpy, pyarrow, polars, time
        def resident():
            pages = int(open("/proc/self/statm").read().split()[1])
            return pages * 4096
        small = freshline.AgeProcess([0, 1], [0, 1]).sawtooth()
        kept = [polars.DataFrame(small), pyarrow.table(small), numpy.asarray(small["age_s"])]
        count = 500_000
        table = freshline.AgeProcess(range(count), [at - 0.5 for at in range(count)]).sawtooth()
        assert len(table) == 1_000_000
        before, began = resident(), time.perf_counter()
        frames = [polars.DataFrame(table) for _ in range(20)]
        tables = [pyarrow.table(table) for _ in range(20)]
        arrays = [numpy.asarray(table[name]) for _ in range(20) for name in table.column_names]
        took = time.perf_counter() - began
        # One copy would be 16 MB.
        print(resident() - before < 8_000_000, len(frames[0]), round(took * 1000 / 60, 3), resident() - before)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True 1000000 "), done.stdout
    print("ms per reader, bytes:", done.stdout)


def test_tables_cannot_be_constructed() -> None:
    for kind in (Table, Column):
        with pytest.raises(TypeError):
            kind()


def test_tables_of_several_runs_have_one_schema() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    # One run has no interval, two have.
    tables = [pyarrow.table(freshline.lab.run("wifi-sources", {"duration": "11s"}, runs=runs).metrics) for runs in (1, 2)]
    assert tables[0].schema == tables[1].schema
    assert len(pyarrow.concat_tables(tables)) == len(tables[0]) + len(tables[1])
