"""Units of axes: s, bit/s and bytes are drawn with the prefix that suits the numbers."""

from dataclasses import dataclass
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import XAxis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ._data import Floats

TimeUnit: TypeAlias = Literal["s", "ms", "us"]
Axis: TypeAlias = Literal["x", "y"]


@dataclass(frozen=True)
class Scale:
    """Numbers in `base` times `factor` are in `unit`."""

    base: str
    factor: float
    unit: str

    def label(self, quantity: str) -> str:
        """The quantity with its unit, for an axis."""
        return f"{quantity} ({self.unit})" if self.unit else quantity

    def text(self, value: float, half: float = float("nan"), digits: int | None = None) -> str:
        """A number, with half of its interval where that is known, and its unit."""
        if not np.isfinite(value):
            return "unknown"
        places = self.digits(np.asarray([value]), np.asarray([half])) if digits is None else digits
        interval = f" ± {half * self.factor:.{places}f}" if np.isfinite(half) else ""
        unit = self.unit[1:] if self.unit.startswith("1/") else f" {self.unit}"
        return f"{value * self.factor:.{places}f}{interval}{unit}".rstrip()

    def digits(self, values: Floats, halves: Floats) -> int:
        """Decimal places for these numbers: the smallest interval has one to two digits, or numbers have three."""
        steps = halves[np.isfinite(halves) & (halves > 0)]
        if not len(steps):
            steps = np.abs(values[np.isfinite(values) & (values != 0)]) / 100
        if not len(steps):
            return 0
        return max(0, min(9, int(np.ceil(-np.log10(float(steps.min()) * self.factor)))))


_PREFIXES = {
    "s": ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "µs")),
    "bit/s": ((1e9, 1e-9, "Gbit/s"), (1e6, 1e-6, "Mbit/s"), (1e3, 1e-3, "kbit/s"), (0.0, 1.0, "bit/s")),
    "bytes": ((1e6, 1e-6, "MB"), (1e3, 1e-3, "kB"), (0.0, 1.0, "bytes")),
}
_TIMES = {"s": (1.0, "s"), "ms": (1e3, "ms"), "us": (1e6, "µs")}


def scale(base: str, values: Floats, unit: TimeUnit | None = None) -> Scale:
    """The scale for these values; `unit` forces one of times. Raises ValueError for another unit."""
    if unit is not None and base == "s":
        if unit not in _TIMES:
            raise ValueError(f"unit is {unit!r}; give 's', 'ms' or 'us'")
        return Scale(base, *_TIMES[unit])
    if base not in _PREFIXES:
        return Scale(base, 1.0, "" if base == "1" else base)
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if len(finite) else 0.0
    factor, name = next((factor, name) for least, factor, name in _PREFIXES[base] if largest >= least)
    return Scale(base, factor, name)


_SCALES: WeakKeyDictionary[Axes, dict[Axis, Scale]] = WeakKeyDictionary()


def axis_scale(ax: Axes, axis: Axis, base: str, values: Floats, unit: TimeUnit | None = None) -> Scale:
    """The scale of an axis: that of the first call for it, or for an axis that it shares.

    Raises ValueError if the axis already has another quantity.
    """
    shared = ax.get_shared_x_axes() if axis == "x" else ax.get_shared_y_axes()
    for sibling in shared.get_siblings(ax):
        kept = _SCALES.get(sibling, {}).get(axis)
        if kept is None:
            continue
        if kept.base != base:
            raise ValueError(
                f"the {axis} axis is in {kept.unit or 'plain numbers'}, not in {base}; draw on other axes"
            )
        return kept
    found = scale(base, values, unit)
    _SCALES.setdefault(ax, {})[axis] = found
    return found


def plain_log(axis: XAxis) -> None:
    """Makes the axis logarithmic, with plain numbers such as 20, 50 and 100 as its ticks."""
    axis.axes.set_xscale("log")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
