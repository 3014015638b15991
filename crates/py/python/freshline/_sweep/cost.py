"""Costs of runs: pilot runs, and an estimate for combinations without one."""

from __future__ import annotations

import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from . import background, native
from .arrow import pa
from .errors import Failure, SweepError
from .scenario import Source

Combination = dict[str, object]

CHECK_SECONDS = 10.0
"""Time for checks of combinations without a run."""
PILOT_SECONDS = 30.0
"""Time after which no further pilot run starts."""
PILOT_RUNS = 256
"""Maximum number of pilot runs. Their results are kept, as the results of any other run."""
FITTED = 1000
"""Maximum number of measured costs to which the model is fitted, the latest ones."""
CALL_SECONDS = 0.05
"""Duration of a pilot call that is long enough: its fixed costs, such as parsing, are small."""
CALL_RUNS = 64
"""Maximum number of runs of a pilot call."""
MIN_COST = 1e-5
"""Lowest estimate of a run, in seconds."""


@dataclass(frozen=True)
class Pilot:
    """Runs of a combination that were timed."""

    combination: int
    """Index of the combination."""
    seeds: list[int]
    """Seeds of the runs, in ascending order."""
    seconds: float
    """Duration of one run on one core."""
    table: pa.Table
    """Results, as `native.run_batch` returns them."""


def order(rows: Sequence[Combination]) -> list[int]:
    """Indices of combinations in a fixed random order, those with a new value of a key first."""
    shuffled = list(range(len(rows)))
    random.Random(1).shuffle(shuffled)
    seen: set[tuple[str, str]] = set()
    first: list[int] = []
    rest: list[int] = []
    for index in shuffled:
        values = set(_factors(rows[index]))
        (rest if values <= seen else first).append(index)
        seen |= values
    return first + rest


def check(source: Source, rows: Sequence[Combination]) -> None:
    """Check combinations without a run: every value at least once, as far as the time allows.

    Raises `SweepError` for the first one that is not valid.
    """
    end = time.monotonic() + CHECK_SECONDS
    for index in order(rows):
        try:
            native.check(source.name, source.text, source.folder, dict(rows[index]))
        except Exception as error:
            raise _invalid(source, rows[index], error) from error
        if time.monotonic() > end:
            return


def pilots(
    source: Source,
    rows: Sequence[Combination],
    wanted: Sequence[int],
    seeds: Mapping[int, Sequence[int]],
    threads: int,
    tick: Callable[[], None] = lambda: None,
) -> Iterator[Pilot]:
    """Time the first of the `seeds` of the combinations `wanted`, or of a sample of them.

    A short run is followed by a call with several runs; the lower mean duration of both counts.
    Raises `SweepError` if a run fails.
    """
    native.load()
    end = time.monotonic() + PILOT_SECONDS

    def tasks() -> Iterator[int]:
        for place in order([rows[index] for index in wanted])[:PILOT_RUNS]:
            if time.monotonic() > end:
                return
            yield wanted[place]

    def call(index: int, chosen: Sequence[int]) -> tuple[float, pa.Table]:
        job = (dict(rows[index]), list(chosen))
        start = time.perf_counter()
        try:
            table = native.run_batch(source.name, source.text, source.folder, [job], 1)
        except Exception as error:
            raise _invalid(source, rows[index], error) from error
        return (time.perf_counter() - start) / len(chosen), table

    def run(index: int) -> Pilot:
        seconds, table = call(index, seeds[index][:1])
        count = min(int(CALL_SECONDS / max(seconds, MIN_COST)), CALL_RUNS)
        more = seeds[index][1 : 1 + count]
        if more:
            mean, rest = call(index, more)
            seconds = min(seconds, mean)
            table = pa.concat_tables([table, rest])
        return Pilot(index, list(seeds[index][: 1 + len(more)]), seconds, table)

    return background.results(tasks(), run, threads, ahead=PILOT_RUNS, tick=tick)


def estimate(rows: Sequence[Combination], measured: dict[int, float]) -> list[float]:
    """Cost of a run of each combination in seconds: measured, or from a model.

    The model is a product of one factor per value of each key, fitted to the logarithms of the
    measured costs by backfitting. A number without a measurement has the factor of the nearest
    number of its key.
    """
    if len(measured) == len(rows):
        return [max(measured[index], MIN_COST) for index in range(len(rows))]
    latest = list(measured.items())[-FITTED:]
    logs = {index: math.log(max(cost, MIN_COST)) for index, cost in latest}
    mean = sum(logs.values()) / max(len(logs), 1)
    effects: dict[tuple[str, str], float] = defaultdict(float)
    keys = {key for index in logs for key in rows[index]}
    for _ in range(10):
        for key in keys:
            residuals: dict[tuple[str, str], list[float]] = defaultdict(list)
            for index, log in logs.items():
                for factor in _factors(rows[index]):
                    if factor[0] == key:
                        rest = sum(effects[other] for other in _factors(rows[index]))
                        residuals[factor].append(log - mean - rest + effects[factor])
            for factor, values in residuals.items():
                effects[factor] = sum(values) / len(values)
    nearest = _Nearest(effects)
    modelled = [
        math.exp(mean + sum(nearest.effect(factor) for factor in _factors(row))) for row in rows
    ]
    return [max(measured.get(index, cost), MIN_COST) for index, cost in enumerate(modelled)]


class _Nearest:
    """Effects of values, of which some were not measured."""

    def __init__(self, effects: dict[tuple[str, str], float]) -> None:
        self._effects = dict(effects)
        self._numbers: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for (key, text), effect in effects.items():
            value = json.loads(text)
            if isinstance(value, int | float):
                self._numbers[key].append((float(value), effect))

    def effect(self, factor: tuple[str, str]) -> float:
        if factor not in self._effects:
            key, value = factor[0], json.loads(factor[1])
            known = self._numbers.get(key)
            if not known or not isinstance(value, int | float):
                return 0.0
            self._effects[factor] = min(known, key=lambda pair: abs(pair[0] - value))[1]
        return self._effects[factor]


def _factors(row: Combination) -> list[tuple[str, str]]:
    return [(key, json.dumps(value, sort_keys=True)) for key, value in row.items()]


def _invalid(source: Source, changes: Combination, error: Exception) -> SweepError:
    failure = Failure("", (changes,), str(error))
    return SweepError(f"cannot run {source.name} with {changes}: {error}", [failure])
