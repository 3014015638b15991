"""The axes that a function draws on: those of the caller, or new ones in our style."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.container import Container

from ._style import Look, figsize, look, own_style

Place: TypeAlias = Literal["upper left", "upper center", "upper right", "lower right"]

# The axes that were made here, to which later calls add in the same style.
_OWN: WeakSet[Axes] = WeakSet()


@contextmanager
def canvas(ax: Axes | None, width: float | None = None, height: float | None = None) -> Iterator[Axes]:
    """The axes to draw on. A new figure has these inches, and the width of the caller's settings if there is one."""
    if ax is not None and ax not in _OWN:
        yield ax
        return
    with own_style():
        yield _made(width, height) if ax is None else ax


def is_own(ax: Axes) -> bool:
    """Whether the axes, and their figure, were made here."""
    return ax in _OWN


def _made(width: float | None, height: float | None) -> Axes:
    across, up = matplotlib.rcParams["figure.figsize"]
    is_default = (across, up) == figsize()
    _, ax = plt.subplots(figsize=(width if width and is_default else across, height or up))
    _OWN.add(ax)
    return ax


_DRAWN: WeakKeyDictionary[Axes, int] = WeakKeyDictionary()


def next_look(ax: Axes) -> Look:
    """The style of the next line on these axes, different from the previous ones."""
    number = _DRAWN.get(ax, 0)
    _DRAWN[ax] = number + 1
    return look(number)


def name_axes(ax: Axes, x: str, y: str) -> None:
    """Labels the axes that have no label."""
    if not ax.get_xlabel():
        ax.set_xlabel(x)
    if not ax.get_ylabel():
        ax.set_ylabel(y)


def show_legend(ax: Axes, loc: Place, columns: int = 1) -> None:
    """A legend, if at least two artists have a label: points first, then lines."""
    handles, labels = ax.get_legend_handles_labels()
    if len(handles) > 1:
        order = sorted(range(len(handles)), key=lambda each: not isinstance(handles[each], Container))
        ax.legend(
            [handles[each] for each in order],
            [labels[each] for each in order],
            loc=loc,
            ncols=columns,
            columnspacing=1.4,
        )


def frame_series(ax: Axes, *, from_zero: bool) -> None:
    """Limits and legend of values over time: the legend has room above the lines."""
    count = len(ax.get_legend_handles_labels()[0])
    columns = 2 if count <= 6 else 3
    rows = -(-count // columns) if count > 1 else 0
    ax.margins(x=0, y=0.05 + 0.13 * rows)
    bottom, top = ax.dataLim.y0, ax.dataLim.y1
    # Limits keep following the lines of later calls.
    ax.set_ylim(bottom=0 if from_zero else bottom - 0.05 * (top - bottom or 1), auto=None)
    show_legend(ax, "upper left", columns)
