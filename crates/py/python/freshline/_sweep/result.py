"""A sweep and its results, complete or not."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import chunk as chunks
from . import errors, grid, native, plan, slurm, summary
from .arrow import ds, pa
from .errors import Failure, SweepError
from .plan import Chunk, Plan
from .progress import Progress
from .summary import Summary

if TYPE_CHECKING:
    import duckdb
    import polars


class Sweep:
    """A sweep in a directory.

    While it runs, its results come from the complete chunks. Rows: one per number that
    a run measured. Columns: the keys of the grid, then seed, of, name, value and unit. Files that
    are not chunks of the plan do not belong to the results.
    """

    def __init__(self, directory: Path, planned: Plan) -> None:
        self.directory = directory
        """Directory of the sweep."""
        self._plan = planned
        self._seen: set[str] = set()

    def __repr__(self) -> str:
        return f"Sweep({str(self.directory)!r}, {self.done} of {self.total} runs)"

    @property
    def total(self) -> int:
        """Number of runs."""
        return self._plan.runs

    @property
    def done(self) -> int:
        """Number of runs whose results are there."""
        return sum(chunk.runs for chunk in self._present())

    @property
    def missing(self) -> int:
        """Number of runs whose results are not there."""
        return self.total - self.done

    @property
    def is_complete(self) -> bool:
        """Whether the results of all runs are there."""
        return self.missing == 0

    @property
    def failures(self) -> list[Failure]:
        """Chunks whose last attempt failed."""
        present = {chunk.hash for chunk in self._present()}
        wanted = {chunk.hash for chunk in self._plan.chunks} - present
        last = {one.chunk: one.failure() for one in self.summaries if one.chunk in wanted}
        return [failure for failure in last.values() if failure]

    @property
    def files(self) -> list[Path]:
        """The Parquet files of the complete chunks."""
        return [chunks.path(self.directory, chunk) for chunk in self._present()]

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of the results."""
        return grid.schema(self._plan.columns)

    @property
    def summaries(self) -> list[Summary]:
        """Every attempt at a chunk, with its times, in the order of their start."""
        return summary.load(self.directory)

    @property
    def overhead(self) -> float | None:
        """Mean time per chunk outside of the runs, in seconds of one core.

        Includes dispatch, reading and writing. None if no chunk ran yet.
        """
        return summary.overhead(self.summaries)

    def dataset(self) -> ds.Dataset:
        """The results as a `pyarrow.dataset`."""
        if not (names := [str(path) for path in self.files]):
            return ds.dataset(self.schema.empty_table())
        return ds.dataset(names, schema=self.schema, format="parquet")

    def table(self) -> pa.Table:
        """The results as a `pyarrow.Table`, in memory."""
        return self.dataset().to_table()

    def metrics(self) -> pa.Table:
        """The means over the seeds so far: the grid's keys, of, name, value, unit, ci95 and runs.

        `ci95` is half the width of the 95 % confidence interval of the mean, null of one run.
        """
        keys = [column.name for column in self._plan.columns] + ["of", "name", "unit"]
        grouped = self.table().group_by(keys, use_threads=False).aggregate([("value", "list")])
        values = grouped.column("value_list").to_pylist()
        columns = {name: grouped.column(name) for name in keys[:-1]}
        columns["value"] = pa.array([math.fsum(each) / len(each) for each in values], pa.float64())
        columns["unit"] = grouped.column("unit")
        columns["ci95"] = pa.array([native.confidence(each) for each in values], pa.float64())
        columns["runs"] = pa.array([len(each) for each in values], pa.uint32())
        return pa.table(columns)

    def polars(self) -> polars.LazyFrame:
        """The results as a lazy frame of Polars."""
        try:
            import polars
        except ImportError as error:
            raise ImportError("Sweep.polars needs Polars; install it: pip install polars") from error

        if not (paths := self.files):
            empty = polars.from_arrow(self.schema.empty_table())
            assert isinstance(empty, polars.DataFrame)
            return empty.lazy()
        return polars.scan_parquet(paths, glob=False)

    def duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> Any:
        """The results as a relation of DuckDB, on `connection` or on a new one in memory."""
        try:
            import duckdb
        except ImportError as error:
            raise ImportError("Sweep.duckdb needs DuckDB; install it: pip install duckdb") from error

        connection = connection or duckdb.connect()
        # `read_parquet` would take `?`, `*` and `[` in the directory as a pattern.
        return connection.from_arrow(self.dataset())

    def wait(
        self, timeout: float | None = None, poll: float = 2.0, progress: bool | None = None
    ) -> Sweep:
        """Wait for a sweep that other processes run, such as a job array; return the sweep.

        `timeout` and `poll` are in seconds. Raises `SweepError` if chunks failed, or if the job
        array left the queue without them; `TimeoutError` after `timeout`.
        """
        end = None if timeout is None else time.monotonic() + timeout
        bar = Progress(shown=progress)
        start, left = self.done, {chunk.hash: chunk for chunk in self._absent()}
        bar.begin(start, self.total, sum(chunk.cost for chunk in left.values()))
        try:
            while not self.is_complete:
                self._give_up(end)
                time.sleep(poll)
                for chunk in self._present():
                    if left.pop(chunk.hash, None):
                        bar.advance(chunk.runs, chunk.cost)
                bar.tick()
        finally:
            bar.end()
        return self

    def _give_up(self, end: float | None) -> None:
        """Raise if the missing chunks cannot arrive any more."""
        queued = slurm.is_queued(self.directory)
        failures = self.failures
        if queued is not True and failures and len(failures) == len(self._absent()):
            raise errors.failed(failures, self.directory)
        if queued is False and not self._settled():
            raise SweepError(
                f"{self.missing} of {self.total} runs of {self.directory} are missing, and no job "
                f"of the sweep is queued; see the logs in {self.directory / slurm.FOLDER}, and "
                "call freshline.sweep again with the same arguments to run the missing chunks",
                failures,
            )
        if end is not None and time.monotonic() > end:
            raise TimeoutError(f"{self.missing} of {self.total} runs of the sweep are missing")

    def _settled(self, seconds: float = 10.0) -> bool:
        """Whether the sweep is complete, `seconds` later at most: file systems show files late."""
        end = time.monotonic() + seconds
        while not self.is_complete and time.monotonic() < end:
            time.sleep(0.5)
        return self.is_complete

    def _present(self) -> list[Chunk]:
        """Chunks whose files are there. A footer is read once."""
        try:
            names = set(os.listdir(self.directory / chunks.FOLDER))
        except FileNotFoundError:
            names = set()
        found = []
        for chunk in self._plan.chunks:
            if f"{chunk.hash}.parquet" not in names:
                self._seen.discard(chunk.hash)
                continue
            if chunk.hash not in self._seen and chunks.has_footer(self.directory, chunk):
                self._seen.add(chunk.hash)
            if chunk.hash in self._seen:
                found.append(chunk)
        return found

    def _absent(self) -> list[Chunk]:
        present = {chunk.hash for chunk in self._present()}
        return [chunk for chunk in self._plan.chunks if chunk.hash not in present]


def open_sweep(directory: str | os.PathLike[str]) -> Sweep:
    """Open a sweep, also while it runs. Raises `SweepError` if the directory has none."""
    path = Path(directory).resolve()
    planned = plan.load(path)
    if planned is None:
        raise SweepError(f"{path} holds no sweep: it has no {plan.NAME}")
    return Sweep(path, planned)
