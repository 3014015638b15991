"""Ages over time, and their distribution."""

import numpy as np
from matplotlib.axes import Axes

from ._canvas import canvas, frame_series, name_axes, next_look, show_legend
from ._data import Floats
from ._select import Ages, Choice, process, processes
from ._units import TimeUnit, axis_scale, plain_log

# A distribution is drawn by at most this many of its points, each of which is exact.
_MAX_POINTS = 10_000


def sawtooth(
    ages: Ages,
    *,
    flow: str | None = None,
    number: int = 0,
    topic: str = "",
    key: int | None = None,
    start: float | None = None,
    end: float | None = None,
    unit: TimeUnit | None = None,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws age over time: it grows by 1 s per second, and falls with each fresh delivery.

    `ages` is `lab.Result.ages`, a table with the columns `received_s` and `generated_s`, or a `freshline.AgeProcess`.
    `flow`, `number` (among equal flows), `topic` and `key` (its number in a keyed topic) choose a process. Flow, topic
    and key can be left out if there is only one. The label has the number and the key if there are several.
    `start` and `end` cut the view, in s: the age at `start` follows from the deliveries before it. `unit` is the unit
    of the age; the default follows from the values.

    Raises ValueError for an unknown flow, number, topic or key, if the choice leaves several, or if no time is left.
    """
    name, whole = process(ages, Choice(flow, number, topic, key))
    part = whole.between(start, end)
    with canvas(ax) as axes:
        scale = axis_scale(axes, "y", "s", part.ages, unit)
        look = next_look(axes)
        heights = part.ages * scale.factor
        axes.plot(part.times, heights, color=look.color, linestyle="-", label=label or name or None)
        axes.fill_between(part.times, heights, color=look.color, alpha=0.12, linewidth=0)
        name_axes(axes, "Time (s)", scale.label("Age"))
        frame_series(axes, from_zero=True)
        return axes


def age_cdf(
    ages: Ages,
    *,
    flow: str | None = None,
    number: int | None = None,
    topic: str = "",
    key: int | None = None,
    start: float | None = None,
    end: float | None = None,
    log: bool = False,
    complementary: bool = False,
    unit: TimeUnit | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws the distribution of age over time, exactly: the fraction of time with at most this age.

    `ages` is as for `sawtooth`, or a dict from labels to such ages. Each flow, number, topic and key is a line; `flow`,
    `number`, `topic` and `key` restrict the lines. `start` and `end` cut the view, in s. `log` makes the axis of ages
    logarithmic. `complementary` draws the fraction of time with a higher age on a logarithmic axis, which shows the
    tail.

    Raises ValueError for an unknown flow, number, topic or key, or if a line has no time left.
    """
    found = processes(ages, Choice(flow, number, topic, key))
    curves = {name: each.between(start, end).cdf() for name, each in found.items()}
    with canvas(ax) as axes:
        scale = axis_scale(axes, "x", "s", np.concatenate([points for points, _ in curves.values()]), unit)
        for name, (points, fraction) in curves.items():
            points, fraction = _thinned(points, fraction, log)
            look = next_look(axes)
            shown = np.where(fraction < 1, 1 - fraction, np.nan) if complementary else fraction
            axes.plot(points * scale.factor, shown, color=look.color, linestyle=look.line, label=name or None)
        if log:
            plain_log(axes.xaxis)
            axes.set_xlim(left=scale.factor * min(_quantile(curve, 0.002) for curve in curves.values()))
        if complementary:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.02)
        name_axes(axes, scale.label("Age"), "P(age > x)" if complementary else "P(age ≤ x)")
        show_legend(axes, "upper right" if complementary else "lower right")
        return axes


def _quantile(curve: tuple[Floats, Floats], probability: float) -> float:
    points, fraction = curve
    positive = points > 0
    return float(np.interp(probability, fraction[positive], points[positive]))


def _thinned(points: Floats, fraction: Floats, log: bool) -> tuple[Floats, Floats]:
    """At most `_MAX_POINTS` points; on a logarithmic axis enough of them for the curve between two."""
    if len(points) > _MAX_POINTS:
        kept = np.linspace(0, len(points) - 1, _MAX_POINTS).astype(np.intp)
        points, fraction = points[kept], fraction[kept]
    if log and points[-1] > 0:
        first = points[points > 0][0]
        more = np.geomspace(first, points[-1], 500)
        dense = np.union1d(points, more)
        return dense, np.interp(dense, points, fraction)
    return points, fraction
