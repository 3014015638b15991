"""A paper's numbers next to ours."""

from collections.abc import Collection
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from ._canvas import canvas, is_own
from ._data import Floats, Table, column_names, listed, numbers, texts
from ._style import PALETTE, QUIET, figsize
from ._units import scale

_ROW = 0.2
_FRAME = 0.95
_TITLE = 0.3
_LABEL = 52
# Points per letter of the small text, and around it.
_LETTER = 4.3
_GAP = 9
# The axis reaches from 1 / reach to reach: the first of these that shows this fraction of the rows.
_REACHES = (1.15, 1.3, 1.6, 2.2, 3.2, 5.5, 11.0)
_SHOWN = 0.85
_TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)


@dataclass(frozen=True)
class Verdict:
    """Marker and colour of a verdict, different for each verdict."""

    marker: str
    color: str
    fill: Any
    size: float


_VERDICTS = {
    "holds": Verdict("o", PALETTE[0], "full", 4.5),
    "broken": Verdict("X", PALETTE[1], "full", 6.5),
    "undecided": Verdict("D", PALETTE[4], "left", 4.5),
    "not judged": Verdict("o", QUIET, "none", 4.5),
}


@dataclass(frozen=True)
class Row:
    """One row of a reproduction."""

    what: str
    verdict: str
    unit: str
    origin: str
    expected: float
    ours: float
    half: float
    low: float
    """The lowest number that meets the claim; -inf without one, NaN where nothing is claimed."""
    high: float

    @property
    def is_number(self) -> bool:
        """Whether it is a number, and not an order among numbers."""
        return bool(np.isfinite(self.ours)) or bool(np.isfinite(self.reference))

    @property
    def reference(self) -> float:
        """The divisor of our number: the paper's number, or the bound that it prints."""
        for value in (self.expected, self.low, self.high):
            if np.isfinite(value):
                return value
        return float("nan")


def paper(
    table: Table,
    *,
    verdicts: Collection[str] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws a paper's numbers next to ours, one row per number: ours over the paper's, on a logarithmic axis.

    `table` is that of `lab.reproduce(NAME)`. The vertical line is the paper's number, or the bound that it prints
    ("more than"); numbers in the band meet the claim. Ours has its 95 % interval, and a marker for its verdict:

    - holds: a circle
    - undecided: a half-filled diamond
    - broken: a cross, in a shaded row with a bold name
    - not judged: an open circle

    Orders among numbers have a verdict alone. The axis shows most rows; numbers beyond it are arrows at the edge, with
    the ratio. `verdicts` chooses rows, such as `["broken"]`.

    Raises ValueError for a missing column or an unknown verdict, or if no row is left.
    """
    rows = _rows(table)
    if verdicts is not None:
        wanted = [verdicts] if isinstance(verdicts, str) else list(verdicts)
        for verdict in wanted:
            if verdict not in _VERDICTS:
                raise ValueError(f"there is no verdict `{verdict}`; the verdicts are {listed(_VERDICTS)}")
        rows = [row for row in rows if row.verdict in wanted]
    if not rows:
        raise ValueError("no row is left to draw; give a reproduction with rows, or other `verdicts`")
    labels = ["\n".join(wrap(row.what, _LABEL)) for row in rows]
    heights = np.asarray([1.0 + 0.75 * label.count("\n") for label in labels])
    bottoms = np.cumsum(heights)
    middles = bottoms - heights / 2
    tall = _FRAME + _ROW * float(heights.sum()) + (_TITLE if title else 0)
    with canvas(ax, figsize("double")[0], tall) as axes:
        low, high = _limits(rows)
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        axes.set_ylim(float(bottoms[-1]) + 0.2, -0.2)
        axes.grid(visible=False, axis="y")
        axes.axvline(1.0, color="black", linewidth=1, zorder=1.5, label="_paper")
        for row, middle, height in zip(rows, middles, heights, strict=True):
            _draw_row(axes, row, float(middle), float(height), (low, high))
        _dress(axes, rows, labels, middles, (low, high))
        if title:
            axes.set_title(title, pad=16 if is_own(axes) else 30)
        return axes


def _rows(table: Table) -> list[Row]:
    """The rows of the table, numbers first."""
    whats, verdicts, units = (texts(table, name) for name in ("what", "verdict", "unit"))
    origins = texts(table, "source") if "source" in column_names(table) else ["paper"] * len(whats)
    expected, ours, half, tolerance, base, at_least, at_most = (
        numbers(table, name) for name in ("expected", "ours", "ci95", "tolerance", "base", "at_least", "at_most")
    )
    rows = []
    for index, what in enumerate(whats):
        low, high = _claim(expected[index], tolerance[index], base[index], at_least[index], at_most[index])
        rows.append(
            Row(
                what=what,
                verdict=verdicts[index] if verdicts[index] in _VERDICTS else "not judged",
                unit=units[index],
                origin=origins[index],
                expected=float(expected[index]),
                ours=float(ours[index]),
                half=float(half[index]),
                low=low,
                high=high,
            )
        )
    return sorted(rows, key=lambda row: not row.is_number)


def _claim(expected: float, tolerance: float, base: float, at_least: float, at_most: float) -> tuple[float, float]:
    """The range of numbers that meet the claim; NaN without a claim."""
    lows, highs = [], []
    if np.isfinite(expected) and np.isfinite(tolerance):
        off = abs((expected - np.nan_to_num(base)) * tolerance)
        lows.append(float(expected - off))
        highs.append(float(expected + off))
    if np.isfinite(at_least):
        lows.append(float(at_least))
    if np.isfinite(at_most):
        highs.append(float(at_most))
    if not lows and not highs:
        return float("nan"), float("nan")
    return max(lows, default=-np.inf), min(highs, default=np.inf)


def _ratios(row: Row) -> Floats:
    """Ours, the ends of its interval, and those of the claim, over the paper's number; NaN without one."""
    reference = row.reference
    half = row.half if np.isfinite(row.half) else 0.0
    values = np.asarray([row.ours, row.ours - half, row.ours + half, row.low, row.high])
    if not np.isfinite(reference) or reference == 0:
        return np.full(5, np.nan)
    ratios = values / reference
    return ratios if reference > 0 else ratios[[0, 2, 1, 4, 3]]


def _limits(rows: list[Row]) -> tuple[float, float]:
    """The ends of the axis, which shows most rows; twice and half are equally far from 1."""
    reaches = []
    for row in rows:
        ours, first, last, least, most = _ratios(row)
        ends = np.asarray([first, last] + [end for end in (least, most) if np.isfinite(end)])
        if np.isfinite(ours):
            reaches.append(float(np.exp(np.abs(np.log(ends)).max())) if (ends > 0).all() else np.inf)
    needed = float(np.quantile(reaches, _SHOWN, method="higher")) if reaches else 1.0
    reach = next((reach for reach in _REACHES if reach >= 1.02 * needed), _REACHES[-1])
    return 1 / reach, reach


def _draw_row(axes: Axes, row: Row, middle: float, height: float, limits: tuple[float, float]) -> None:
    """The claim's band, our interval, and our number with the marker of its verdict."""
    low, high = limits
    look = _VERDICTS[row.verdict]
    if row.verdict == "broken":
        axes.axhspan(middle - height / 2, middle + height / 2, color=PALETTE[1], alpha=0.1, linewidth=0, zorder=0.4)
    ours, first, last, least, most = _ratios(row)
    if not np.isnan(least):
        left, right = max(least, low), min(most, high)
        band = Rectangle((left, middle - 0.32), right - left, 0.64, color=PALETTE[5], alpha=0.4, linewidth=0, zorder=1)
        axes.add_patch(band)
    if np.isnan(ours):
        return
    if np.isfinite(row.half):
        ends = np.clip([first, last], low, high)
        axes.plot(ends, [middle, middle], color=look.color, linewidth=1.4, solid_capstyle="butt", zorder=2.5)
    if not low <= ours <= high:
        _draw_arrow(axes, ours, middle, limits, look)
        return
    axes.plot([ours], [middle], zorder=3, gid=f"verdict-{row.verdict.replace(' ', '-')}", **_marker(look))


def _draw_arrow(axes: Axes, ours: float, middle: float, limits: tuple[float, float], look: Verdict) -> None:
    """A number beyond the axis: an arrow at the edge, with the ratio."""
    is_low = ours < limits[0]
    axes.plot(
        [limits[0] if is_low else limits[1]],
        [middle],
        color=look.color,
        marker="<" if is_low else ">",
        markersize=5,
        linestyle="none",
        clip_on=False,
        zorder=3,
    )
    axes.annotate(
        f"× {ours:.2g}" if ours < 100 else f"× {ours:.0f}",
        (limits[0] if is_low else limits[1], middle),
        xytext=(6 if is_low else -6, 0),
        textcoords="offset points",
        ha="left" if is_low else "right",
        va="center",
        fontsize="small",
        color=look.color,
    )


def _marker(look: Verdict) -> dict[str, Any]:
    """The settings of a line that is one marker of this verdict."""
    return {
        "color": look.color,
        "marker": look.marker,
        "markersize": look.size,
        "fillstyle": look.fill,
        "markerfacecoloralt": "white",
        "markeredgecolor": look.color,
        "markeredgewidth": 0.9,
        "linestyle": "none",
    }


def _dress(axes: Axes, rows: list[Row], labels: list[str], middles: Floats, limits: tuple[float, float]) -> None:
    """Names and verdicts at the left, numbers at the right, ticks, and a legend."""
    axes.set_yticks(middles, labels, fontsize="small", linespacing=0.95)
    axes.tick_params(axis="y", length=0, pad=13)
    for name in ("left", "top", "right"):
        axes.spines[name].set_visible(False)
    weights = ["bold" if row.verdict == "broken" else "normal" for row in rows]
    for tick, weight in zip(axes.get_yticklabels(), weights, strict=True):
        tick.set_fontweight(weight)
    shift = ScaledTranslation(-7 / 72, 0, axes.figure.dpi_scale_trans)
    for row, middle in zip(rows, middles, strict=True):
        axes.plot([0], [middle], transform=axes.get_yaxis_transform() + shift, clip_on=False,
                  **_marker(_VERDICTS[row.verdict]))
    written = [("paper", "ours")] + [_texts(row) for row in rows]
    second = 2 * _GAP + _LETTER * max(len(theirs) for theirs, _ in written)
    places = [-0.1, *middles]
    for place, weight, both in zip(places, ["normal", *weights], written, strict=True):
        for offset, text in zip((_GAP, second), both, strict=True):
            axes.annotate(text, (1, place), xycoords=axes.get_yaxis_transform(), xytext=(offset, 0),
                          textcoords="offset points", va="center" if place > 0 else "bottom", fontsize="small",
                          fontweight=weight, color=matplotlib.rcParams["text.color"] if place > 0 else QUIET)
    axes.xaxis.set_major_locator(FixedLocator(_ticks(*limits)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("Ours over the paper's number")
    _legend(axes, rows)


def _ticks(low: float, high: float) -> list[float]:
    """At most nine ticks, 1 among them, that are not too close to each other."""
    inside = [tick for tick in _TICKS if low <= tick <= high]
    gap = np.log(high / low) / 10
    kept = [1.0]
    for tick in sorted(inside, key=lambda tick: abs(np.log(tick))):
        if all(abs(np.log(tick / other)) >= gap for other in kept):
            kept.append(tick)
    return sorted(kept)


def _texts(row: Row) -> tuple[str, str]:
    """The paper's number and ours, in one unit."""
    if not row.is_number:
        return "", row.verdict
    known = np.asarray([row.expected, row.ours, row.low, row.high])
    unit = scale(row.unit, known[np.isfinite(known)])
    if np.isfinite(row.expected):
        theirs = unit.text(row.expected)
    elif np.isfinite(row.low) and np.isfinite(row.high):
        theirs = f"{unit.text(row.low)} to {unit.text(row.high)}"
    elif np.isfinite(row.low):
        theirs = f"≥ {unit.text(row.low)}"
    elif np.isfinite(row.high):
        theirs = f"≤ {unit.text(row.high)}"
    else:
        theirs = "–"
    origin = "" if row.origin in ("", "paper") or theirs == "–" else f" ({row.origin})"
    return theirs + origin, unit.text(row.ours, row.half)


def _legend(axes: Axes, rows: list[Row]) -> None:
    """The verdicts that occur, the paper's number, and the band: above the axes, or above our own figure."""
    handles: list[Line2D | Patch] = []
    names = []
    for verdict, look in _VERDICTS.items():
        count = sum(row.verdict == verdict for row in rows)
        if count:
            handles.append(Line2D([], [], **_marker(look)))
            names.append(f"{verdict} ({count})")
    handles.append(Line2D([], [], color="black", linewidth=1))
    names.append("paper")
    if any(not np.isnan(row.low) for row in rows):
        handles.append(Patch(color=PALETTE[5], alpha=0.4, linewidth=0))
        names.append("meets the claim")
    if is_own(axes):
        count = len(names)
        axes.figure.legend(handles, names, loc="outside upper left", ncols=count, handlelength=1.4, columnspacing=1.4)
    else:
        axes.legend(handles, names, loc="lower center", bbox_to_anchor=(0.5, 1.04), ncols=3, handlelength=1.4)
