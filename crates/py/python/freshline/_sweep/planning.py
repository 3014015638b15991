"""Make the plan of a directory, or extend it. Planned chunks stay."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from . import chunk as chunks
from . import cost, files, grid, native, plan, scenario
from .arrow import pa
from .cost import Pilot
from .errors import SweepError
from .plan import Chunk, Plan, Work


@dataclass(frozen=True)
class Request:
    """The runs that a call of `sweep` asks for."""

    source: scenario.Source
    rows: list[cost.Combination]
    seeds: list[int]


def request(given: object, over: grid.Grid, seeds: int | Iterable[int]) -> Request:
    """Check the arguments of a call. Raises `SweepError` if one is not valid."""
    rows, numbers = grid.combinations(over), grid.seeds_of(seeds)
    return Request(scenario.resolve(given, rows), rows, numbers)


def prepare(
    directory: Path,
    asked: Request,
    chunk_seconds: float,
    threads: int,
    tick: Callable[[], None],
) -> Plan:
    """The plan for a call of `sweep`: loaded, extended or new. It is stored in `directory`.

    The caller holds the lock of the directory. Raises `SweepError` if the directory holds another
    sweep.
    """
    source, rows, numbers = asked.source, asked.rows, asked.seeds
    (directory / chunks.FOLDER).mkdir(parents=True, exist_ok=True)
    files.remove_stale(directory)
    files.remove_stale(directory / chunks.FOLDER)
    while True:
        known = plan.load(directory)
        base = _base(directory, known, source, rows)
        wanted = _indices(base, rows)
        if known is not None and (reasons := plan.dropped(known, {at: numbers for at in wanted})):
            raise plan.refuse(directory, reasons)
        planned = base.seeds()
        missing = {at: sorted(set(numbers) - set(planned[at])) for at in wanted}
        if known is not None and not any(missing.values()):
            if base != known:  # the same scenario at another path
                base.store(directory)
            return base
        timed = _timed(base, missing, threads, tick)
        grown, first = _grown(base, missing, timed, chunk_seconds)
        if known is None:
            if not grown.create(directory):
                continue  # without locks, another process was faster: use its plan
        else:
            _convert(directory, known, grown)
            grown.store(directory)
            _remove_old(directory, known, grown)
        if first is not None:
            chunks.write(directory, grown, first, _joined(timed))
        return grown


def _base(
    directory: Path, known: Plan | None, source: scenario.Source, rows: list[cost.Combination]
) -> Plan:
    """The plan with all combinations, and with the chunks that are planned already."""
    if known is None:
        known = Plan(native.version(), source, (), (), (), ())
    elif reasons := plan.differences(known, native.version(), source):
        raise plan.refuse(directory, reasons)
    columns = tuple(grid.columns([*known.combinations, *rows], known.columns))
    grid.check_distinct(rows, columns)
    present = {grid.cells_of(row, columns) for row in known.combinations}
    new = [row for row in rows if grid.cells_of(row, columns) not in present]
    base = replace(
        known, source=source, columns=columns, combinations=(*known.combinations, *new)
    )
    return replace(base, chunks=tuple(base.chunk(one.cost, one.work) for one in known.chunks))


def _indices(base: Plan, rows: list[cost.Combination]) -> list[int]:
    """Indices of the rows of the grid in the plan."""
    at = {grid.cells_of(row, base.columns): index for index, row in enumerate(base.combinations)}
    return [at[grid.cells_of(row, base.columns)] for row in rows]


def _timed(
    base: Plan, missing: dict[int, list[int]], threads: int, tick: Callable[[], None]
) -> list[Pilot]:
    """Check the new combinations, and time a run of them or of a sample."""
    rows = base.combinations
    new = [index for index in range(len(base.costs), len(rows)) if missing.get(index)]
    if not new:
        return []
    cost.check(base.source, [rows[index] for index in new])
    pilots = cost.pilots(base.source, rows, new, missing, threads, tick)
    return sorted(pilots, key=lambda pilot: pilot.combination)


def _grown(
    base: Plan, missing: dict[int, list[int]], timed: list[Pilot], chunk_seconds: float
) -> tuple[Plan, Chunk | None]:
    """The plan with chunks for the missing runs, and the chunk of the pilot runs."""
    measured = dict(enumerate(base.costs)) | {one.combination: one.seconds for one in timed}
    costs = cost.estimate(base.combinations, measured)
    base = replace(base, costs=tuple(round(seconds, 6) for seconds in costs))
    left = dict(missing)
    first = None
    if timed:
        work = [Work(one.combination, grid.to_ranges(one.seeds)) for one in timed]
        first = base.chunk(sum(one.seconds * len(one.seeds) for one in timed), work)
        left |= {one.combination: left[one.combination][len(one.seeds) :] for one in timed}
    added = [*([first] if first else []), *plan.pack(base, left, chunk_seconds)]
    grown = replace(base, chunks=(*base.chunks, *added))
    if len({chunk.hash for chunk in grown.chunks}) != len(grown.chunks):
        raise SweepError("two chunks of the plan are equal; please report this as a bug")
    return grown, first


def _joined(timed: list[Pilot]) -> pa.Table:
    """The results of the pilot runs as one table, as one batch would have returned them."""
    numbers = itertools.count()
    tables = []
    for pilot in timed:
        place = pilot.table.column_names.index("job")
        job = pa.repeat(pa.scalar(next(numbers), pa.uint32()), len(pilot.table))
        tables.append(pilot.table.set_column(place, "job", job))
    return pa.concat_tables(tables)


def _convert(directory: Path, known: Plan, grown: Plan) -> None:
    """Write finished chunks under their new names, where the columns or the files grew."""
    for old, new in zip(known.chunks, grown.chunks, strict=False):
        if old.hash != new.hash and chunks.is_whole(directory, known, old):
            chunks.convert(directory, old, grown, new)


def _remove_old(directory: Path, known: Plan, grown: Plan) -> None:
    for old, new in zip(known.chunks, grown.chunks, strict=False):
        if old.hash != new.hash:
            chunks.path(directory, old).unlink(missing_ok=True)
