"""How figures look: sizes of a two-column paper, vector fonts, and lines that differ in more than colour."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import matplotlib
from cycler import cycler

Column: TypeAlias = Literal["single", "double"]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours that readers with any colour vision tell apart (Okabe and Ito), without the yellow, which is faint."""

INK = "#262626"
QUIET = "#7a7a7a"
GRID = "#e6e6e6"

_LINES: tuple[Any, ...] = (
    "-",
    (0, (4, 1.5)),
    (0, (4, 1.5, 1, 1.5)),
    (0, (1, 1.2)),
    (0, (7, 2)),
    (0, (7, 1.5, 1, 1, 1, 1.5)),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_WIDTHS = {"single": 3.5, "double": 7.16}


def figsize(column: Column = "single", ratio: float = 0.62) -> tuple[float, float]:
    """Width and height in inches of a figure in one column of a paper (3.5 in), or across both (7.16 in).

    `ratio` is height over width. Raises ValueError for another column or a ratio that is not above zero.
    """
    if column not in _WIDTHS:
        raise ValueError(f"column is {column!r}; give 'single' or 'double'")
    if not ratio > 0:
        raise ValueError(f"ratio is {ratio}; give height over width, above 0")
    return _WIDTHS[column], _WIDTHS[column] * ratio


def rc(column: Column = "single", ratio: float = 0.62) -> dict[str, Any]:
    """The settings of `style`, for `matplotlib.rcParams.update(...)`."""
    return {
        "figure.figsize": figsize(column, ratio),
        "figure.dpi": 150,
        "figure.constrained_layout.use": True,
        "savefig.dpi": 300,
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
        "svg.fonttype": "none",
        "font.family": ["sans-serif"],
        "font.sans-serif": ["Arial", "Helvetica", "Liberation Sans", "DejaVu Sans"],
        "font.size": 8,
        "axes.labelsize": 8,
        "axes.titlesize": 8.5,
        "axes.titlelocation": "left",
        "axes.linewidth": 0.6,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.prop_cycle": cycler(color=PALETTE),
        "grid.color": GRID,
        "grid.linewidth": 0.5,
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.labelsize": 7.5,
        "ytick.labelsize": 7.5,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 3,
        "ytick.major.size": 3,
        "xtick.minor.size": 1.5,
        "ytick.minor.size": 1.5,
        "lines.linewidth": 1.2,
        "lines.markersize": 4,
        "legend.fontsize": 7.5,
        "legend.frameon": False,
        "legend.handlelength": 2.4,
    }


def style(column: Column = "single", ratio: float = 0.62) -> AbstractContextManager[None]:
    """A context in which figures are made, and saved, for a publication.

    Fonts are embedded as fonts in PDF and stay text in SVG, which takes effect when a figure is saved: call
    `savefig` in this context.

    >>> with style("double"):                                # doctest: +SKIP
    ...     plot.sawtooth(result.ages).figure.savefig("age.pdf")
    """
    return _settings(rc(column, ratio))


def own_style() -> AbstractContextManager[None]:
    """The style for a figure that a function makes: only settings that still have matplotlib's default change."""
    now: Any = matplotlib.rcParams
    default: Any = matplotlib.rcParamsDefault
    return _settings({key: value for key, value in rc().items() if now[key] == default[key]})


@contextmanager
def _settings(changes: dict[str, Any]) -> Iterator[None]:
    """Changes these settings, and restores them alone.

    `matplotlib.rc_context` would restore all: a backend that is loaded by the first figure, in this context, turns on
    `interactive`, without which Jupyter does not show the figures of later cells.
    """
    settings: Any = matplotlib.rcParams
    before = {key: settings[key] for key in changes}
    settings.update(changes)
    try:
        yield
    finally:
        settings.update(before)


@dataclass(frozen=True)
class Look:
    """Colour, line style and marker of one line."""

    color: str
    line: Any
    marker: str


def look(number: int) -> Look:
    """The style of the line with this number, from 0; 42 lines have different styles."""
    return Look(
        PALETTE[number % len(PALETTE)],
        _LINES[number % len(_LINES)],
        _MARKERS[number % len(_MARKERS)],
    )
