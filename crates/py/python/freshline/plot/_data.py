"""Columns of tables of any library, as arrays of numpy or lists of text."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]


class Table(Protocol):
    """Returns a column for a name: `freshline.Table`, dataframes, and mappings."""

    def __getitem__(self, name: str, /) -> Any: ...


def column_names(table: Table) -> list[str]:
    """The names of all columns, in order."""
    if isinstance(table, Mapping):
        return [str(name) for name in table]
    for attribute in ("column_names", "columns"):
        names = getattr(table, attribute, None)
        if names is not None and not callable(names):
            return [str(name) for name in names]
    raise ValueError(
        f"{type(table).__name__} is not a table; give a freshline.Table, a polars, pandas or pyarrow table, or a "
        "dict from names to columns"
    )


def numbers(table: Table, name: str) -> Floats:
    """A column of numbers; unknown values are NaN. Raises ValueError without it, or if it has text."""
    column = _column(table, name)
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"the column `{name}` does not have numbers; draw another one") from None


def texts(table: Table, name: str) -> list[str]:
    """A column as text; unknown values are empty. Raises ValueError without it."""
    return ["" if value is None else str(value) for value in values(table, name)]


def values(table: Table, name: str) -> list[Any]:
    """A column as it is. Raises ValueError without it."""
    column = _column(table, name)
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def _column(table: Table, name: str) -> Any:
    names = column_names(table)
    if name not in names:
        raise ValueError(f"the table has no column `{name}`; its columns are {listed(names)}")
    return table[name]


def listed(names: Iterable[object]) -> str:
    """Names for a message, each once."""
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names)) or "none"
