"""Rows of a table of metrics: one metric of one flow or link, at the points of a sweep."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._data import Floats, Table, column_names, listed, numbers, texts, values

_MEASURED = ("of", "name", "value", "unit", "ci95", "run", "seed", "job", "point")


@dataclass(frozen=True)
class Measured:
    """One metric at each point of a sweep."""

    of: str
    name: str
    value: Floats
    """Its means, in `unit`."""
    half: Floats
    """Half of the 95 % intervals; NaN with one run."""
    unit: str
    """`s`, `1/s`, `bit/s`, `packets`, … or `1` for a plain number."""
    swept: dict[str, list[Any]]
    """The value of each swept key at each point."""


def measured(table: Table, metric: str, flow: str | None) -> Measured:
    """The rows of a metric. Raises ValueError for a metric or a flow that the table does not have."""
    names = column_names(table)
    ofs, metrics = texts(table, "of"), texts(table, "name")
    having = list(dict.fromkeys(of for of, name in zip(ofs, metrics, strict=True) if name == metric))
    if flow is not None and flow not in ofs:
        raise ValueError(f"there is no flow or link `{flow}`; the table has {listed(ofs)}")
    if not having or (flow is not None and flow not in having):
        known = [name for of, name in zip(ofs, metrics, strict=True) if flow in (None, of)]
        of_flow = f" of `{flow}`" if flow else ""
        raise ValueError(f"there is no metric `{metric}`{of_flow}; the metrics are {listed(known)}")
    if flow is None and len(having) > 1:
        raise ValueError(f"several flows have the metric `{metric}`; give `flow`, one of {listed(having)}")
    chosen = having[0] if flow is None else flow
    kept = [row for row, pair in enumerate(zip(ofs, metrics, strict=True)) if pair == (chosen, metric)]
    units = texts(table, "unit")
    half = numbers(table, "ci95") if "ci95" in names else np.full(len(ofs), np.nan)
    return Measured(
        of=chosen,
        name=metric,
        value=numbers(table, "value")[kept],
        half=half[kept],
        unit=units[kept[0]],
        swept={name: [values(table, name)[row] for row in kept] for name in names if name not in _MEASURED},
    )


_QUANTITIES = {
    "age_mean": "Mean age",
    "age_p95": "95 % quantile of age",
    "age_p99": "99 % quantile of age",
    "age_max": "Maximum age",
    "peak_age_mean": "Mean peak age",
    "source_age_mean": "Mean age at the source",
    "weighted_age": "Weighted age",
    "rtt_mean": "Mean RTT",
    "goodput_sum": "Goodput of all flows",
    "age_jain": "Jain's index of ages",
    "goodput_jain": "Jain's index of goodputs",
}


def quantity(metric: str) -> str:
    """A metric in words, for an axis."""
    words = metric.replace("_", " ")
    return _QUANTITIES.get(metric, words[:1].upper() + words[1:])
