"""PyArrow, imported on first use: `import freshline` works without it, and stays fast with it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .errors import SweepError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
else:

    class _Module:
        """A module that is imported when an attribute of it is used."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            try:
                value = getattr(importlib.import_module(self._name), name)
            except ImportError as error:
                raise SweepError(
                    'freshline.sweep needs PyArrow: pip install "freshline[sweep]"'
                ) from error
            setattr(self, name, value)
            return value

    pa = _Module("pyarrow")
    pc = _Module("pyarrow.compute")
    ds = _Module("pyarrow.dataset")
    pq = _Module("pyarrow.parquet")

__all__ = ["ds", "pa", "pc", "pq"]
