"""The grid of a sweep: combinations of values, their columns, and seeds."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from freshline import _seeds
from freshline._plain import plain

from .arrow import pa
from .errors import SweepError

Grid = Mapping[str, object] | Sequence[Mapping[str, object]]
"""Lists of values per key, or a list of combinations. (`object`: mypy finds no better type for a
dict with lists of several types.)"""
Ranges = tuple[tuple[int, int], ...]
"""Sorted, disjoint ranges of seeds; both ends belong to the range."""

RUN_COLUMNS = {
    "seed": "uint64",
    "of": "string",
    "name": "string",
    "value": "double",
    "unit": "string",
}
"""Columns of the results after the columns of the grid, with their types in Arrow."""
MAX_INTEGER = 2**63 - 1
"""The largest integer of TOML, and so the largest seed."""


@dataclass(frozen=True)
class Column:
    """A key of the grid as a column of the results."""

    name: str
    type: str
    """`bool`, `int64`, `double` or `string`."""

    def cell(self, changes: Mapping[str, object]) -> object:
        """The value of a combination in this column; None if the combination lacks the key."""
        value = changes.get(self.name)
        if value is None:
            return None
        if self.type == "string":
            return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        return float(value) if self.type == "double" else value  # type: ignore[arg-type]

    def array(self, combinations: Sequence[Mapping[str, object]]) -> pa.Array:
        """The cells of all `combinations`."""
        return pa.array([self.cell(changes) for changes in combinations], _arrow(self.type))


def combinations(grid: Grid) -> list[dict[str, object]]:
    """All combinations of the values of a mapping, or a list of combinations as it is."""
    if isinstance(grid, Mapping):
        lists: dict[str, list[object]] = {}
        for key, values in grid.items():
            if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
                raise SweepError(f"grid: `{key}` needs a list of values, not {values!r}")
            lists[key] = list(values)
            if not lists[key]:
                raise SweepError(f"grid: `{key}` has no values; list at least one")
        rows = [dict(zip(lists, row, strict=True)) for row in itertools.product(*lists.values())]
    else:
        rows = [dict(row) for row in grid]
        if not rows:
            raise SweepError("grid: the list has no combinations; use [{}] for the scenario itself")
    return [{_key(key): _plain(key, value) for key, value in row.items()} for row in rows]


def columns(rows: Sequence[Mapping[str, object]], known: Sequence[Column] = ()) -> list[Column]:
    """One column per key; `known` ones keep their place. The types hold for all combinations."""
    names = list(dict.fromkeys([column.name for column in known] + [k for row in rows for k in row]))
    return [Column(name, _type(row[name] for row in rows if name in row)) for name in names]


def check_distinct(rows: Sequence[Mapping[str, object]], over: Sequence[Column]) -> None:
    """Raise if two combinations have equal cells: their runs could not be told apart."""
    seen: dict[str, Mapping[str, object]] = {}
    for row in rows:
        cells = cells_of(row, over)
        if cells in seen:
            raise SweepError(f"grid: the combination {dict(row)} appears twice")
        seen[cells] = row


def cells_of(row: Mapping[str, object], over: Sequence[Column]) -> str:
    """The cells of a combination as text, to compare combinations."""
    return json.dumps([column.cell(row) for column in over])


def schema(over: Sequence[Column]) -> pa.Schema:
    """Schema of the results."""
    types = {column.name: column.type for column in over} | RUN_COLUMNS
    return pa.schema([(name, _arrow(type)) for name, type in types.items()])


def seeds_of(seeds: int | Iterable[int]) -> list[int]:
    """Seeds in ascending order. An integer N means 1 to N. Raises `SweepError`."""
    try:
        return sorted(_seeds.listed(seeds, MAX_INTEGER))
    except ValueError as error:
        raise SweepError(str(error)) from None


def to_ranges(seeds: Iterable[int]) -> Ranges:
    """Ranges of ascending seeds."""
    ranges: list[tuple[int, int]] = []
    for seed in seeds:
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], seed)
        else:
            ranges.append((seed, seed))
    return tuple(ranges)


def from_ranges(ranges: Ranges) -> list[int]:
    """The seeds of ranges."""
    return [seed for first, last in ranges for seed in range(first, last + 1)]


def count(ranges: Ranges) -> int:
    """The number of seeds of ranges."""
    return sum(last - first + 1 for first, last in ranges)


def _arrow(type: str) -> pa.DataType:
    return pa.type_for_alias(type)


def _key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise SweepError(f"grid: {key!r} is not a key of a scenario, such as `flow.robot.count`")
    if key in ("seed", "seeds", "runs"):
        raise SweepError(f"grid: `{key}` is set by the argument `seeds`, one run per seed")
    if key in RUN_COLUMNS:
        raise SweepError(f"grid: `{key}` is the name of a column of the results")
    return key


def _plain(key: str, value: object) -> object:
    """`value` in types that JSON and TOML have; numpy's numbers become Python's."""
    found: object = plain(value, key, lambda message: SweepError(f"grid: {message}"))
    _check_numbers(key, found)
    return found


def _check_numbers(key: str, value: object) -> None:
    """Raise `SweepError` for numbers that the results cannot have."""
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise SweepError(f"grid: `{key}`: {value} does not fit into 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise SweepError(f"grid: `{key}`: {value} is not finite")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _check_numbers(key, item)


def _type(values: Iterable[object]) -> str:
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        return "int64"
    return "double" if kinds <= {int, float} else "string"
