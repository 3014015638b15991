"""Selection of age processes from a table of ages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ._data import Table, column_names, listed, numbers, texts
from ._process import Process

Ages: TypeAlias = Any
"""A table with the columns `received_s` and `generated_s`, or a `freshline.AgeProcess`."""


@dataclass(frozen=True)
class Choice:
    """A flow, its number among equal flows, its topic and the topic's key. None, or an empty topic: not chosen."""

    flow: str | None
    number: int | None
    topic: str
    key: int | None


class _Identity(NamedTuple):
    """The process to which a row belongs."""

    flow: str
    number: int
    topic: str
    key: int | None
    """None for a topic without keys."""


_Rows: TypeAlias = dict[_Identity, list[int]]
"""The rows of each process, in the order of the table."""


def process(ages: Ages, choice: Choice) -> tuple[str, Process]:
    """The process and its label. Raises ValueError if the choice names no process, or more than one."""
    if hasattr(ages, "sawtooth"):
        return choice.flow or "", Process.of_points(ages.sawtooth())
    rows = _rows(ages)
    chosen = _narrowed(list(rows), choice)
    _check_single(chosen)
    return next(iter(_labelled(ages, rows, chosen).items()))


def processes(ages: Ages, choice: Choice) -> dict[str, Process]:
    """All processes that a choice permits, by label; of a mapping from labels to ages, or of one table.

    Raises ValueError without a process.
    """
    if isinstance(ages, Mapping) and "received_s" not in ages:
        if not ages:
            raise ValueError("there are no ages; give a table, or a dict from labels to tables")
        found = {}
        for label, each in ages.items():
            parts = processes(each, choice)
            for name, part in parts.items():
                found[str(label) if len(parts) == 1 else f"{label}, {name}"] = part
        return found
    if hasattr(ages, "sawtooth"):
        return dict([process(ages, choice)])
    rows = _rows(ages)
    return _labelled(ages, rows, _narrowed(list(rows), choice))


def _rows(ages: Table) -> _Rows:
    """The rows of each process of a table. Raises ValueError without a row."""
    names = column_names(ages)
    count = len(numbers(ages, "received_s"))
    columns = (
        texts(ages, "flow") if "flow" in names else [""] * count,
        [number or 0 for number in _integers(ages, "number")] if "number" in names else [0] * count,
        texts(ages, "topic") if "topic" in names else [""] * count,
        _integers(ages, "key") if "key" in names else [None] * count,
    )
    rows: _Rows = {}
    for row, values in enumerate(zip(*columns, strict=True)):
        rows.setdefault(_Identity(*values), []).append(row)
    if not rows:
        raise ValueError("there is no delivery; draw a flow that delivered an update")
    return rows


def _integers(table: Table, name: str) -> list[int | None]:
    """A column of integers, with None for unknown values."""
    return [None if math.isnan(value) else int(value) for value in numbers(table, name).tolist()]


def _labelled(ages: Table, rows: _Rows, chosen: list[_Identity]) -> dict[str, Process]:
    """The chosen processes of a table by label."""
    received, generated = numbers(ages, "received_s"), numbers(ages, "generated_s")
    found = {}
    for identity in chosen:
        at = np.asarray(rows[identity], dtype=np.intp)
        found[_label(identity, list(rows))] = Process.of_deliveries(received[at], generated[at])
    return found


def _narrowed(known: list[_Identity], choice: Choice) -> list[_Identity]:
    """The processes that a choice permits. Raises ValueError without a process."""
    left = known
    if choice.flow is not None and any(each.flow for each in left):
        flows = [each.flow for each in left]
        left = [each for each in left if each.flow == choice.flow]
        _check_left(left, "flow", choice.flow, flows)
    if choice.number is not None:
        highest = max(each.number for each in left)
        of = f"`{choice.flow}`" if choice.flow else "the table"
        left = [each for each in left if each.number == choice.number]
        if not left:
            raise ValueError(f"number is {choice.number}; {of} has the numbers 0 to {highest}")
    if choice.topic:
        topics = [each.topic for each in left]
        left = [each for each in left if each.topic == choice.topic]
        _check_left(left, "topic", choice.topic, topics)
    if choice.key is not None:
        keys = [each.key for each in left if each.key is not None]
        left = [each for each in left if each.key == choice.key]
        _check_left(left, "key", choice.key, sorted(keys))
    return left


def _check_left(left: list[_Identity], what: str, chosen: object, known: Sequence[object]) -> None:
    """Raises ValueError if nothing is left by a choice."""
    if not left:
        raise ValueError(f"there is no {what} `{chosen}`; the {what}s are {listed(known)}")


def _check_single(chosen: list[_Identity]) -> None:
    """Raises ValueError for several processes; the message names the values in which they differ."""
    for what in ("flow", "number", "topic", "key"):
        values = list(dict.fromkeys(getattr(each, what) for each in chosen))
        if len(values) > 1:
            shown = [value for value in values if value is not None]
            raise ValueError(f"the ages are of several {what}s; give `{what}`, one of {listed(shown)}")


def _label(identity: _Identity, known: list[_Identity]) -> str:
    """Flow and topic; number and key where there are several."""
    flow, number, topic, key = identity
    numbers_of_flow = {each.number for each in known if each.flow == flow}
    keys_of_topic = {each.key for each in known if (each.flow, each.topic) == (flow, topic)}
    parts = [f"{flow}/{topic}" if topic else flow]
    if len(numbers_of_flow) > 1:
        parts.append(f"number {number}")
    if key is not None and len(keys_of_topic) > 1:
        parts.append(f"key {key}")
    return ", ".join(part for part in parts if part)
