"""The plan of a sweep: chunks of runs, each named by a hash of everything that decides its results."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from . import files, grid
from .errors import SweepError
from .grid import Column, Ranges
from .native import Job
from .scenario import Source

FORMAT = 1
"""Version of the format of plans and chunks."""
NAME = "plan.json"

Combination = dict[str, object]


@dataclass(frozen=True)
class Work:
    """Runs of one combination."""

    combination: int
    """Index of the combination in the plan."""
    seeds: Ranges
    """Ranges of seeds."""


@dataclass(frozen=True)
class Chunk:
    """Runs whose results are one file."""

    hash: str
    """SHA-256 of the scenario, its files, the runs, the columns and the versions."""
    cost: float
    """Estimated duration on one core, in seconds."""
    work: tuple[Work, ...]
    """Runs, with combinations in ascending order."""

    @property
    def runs(self) -> int:
        """Number of runs."""
        return sum(grid.count(work.seeds) for work in self.work)


@dataclass(frozen=True)
class Plan:
    """A sweep as chunks. It is stored as `plan.json`."""

    version: str
    """Version of freshline."""
    source: Source
    columns: tuple[Column, ...]
    """One column per key of the grid."""
    combinations: tuple[Combination, ...]
    costs: tuple[float, ...]
    """Estimated duration of a run of each combination, in seconds."""
    chunks: tuple[Chunk, ...]

    @property
    def runs(self) -> int:
        """Number of runs."""
        return sum(chunk.runs for chunk in self.chunks)

    def jobs(self, chunk: Chunk) -> list[Job]:
        """The runs of a chunk as the native module takes them."""
        return [
            (dict(self.combinations[work.combination]), grid.from_ranges(work.seeds))
            for work in chunk.work
        ]

    def seeds(self) -> dict[int, list[int]]:
        """Planned seeds of each combination, in ascending order."""
        planned: dict[int, list[int]] = {index: [] for index in range(len(self.combinations))}
        for chunk in self.chunks:
            for work in chunk.work:
                planned[work.combination] += grid.from_ranges(work.seeds)
        return {index: sorted(seeds) for index, seeds in planned.items()}

    def chunk(self, cost: float, work: Sequence[Work]) -> Chunk:
        """A chunk of this plan, with its hash."""
        content = {
            "format": FORMAT,
            "version": self.version,
            "scenario": self.source.identity(),
            "columns": [[column.name, column.type] for column in self.columns],
            "work": [[self.combinations[one.combination], one.seeds] for one in work],
        }
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
        return Chunk(hashlib.sha256(text.encode()).hexdigest(), cost, tuple(work))

    def to_json(self) -> str:
        """The plan as text. Equal plans give equal bytes."""
        chunks = [
            {
                "hash": chunk.hash,
                "cost": round(chunk.cost, 6),
                "work": [[work.combination, work.seeds] for work in chunk.work],
            }
            for chunk in self.chunks
        ]
        content = {
            "format": FORMAT,
            "version": self.version,
            "scenario": asdict(self.source),
            "columns": [[column.name, column.type] for column in self.columns],
            "combinations": self.combinations,
            "costs": self.costs,
            "chunks": chunks,
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def only(self, chunk: Chunk) -> Plan:
        """This plan with one chunk and its combinations, to send it to a worker."""
        work = tuple(replace(one, combination=at) for at, one in enumerate(chunk.work))
        rows = tuple(self.combinations[one.combination] for one in chunk.work)
        costs = tuple(self.costs[one.combination] for one in chunk.work)
        return replace(
            self, combinations=rows, costs=costs, chunks=(replace(chunk, work=work),)
        )

    def store(self, directory: Path) -> None:
        """Replace the plan of a directory, atomically."""
        files.write(directory / NAME, self.to_json())

    def create(self, directory: Path) -> bool:
        """Store the plan unless the directory has one. Returns whether it was stored."""
        return files.create(directory / NAME, self.to_json())


def load(directory: Path) -> Plan | None:
    """The plan of a directory; None if it has none. Raises `SweepError` if it is not readable."""
    path = directory / NAME
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        content = json.loads(text.decode())
        if content["format"] != FORMAT:
            raise SweepError(
                f"{path} has format {content['format']}, and this version of freshline reads "
                f"{FORMAT}; use another directory"
            )
        loaded = Plan(
            version=content["version"],
            source=Source(**content["scenario"]),
            columns=tuple(Column(*column) for column in content["columns"]),
            combinations=tuple(content["combinations"]),
            costs=tuple(content["costs"]),
            chunks=tuple(
                Chunk(
                    chunk["hash"],
                    chunk["cost"],
                    tuple(Work(at, tuple((a, b) for a, b in seeds)) for at, seeds in chunk["work"]),
                )
                for chunk in content["chunks"]
            ),
        )
        _check(loaded)
        return loaded
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise SweepError(
            f"{path} is not the plan of a sweep, or is damaged ({error!r}); restore the file, or "
            "use another directory"
        ) from error


def _check(plan: Plan) -> None:
    """Raise ValueError or TypeError if parts of a plan have wrong types or do not fit together."""
    source = plan.source
    texts = [plan.version, source.name, source.text, "" if source.folder is None else source.folder]
    texts += [*source.files.values(), *(column.name for column in plan.columns)]
    _require(all(isinstance(text, str) for text in texts), "a text has another type")
    names = [column.name for column in plan.columns]
    types = {column.type for column in plan.columns}
    _require(len(set(names)) == len(names), "a column appears twice")
    _require(types <= {"bool", "int64", "double", "string"}, "a column has an unknown type")
    rows = plan.combinations
    _require(all(isinstance(row, dict) for row in rows), "a combination is not a dictionary")
    known = set(names)
    _require(all(row.keys() <= known for row in rows), "a combination has a key without a column")
    for seconds in [*plan.costs, *(chunk.cost for chunk in plan.chunks)]:
        is_number = type(seconds) in (int, float) and math.isfinite(seconds) and seconds >= 0
        _require(is_number, "a cost is not a number")
    _require(len(plan.costs) <= len(rows), "there are more costs than combinations")
    hashes = [chunk.hash for chunk in plan.chunks]
    _require(all(re.fullmatch("[0-9a-f]{64}", each) for each in hashes), "a hash is not SHA-256")
    _require(len(set(hashes)) == len(hashes), "a chunk appears twice")
    ranges: dict[int, list[tuple[int, int]]] = {}
    for chunk in plan.chunks:
        for work in chunk.work:
            is_index = type(work.combination) is int and 0 <= work.combination < len(plan.costs)
            _require(is_index, f"there is no combination {work.combination}")
            ranges.setdefault(work.combination, []).extend(work.seeds)
        _require(bool(chunk.work) and all(work.seeds for work in chunk.work), "a chunk has no runs")
    for pairs in ranges.values():
        last = -1
        for pair in pairs:
            _require(type(pair[0]) is type(pair[1]) is int, "a seed is not an integer")
        for begin, end in sorted(pairs):
            _require(begin <= end <= grid.MAX_INTEGER, "a range of seeds is wrong")
            _require(begin > last, "a run appears twice")
            last = end
    for chunk in plan.chunks:
        is_same = plan.chunk(chunk.cost, chunk.work).hash == chunk.hash
        _require(is_same, f"the runs of chunk {chunk.hash[:12]} differ from its hash")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def pack(plan: Plan, missing: dict[int, list[int]], chunk_seconds: float) -> list[Chunk]:
    """Chunks of about `chunk_seconds` for `missing` seeds of combinations.

    A chunk holds at least one run, however long it takes. Order: as the combinations.
    """
    chunks: list[Chunk] = []
    work: list[tuple[int, list[int]]] = []
    total = 0.0

    def close() -> None:
        nonlocal total
        if work:
            done = [Work(index, grid.to_ranges(seeds)) for index, seeds in work]
            chunks.append(plan.chunk(total, done))
        work.clear()
        total = 0.0

    for index in sorted(missing):
        cost = plan.costs[index]
        seeds = missing[index]
        while seeds:
            room = int((chunk_seconds - total) / cost + 0.5)
            if room < 1 and work:
                close()
                continue
            taken, seeds = seeds[: max(room, 1)], seeds[max(room, 1) :]
            work.append((index, taken))
            total += cost * len(taken)
    close()
    return chunks


def differences(plan: Plan, version: str, source: Source) -> list[str]:
    """Reasons why the directory of `plan` cannot take new runs, one sentence each."""
    found = []
    if plan.version != version:
        found.append(f"its results are of freshline {plan.version}, and this is {version}")
    if plan.source.text != source.text:
        lines = itertools.zip_longest(plan.source.text.splitlines(), source.text.splitlines())
        number, (old, new) = next(
            ((n, pair) for n, pair in enumerate(lines, 1) if pair[0] != pair[1]), (1, ("", ""))
        )
        found.append(f"the scenario differs from line {number} on: it was {old!r}, and is {new!r}")
    elif plan.source.identity()["bundled"] != source.identity()["bundled"]:
        found.append(f"its scenario is {plan.source.name}, and this is {source.name}")
    for name in sorted(plan.source.files.keys() & source.files.keys()):
        if plan.source.files[name] != source.files[name]:
            found.append(f"the file {name} of the scenario changed")
    gone = sorted(plan.source.files.keys() - source.files.keys())
    found += [f"the file {name} of the scenario is missing" for name in gone]
    return found


def dropped(plan: Plan, wanted: dict[int, list[int]]) -> list[str]:
    """Runs of the plan that the call does not ask for, one sentence per kind.

    `wanted` has the seeds of each combination of the plan that the call asks for.
    """
    found = []
    gone = [row for index, row in enumerate(plan.combinations) if index not in wanted]
    if gone:
        found.append(f"it has {len(gone)} combinations that the grid lacks, such as {gone[0]}")
    for index, planned in plan.seeds().items():
        seeds = sorted(set(planned) - set(wanted.get(index, planned)))
        if seeds:
            found.append(f"it has {len(seeds)} seeds that the call lacks, such as {seeds[0]}")
            break
    return found


def refuse(directory: Path, reasons: Iterable[str]) -> SweepError:
    """The error for a directory whose plan does not fit the call."""
    listed = "".join(f"\n  {reason}" for reason in reasons)
    return SweepError(
        f"{directory} holds another sweep:{listed}\n"
        "Use another directory. A directory can only grow: by values of the grid and by seeds. "
        "To look at its results, use freshline.open_sweep."
    )
