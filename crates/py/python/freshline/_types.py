"""Types of arguments, for type checkers."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from freshline._native import Events, Monitor, Source, Subscription

Seconds: TypeAlias = float | datetime.timedelta | str
"""A time: seconds, a timedelta, or text such as "200ms"."""
Rate: TypeAlias = float | str
"""Updates per second, or text such as "50/s"."""
Bandwidth: TypeAlias = float | str
"""Bits per second, or text such as "5mbit"."""
Payload: TypeAlias = "Buffer | str"
"""A state: bytes, text, or an object with the buffer protocol, such as a numpy array."""
Numbers: TypeAlias = "Buffer | Sequence[float]"
"""Numbers: an array, a column of a table, or a sequence."""
Report: TypeAlias = dict[str, Any]
"""A report of a run; docs/json.md describes the keys."""
AnyLaw: TypeAlias = str | Mapping[str, Any]
"""A law by its name, or with its settings."""
Path: TypeAlias = str | os.PathLike[str]
"""The path of a file or folder."""
Laws: TypeAlias = dict[str, Callable[[], object]]
"""By the names of flows, the functions that make the laws of their sources."""
Progress: TypeAlias = Callable[[int], object]
"""Called with the number of runs that are done."""
Awaited: TypeAlias = "Union[Subscription, Events, Source, Monitor]"
"""Items that a task can wait for: the next state or event, or the end."""
