"""One chunk: run it, write its file, and check the file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import files, grid, native
from .arrow import pa, pc, pq
from .errors import Failure, Stopped, SweepError
from .plan import Chunk, Plan
from .summary import Summary, worker

FOLDER = "chunks"
ROW_GROUP = 1 << 20
"""Rows of a row group. It is fixed, so that equal chunks give equal bytes."""

HASH, RUNS = b"freshline.chunk", b"freshline.runs"


def path(directory: Path, chunk: Chunk) -> Path:
    """The file of a chunk."""
    return directory / FOLDER / f"{chunk.hash}.parquet"


def run(directory: Path, plan: Plan, chunk: Chunk, threads: int) -> Summary:
    """Run a chunk and write its file, unless the file is there and whole.

    An exception of a run becomes the `error` of the summary. `SweepError`: a file of the scenario
    changed, or this process has another version of freshline than the plan.
    """
    started = time.time()
    if is_whole(directory, plan, chunk):
        return Summary(chunk.hash, worker(), started, time.time(), 0.0, 0)
    check_version(plan)
    plan.source.check_files()
    before = time.perf_counter()
    try:
        table = batch(plan, [chunk], threads)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of the native module is no Exception
        failure = explain(plan, chunk, error)
        return Summary.failed(chunk.hash, worker(), started, failure)
    seconds = time.perf_counter() - before
    write(directory, plan, chunk, table)
    return Summary(chunk.hash, worker(), started, time.time(), seconds * threads, chunk.runs)


def batch(
    plan: Plan,
    chunks: Sequence[Chunk],
    threads: int,
    progress: Callable[[int], None] | None = None,
) -> pa.Table:
    """Run several chunks in one call, on `threads` threads. Jobs are numbered through.

    `progress` gets the number of runs done now and then; if it raises, the call ends early.
    """
    source = plan.source
    jobs = [job for chunk in chunks for job in plan.jobs(chunk)]
    return native.run_batch(source.name, source.text, source.folder, jobs, threads, progress)


def split(chunks: Sequence[Chunk], table: pa.Table) -> list[pa.Table]:
    """The results of each chunk of a `batch`."""
    if len(chunks) == 1:
        return [table]
    parts, first = [], 0
    for chunk in chunks:
        end = first + len(chunk.work)
        job = table.column("job")
        part = table.filter(pc.and_(pc.greater_equal(job, first), pc.less(job, end)))
        numbers = pc.subtract(part.column("job"), pa.scalar(first, pa.uint32()))
        parts.append(part.set_column(part.column_names.index("job"), "job", numbers))
        first = end
    return parts


def write(directory: Path, plan: Plan, chunk: Chunk, table: pa.Table) -> None:
    """Write the results of a chunk. Equal results give equal bytes."""
    rows = [plan.combinations[work.combination] for work in chunk.work]
    jobs = table.column("job")
    arrays = [column.array(rows).take(jobs.combine_chunks()) for column in plan.columns]
    arrays += [table.column(name) for name in grid.RUN_COLUMNS]
    dressed = pa.Table.from_arrays(arrays, schema=grid.schema(plan.columns))
    counted = _runs(table, ["job", "seed"])
    if counted != chunk.runs:
        raise SweepError(
            f"chunk {chunk.hash[:12]}: the native module returned {counted} of {chunk.runs} runs"
        )
    _store(directory, chunk, dressed)


def is_whole(directory: Path, plan: Plan, chunk: Chunk) -> bool:
    """Whether the file of a chunk is there, is undamaged, and has all runs. Reads all of it."""
    if not has_footer(directory, chunk):
        return False
    try:
        with pq.ParquetFile(path(directory, chunk), page_checksum_verification=True) as file:
            table = file.read()
    except (OSError, pa.ArrowException):
        return False
    names = [column.name for column in plan.columns] + ["seed"]
    expected = grid.schema(plan.columns)
    return bool(table.schema.equals(expected)) and _runs(table, names) == chunk.runs


def has_footer(directory: Path, chunk: Chunk) -> bool:
    """Whether the file of a chunk is there with the footer of that chunk. Reads the footer only."""
    try:
        metadata = pq.read_metadata(path(directory, chunk)).metadata or {}
    except (OSError, pa.ArrowException):
        return False
    return metadata.get(HASH) == chunk.hash.encode() and metadata.get(RUNS) == b"%d" % chunk.runs


def convert(directory: Path, old: Chunk, plan: Plan, new: Chunk) -> None:
    """Write the results of `old` as chunk `new` of a plan with more columns or wider types."""
    with pq.ParquetFile(path(directory, old)) as file:
        table = file.read()
    arrays = []
    for field in grid.schema(plan.columns):
        known = field.name in table.column_names
        values = table.column(field.name) if known else pa.nulls(len(table))
        if known and pa.types.is_boolean(values.type) and pa.types.is_string(field.type):
            values = pc.if_else(values, "true", "false")
        arrays.append(values.cast(field.type))
    _store(directory, new, pa.Table.from_arrays(arrays, schema=grid.schema(plan.columns)))


def check_version(plan: Plan) -> None:
    """Raise `SweepError` if this process has another version of freshline than the plan."""
    if plan.version != native.version():
        raise SweepError(
            f"the sweep was planned with freshline {plan.version}, and this process has "
            f"{native.version()}; install the same version on all nodes"
        )


def explain(
    plan: Plan,
    chunk: Chunk,
    error: BaseException,
    progress: Callable[[int], None] | None = None,
) -> Failure:
    """Find the combination that failed, by running the combinations of the chunk one by one.

    `progress` is as for `batch`. If it raises `Stopped`, so does this function.
    """
    source, jobs = plan.source, plan.jobs(chunk)
    message = str(error) or type(error).__name__
    for changes, seeds in jobs if len(jobs) > 1 else ():
        try:
            job = (changes, seeds)
            native.run_batch(source.name, source.text, source.folder, [job], 1, progress)
        except (KeyboardInterrupt, SystemExit, Stopped):
            raise
        except BaseException as found:
            return Failure(chunk.hash, (changes,), str(found) or type(found).__name__)
    return Failure(chunk.hash, tuple(changes for changes, _ in jobs), message)


def _store(directory: Path, chunk: Chunk, table: pa.Table) -> None:
    labels = {HASH: chunk.hash.encode(), RUNS: b"%d" % chunk.runs}
    whole = table.combine_chunks().replace_schema_metadata(labels)

    def fill(file: object) -> None:
        pq.write_table(
            whole, file, compression="zstd", row_group_size=ROW_GROUP, write_page_checksum=True
        )

    files.write(path(directory, chunk), fill)


def _runs(table: pa.Table, keys: list[str]) -> int:
    return int(table.group_by(keys).aggregate([]).num_rows)
