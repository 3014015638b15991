"""Time series of flows, links and cells."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ._canvas import canvas, frame_series, name_axes, next_look
from ._data import Floats, Table, column_names, listed, numbers
from ._units import TimeUnit, axis_scale

_LINK = "link-"
# The ends of the names of columns, with the unit of their numbers.
_UNITS = (("_per_s", "1/s"), ("_bps", "bit/s"), ("_packets", "packets"), ("_bytes", "bytes"), ("_s", "s"))
_WORDS = {"rtt": "RTT", "srtt": "Smoothed RTT", "cwnd": "Congestion window", "ap queue": "Queue at the access point"}


def series(
    table: Table,
    column: str,
    *,
    number: int | Iterable[int] | None = None,
    start: float | None = None,
    end: float | None = None,
    unit: TimeUnit | None = None,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws a column of a table of `lab.Result.series` over time; unknown values are gaps.

    `number` chooses among equal flows, one or several: by default each is a line. `start` and `end` bound the time,
    in s. The unit follows from the end of the column's name, such as `_s`, `_bps` or `_packets`.

    Raises ValueError for an unknown column or number, and for a column of text.
    """
    quantity, base = _quantity(column)
    lines = _lines(table, column, number)
    with canvas(ax) as axes:
        known = np.concatenate([heights for _, _, heights in lines])
        scale = axis_scale(axes, "y", base, known, unit)
        for name, times, heights in lines:
            look = next_look(axes)
            shown = " ".join(part for part in (label, name) if part) or None
            _draw(axes, _bounded(times, heights * scale.factor, start, end), shown, look.color, look.line)
        name_axes(axes, "Time (s)", scale.label(quantity))
        frame_series(axes, from_zero=False)
        return axes


def queues(
    series: Mapping[str, Table] | Table,
    *,
    links: Iterable[str] | None = None,
    reverse: bool = False,
    start: float | None = None,
    end: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws the queue length of links over time, in packets.

    `series` is `lab.Result.series`, or the table of one link. `links` names those to draw: by default all.
    `reverse` also draws the queues of the reverse direction, dashed. `start` and `end` bound the time, in s.

    Raises ValueError for an unknown link, or without one.
    """
    tables = _links(series, links)
    with canvas(ax) as axes:
        axis_scale(axes, "y", "packets", np.zeros(0))
        for link, table in tables.items():
            look = next_look(axes)
            times = numbers(table, "time_s")
            directions = [("queue_packets", link, "-")]
            if reverse:
                directions.append(("reverse_queue_packets", f"{link}, reverse".lstrip(", "), "--"))
            for column, name, line in directions:
                part = _bounded(times, numbers(table, column), start, end)
                _draw(axes, part, name or None, look.color, line)
        name_axes(axes, "Time (s)", "Queue length (packets)")
        frame_series(axes, from_zero=True)
        return axes


def _draw(axes: Axes, part: tuple[Floats, Floats], label: str | None, color: str, line: Any) -> None:
    axes.plot(*part, color=color, linestyle=line, label=label)


def _bounded(times: Floats, heights: Floats, start: float | None, end: float | None) -> tuple[Floats, Floats]:
    first = -np.inf if start is None else start
    last = np.inf if end is None else end
    is_inside = (times >= first) & (times <= last)
    if not is_inside.any():
        span = f"from {times.min():g} s to {times.max():g} s" if len(times) else "empty"
        raise ValueError(f"no value is between {first:g} s and {last:g} s; the series is {span}")
    return times[is_inside], heights[is_inside]


def _quantity(column: str) -> tuple[str, str]:
    """A column's name in words, and the unit of its numbers."""
    name, base = next(
        ((column.removesuffix(end), base) for end, base in _UNITS if column.endswith(end)), (column, "1")
    )
    words = name.replace("_", " ")
    return _WORDS.get(words, words[:1].upper() + words[1:]), base


@dataclass(frozen=True)
class _Line:
    """The values of one flow, or of one path of a flow."""

    group: dict[str, float]
    times: Floats
    heights: Floats

    def name(self, varying: Sequence[str]) -> str:
        """Its label: the columns in which the lines differ."""
        return ", ".join(f"{key} {self.group[key]:g}" for key in varying)


def _lines(table: Table, column: str, number: int | Iterable[int] | None) -> list[tuple[str, Floats, Floats]]:
    """Label, times and values of each flow and path."""
    times, heights = numbers(table, "time_s"), numbers(table, column)
    keys = [key for key in ("number", "path") if key in column_names(table)]
    columns = [numbers(table, key) for key in keys]
    lines = []
    for group in sorted(set(zip(*columns, strict=True))) if keys else [()]:
        is_inside = np.ones(len(times), dtype=np.bool_)
        for each, value in zip(columns, group, strict=True):
            is_inside &= each == value
        lines.append(_Line(dict(zip(keys, group, strict=True)), times[is_inside], heights[is_inside]))
    if not lines:
        raise ValueError("the series is empty; draw one with values")
    if number is not None:
        wanted = {number} if isinstance(number, int) else set(number)
        known = sorted({int(line.group.get("number", 0)) for line in lines})
        if not wanted <= set(known):
            missing = min(wanted - set(known))
            raise ValueError(f"there is no number {missing}; the numbers are {listed(known)}")
        lines = [line for line in lines if int(line.group.get("number", 0)) in wanted]
    varying = [key for key in keys if len({line.group[key] for line in lines}) > 1]
    return [(line.name(varying), line.times, line.heights) for line in lines]


def _links(series: Mapping[str, Table] | Table, links: Iterable[str] | None) -> dict[str, Table]:
    """The tables of links by name."""
    if "queue_packets" in column_names(series):
        return {"": series}
    if not isinstance(series, Mapping):
        raise ValueError("the table has no column `queue_packets`; give `lab.Result.series`, or the table of a link")
    tables = {name.removeprefix(_LINK): table for name, table in series.items() if name.startswith(_LINK)}
    wanted = list(tables) if links is None else [links] if isinstance(links, str) else list(links)
    for link in wanted:
        if link not in tables:
            raise ValueError(f"there is no link `{link}`; the links are {listed(tables)}")
    if not wanted:
        raise ValueError("there is no link; draw the series of a scenario with wired links")
    return {link: tables[link] for link in wanted}
