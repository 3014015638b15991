"""Mean age over the rate of updates: measured, and by closed forms."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
from matplotlib.axes import Axes

from ._canvas import canvas, name_axes, next_look, show_legend
from ._data import Floats, Table, listed
from ._metrics import Measured, measured, quantity
from ._style import QUIET
from ._units import Scale, TimeUnit, axis_scale, plain_log


class ClosedForm(Protocol):
    """The interface of `freshline.Queues`: the mean age in s at a rate in updates/s; None where no queue is stable."""

    def mean_age(self, rate: float, /) -> float | None: ...


Curve: TypeAlias = ClosedForm | Callable[[float], float | None]

_RATE = re.compile(r"\s*([-+0-9.eE]+)\s*(/s|[hH]z|[kmg]?bit|[kmg]?bps)?\s*\Z")
_FACTORS = {"k": 1e3, "m": 1e6, "g": 1e9}
_STEPS = 400


def age_over_rate(
    metrics: Table | None = None,
    *,
    rate: str | None = None,
    flow: str | None = None,
    metric: str = "age_mean",
    theory: Mapping[str, Curve] | None = None,
    lower_bound: float | None = None,
    log: bool = False,
    unit: TimeUnit | None = None,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws the mean age over the rate of updates, with 95 % intervals.

    `metrics` is `lab.Result.metrics` of a scenario that sweeps a rate. `rate` is the swept key, such as
    `"flow.source.updates.rate"`, with values such as `"700/s"`, `"5mbit"` or numbers; it can be left out where one
    swept key ends with `rate` or only one is swept. Each combination of the other swept keys is a line. `flow` and
    `metric` choose what is drawn.

    `theory` maps labels to closed forms, `{"M/M/1": Queues.mm1(1000.0)}`, or to functions from a rate in updates/s to
    an age in s. `lower_bound` is an age in s, such as that of `path_lower_bound`. `log` makes the axis of rates
    logarithmic. Without `metrics`, theory alone is drawn, up to the capacity of its queues.

    Raises ValueError for an unknown key, flow or metric, or rates that are not numbers.
    """
    curves = theory or {}
    found = None if metrics is None else measured(metrics, metric, flow)
    lines = [] if found is None else _lines(found, rate, label)
    base = "s" if found is None else found.unit
    x_base, x_name = _x_axis(lines)
    if curves and (x_base != "1/s" or base != "s"):
        raise ValueError("theory is the mean age in s over updates/s; sweep a rate such as `700/s`, or leave it out")
    rates = _rates(lines, curves, log)
    forms = {name: _ages(curve, rates) for name, curve in curves.items()}
    heights = _heights(lines, forms)
    with canvas(ax) as axes:
        across = axis_scale(axes, "x", x_base, rates)
        up = axis_scale(axes, "y", base, heights, unit)
        for name, x, line in lines:
            _draw_points(axes, name, x * across.factor, line, up, is_joined=not curves)
        for name, ages in forms.items():
            look = next_look(axes)
            axes.plot(rates * across.factor, ages * up.factor, color=look.color, linestyle=look.line, label=name)
        if lower_bound is not None:
            axes.axhline(lower_bound * up.factor, color=QUIET, linestyle=":", linewidth=1, label="lower bound")
        if log:
            plain_log(axes.xaxis)
        _bound(axes, heights * up.factor)
        name_axes(axes, across.label(x_name), up.label(quantity(metric)))
        show_legend(axes, "upper center")
        return axes


Line: TypeAlias = tuple[str, Floats, Measured]


def _lines(found: Measured, rate: str | None, label: str | None) -> list[Line]:
    """Label, rates and values of each combination of the other swept keys, by rising rate."""
    key = _key(list(found.swept), rate)
    rates = np.asarray([_parsed(value, key)[0] for value in found.swept[key]])
    others = [name for name in found.swept if name != key]
    groups = [tuple(str(found.swept[name][row]) for name in others) for row in range(len(rates))]
    lines = []
    for group in dict.fromkeys(groups):
        rows = np.asarray([row for row, each in enumerate(groups) if each == group])
        rows = rows[np.argsort(rates[rows], kind="stable")]
        part = Measured(found.of, found.name, found.value[rows], found.half[rows], found.unit, {
            key: [found.swept[key][row] for row in rows],
        })
        name = " ".join(word for word in (label, ", ".join(group)) if word) or found.of
        lines.append((name, rates[rows], part))
    return lines


def _key(swept: list[str], rate: str | None) -> str:
    """The swept key that is the rate."""
    if rate is not None:
        if rate not in swept:
            raise ValueError(f"`{rate}` is not swept; the swept keys are {listed(swept)}")
        return rate
    rates = [name for name in swept if name.endswith("rate")]
    candidates = rates if rates else swept
    if len(candidates) != 1:
        raise ValueError(f"which swept key is the rate is not clear; give `rate`, one of {listed(swept)}")
    return candidates[0]


def _parsed(value: Any, key: str) -> tuple[float, str]:
    """A number, and its unit: `1/s`, `bit/s` or empty."""
    if isinstance(value, (int, float, np.number)):
        return float(value), ""
    match = _RATE.match(str(value))
    try:
        number = float(match[1]) if match else None
    except ValueError:
        number = None
    if match is None or number is None:
        raise ValueError(f"`{key}` is {value!r}, which is not a rate; sweep values such as `700/s`, `5mbit` or 700")
    suffix = match[2] or ""
    if suffix in ("/s", "hz", "Hz"):
        return number, "1/s"
    return number * _FACTORS.get(suffix[:1], 1.0), "bit/s" if suffix else ""


def _x_axis(lines: list[Line]) -> tuple[str, str]:
    """Unit and name of the rates."""
    if not lines:
        return "1/s", "Update rate"
    swept = lines[0][2].swept
    key = next(iter(swept))
    units = {_parsed(value, key)[1] for _, _, line in lines for value in line.swept[key]}
    if len(units) > 1:
        raise ValueError(f"the values of `{key}` have different units; give all of them one")
    unit = units.pop()
    if unit == "bit/s":
        return unit, "Rate"
    is_rate = unit == "1/s" or key.endswith("rate")
    return ("1/s", "Update rate") if is_rate else ("1", key)


def _rates(lines: list[Line], curves: Mapping[str, Curve], log: bool) -> Floats:
    """The rates at which curves are drawn: between those measured, or up to the capacity of the queues."""
    if lines:
        measured_at = np.concatenate([x for _, x, _ in lines])
        ends = float(measured_at.min()), float(measured_at.max())
    else:
        capacity = max((float(getattr(curve, "capacity", 0.0)) for curve in curves.values()), default=0.0)
        if not capacity > 0:
            raise ValueError("there are no rates to draw; give `metrics`, or `theory` with closed forms of queues")
        ends = 0.02 * capacity, 0.98 * capacity
    return np.geomspace(*ends, _STEPS) if log else np.linspace(*ends, _STEPS)


def _ages(curve: Curve, rates: Floats) -> Floats:
    """The ages of a closed form; NaN where it has none."""
    age = curve if callable(curve) else curve.mean_age
    ages = [age(float(rate)) for rate in rates]
    known = np.asarray([np.nan if each is None else each for each in ages], dtype=np.float64)
    return np.where(np.isfinite(known) & (known > 0), known, np.nan)


def _heights(lines: list[Line], forms: Mapping[str, Floats]) -> Floats:
    """The range of the axis of ages: all intervals, or the low part of curves that rise without bound."""
    if lines:
        return np.concatenate([line.value + np.nan_to_num(line.half) for _, _, line in lines])
    lowest = [np.nanmin(ages) for ages in forms.values() if np.isfinite(ages).any()]
    return 4 * np.asarray(lowest, dtype=np.float64)


def _draw_points(axes: Axes, name: str, x: Floats, line: Measured, up: Scale, *, is_joined: bool) -> None:
    look = next_look(axes)
    axes.errorbar(
        x,
        line.value * up.factor,
        yerr=np.nan_to_num(line.half) * up.factor if np.isfinite(line.half).any() else None,
        color=look.color,
        marker=look.marker,
        linestyle=look.line if is_joined else "none",
        linewidth=0.9,
        elinewidth=1,
        capsize=2,
        label=name,
        zorder=3,
    )


def _bound(axes: Axes, heights: Floats) -> None:
    """Ends the axis of ages above the measured ages; closed forms rise beyond it."""
    known = heights[np.isfinite(heights)]
    if not len(known):
        return
    top = 1.12 * float(known.max())
    is_first = axes.get_autoscaley_on()
    axes.set_ylim(0, top if is_first else max(top, axes.get_ylim()[1]))
