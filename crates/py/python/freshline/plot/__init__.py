"""Figures of ages, queues and laws, on matplotlib.

Every function draws on `ax` and returns it. Without `ax` it makes a figure of its own in the style of `style()`;
settings of matplotlib that you changed yourself keep their values. With `ax`, fonts and frames stay yours.

>>> from freshline import lab, plot                          # doctest: +SKIP
>>> result = lab.run("six-hops")                             # doctest: +SKIP
>>> plot.sawtooth(result.ages, flow="source", end=2.0)       # doctest: +SKIP

Times and rates are drawn in the unit that suits them, such as ms, which the axis names. An axis keeps the unit of the
first function that drew on it, and lines drawn later are converted to it.

Tables can be `freshline.Table`, polars, pandas or pyarrow tables, or mappings from names to columns.
"""

try:
    import matplotlib as _matplotlib
    import numpy as _numpy
except ImportError as error:
    raise ImportError("freshline.plot needs matplotlib and numpy; install them: pip install freshline[plot]") from error

from ._age import age_cdf, sawtooth
from ._laws import compare_laws
from ._paper import paper
from ._rate import age_over_rate
from ._series import queues, series
from ._style import PALETTE, figsize, rc, style

__all__ = [
    "PALETTE",
    "age_cdf",
    "age_over_rate",
    "compare_laws",
    "figsize",
    "paper",
    "queues",
    "rc",
    "sawtooth",
    "series",
    "style",
]

del _matplotlib, _numpy
