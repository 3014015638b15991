"""Laws side by side: one metric with its 95 % intervals."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from ._canvas import canvas, name_axes, next_look
from ._data import Floats, Table, listed
from ._metrics import measured, quantity
from ._style import QUIET
from ._units import Scale, TimeUnit, axis_scale

_ROW = 0.24
_FRAME = 0.62


def compare_laws(
    laws: Mapping[str, Table] | Table,
    metric: str = "age_mean",
    *,
    flow: str | None = None,
    sort: bool = True,
    unit: TimeUnit | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws a metric under several laws: a dot with its 95 % interval each, and the numbers at the right.

    `laws` maps names to the metrics of runs, `{"tenth": result.metrics}`; or it is the metrics of one scenario that
    sweeps one key, whose values are the names. `metric` is of one `flow`, which can be left out where only one has it.
    With `sort` the lowest number is at the top, and laws without a number are at the bottom; otherwise laws keep
    their order.

    Raises ValueError for an unknown metric or flow, metrics in different units, or tables that sweep.
    """
    names, values, halves, base = _numbers(laws, metric, flow)
    order = np.argsort(values, kind="stable") if sort else np.arange(len(names))
    rows = np.arange(len(names))
    with canvas(ax, height=_FRAME + _ROW * len(names)) as axes:
        scale = axis_scale(axes, "x", base, values + np.nan_to_num(halves), unit)
        look = next_look(axes)
        axes.errorbar(
            values[order] * scale.factor,
            rows,
            xerr=np.nan_to_num(halves[order]) * scale.factor if np.isfinite(halves).any() else None,
            color=look.color,
            marker=look.marker,
            markersize=5,
            linestyle="none",
            elinewidth=1.4,
            capsize=2.5,
            zorder=3,
        )
        axes.set_yticks(rows, [names[row] for row in order])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.margins(x=0.08)
        axes.locator_params(axis="x", nbins=5)
        _write(axes, values[order], halves[order], scale)
        name_axes(axes, scale.label(quantity(metric)), "")
        return axes


def _write(axes: Axes, values: Floats, halves: Floats, scale: Scale) -> None:
    """The numbers, at the right of the rows."""
    digits = scale.digits(values, halves)
    for row, (value, half) in enumerate(zip(values, halves, strict=True)):
        text = axes.annotate(
            scale.text(float(value), float(half), digits),
            (1, row),
            xycoords=axes.get_yaxis_transform(),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            ha="left",
            fontsize="small",
        )
        if np.isnan(value):
            text.set_color(QUIET)


def _numbers(
    laws: Mapping[str, Table] | Table, metric: str, flow: str | None
) -> tuple[list[str], Floats, Floats, str]:
    """Names, values, halves of intervals, and the unit."""
    if isinstance(laws, Mapping) and "value" not in laws:
        if not laws:
            raise ValueError("there is no law; give a dict from names of laws to metrics")
        found = {str(name): measured(table, metric, flow) for name, table in laws.items()}
        for name, each in found.items():
            if len(each.value) != 1:
                raise ValueError(
                    f"the metrics of `{name}` have {len(each.value)} points of a sweep; give the metrics of one point"
                )
        units = {each.unit for each in found.values()}
        if len(units) > 1:
            raise ValueError(f"`{metric}` is in {listed(sorted(units))}; compare metrics in one unit")
        values = np.asarray([each.value[0] for each in found.values()])
        halves = np.asarray([each.half[0] for each in found.values()])
        return list(found), values, halves, units.pop()
    swept = measured(laws, metric, flow)
    if len(swept.swept) != 1:
        raise ValueError(
            f"the swept keys are {listed(swept.swept)}; give a scenario that sweeps one key, or a dict from names to "
            "metrics"
        )
    names = [str(value) for value in next(iter(swept.swept.values()))]
    return names, swept.value, swept.half, swept.unit
