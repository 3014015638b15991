"""Seeds, as `lab.run` and `sweep` accept them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import SupportsIndex

MAX_SEED = 2**64 - 1


def listed(seeds: int | Iterable[int], maximum: int = MAX_SEED) -> list[int]:
    """Seeds in the given order. An integer N means 1 to N; numpy's integers are integers.

    Raises ValueError without a seed, for a seed that appears twice, and for a value that is not an integer from 0 to
    `maximum`.
    """
    count = _integer(seeds)
    if count is not None:
        found = list(range(1, count + 1))
    elif isinstance(seeds, Iterable) and not isinstance(seeds, str | bytes):
        found = [_checked(seed, maximum) for seed in seeds]
    else:
        raise ValueError(f"seeds: give a number, a range or a list, not {seeds!r}")
    if not found:
        raise ValueError("seeds: empty; give at least one")
    seen: set[int] = set()
    for seed in found:
        if seed in seen:
            raise ValueError(f"seeds: {seed} appears twice")
        seen.add(seed)
    return found


def _checked(seed: object, maximum: int) -> int:
    value = _integer(seed)
    if value is None or not 0 <= value <= maximum:
        raise ValueError(f"seeds: {seed!r} is not an integer from 0 to {maximum}")
    return value


def _integer(value: object) -> int | None:
    """The value of an integer; None for other values, `True` and `False` among them."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of numpy
        return None
