"""Values of scenarios in the types that TOML has."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._errors import ScenarioError

MAX_DEPTH = 64
"""Maximum depth of nested lists and dictionaries. The native module converts them by recursion, without a limit."""


def plain(value: object, where: str, error: Callable[[str], Exception] = ScenarioError) -> Any:
    """The value as strings, booleans, Python's numbers, lists and dictionaries; numpy's numbers and arrays are converted.

    `where` is the key, for messages. Raises `error` for other values, and for values that are nested too deeply, such
    as a list that contains itself.
    """
    return _plain(value, where, error, 0)


def plain_dict(value: Mapping[Any, object], error: Callable[[str], Exception] = ScenarioError) -> dict[str, Any]:
    """The dictionary with `plain` values. Its keys stay as they are: the native module checks them."""
    return {key: _plain(item, str(key), error, 1) for key, item in value.items()}


def check_depth(depth: int, where: str, error: Callable[[str], Exception] = ScenarioError) -> None:
    """Raise `error` if a value is nested too deeply."""
    if depth > MAX_DEPTH:
        raise error(f"`{where}` has more than {MAX_DEPTH} levels of lists and dictionaries, or contains itself")


def _plain(value: Any, where: str, error: Callable[[str], Exception], depth: int) -> Any:
    if hasattr(value, "tolist") and hasattr(value, "ndim"):
        value = value.tolist()
    if isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Mapping):
        check_depth(depth + 1, where, error)
        return {str(key): _plain(item, where, error, depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        check_depth(depth + 1, where, error)
        return [_plain(item, where, error, depth + 1) for item in value]
    raise error(f"`{where}`: {value!r} is not a number, a string, a boolean, a list or a dict")
