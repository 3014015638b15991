"""Run chunks on the cores of this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import background, summary
from . import chunk as chunks
from .arrow import pa
from .errors import Failure, Stopped
from .plan import Chunk, Plan
from .progress import Progress
from .summary import Summary


@dataclass(frozen=True)
class Outcome:
    """Result of a chunk: a table or a failure."""

    chunk: Chunk
    result: pa.Table | Failure
    summary: Summary


def run(
    directory: Path, plan: Plan, missing: Sequence[Chunk], cpus: int, progress: Progress
) -> list[Failure]:
    """Run `missing` chunks, and return the failures.

    A background thread runs a few chunks per native call, each call on `cpus` threads. This
    thread writes the files meanwhile. One call covers half as many chunks as there are threads,
    so that no thread idles for long at the end of a call.
    """
    size = max(1, cpus // 2)
    batches = [missing[first : first + size] for first in range(0, len(missing), size)]
    failures = []
    stop = threading.Event()

    def check(_: int) -> None:
        if stop.is_set():
            raise Stopped("the sweep was stopped")

    def work(batch: Sequence[Chunk]) -> list[Outcome]:
        cost = sum(chunk.cost for chunk in batch) / sum(chunk.runs for chunk in batch)

        def look(runs: int) -> None:
            check(runs)
            progress.within(runs, cost * runs)

        return _outcomes(plan, batch, cpus, look, check)

    try:
        for outcomes in background.results(batches, work, 1, ahead=1, tick=progress.tick):
            for outcome in outcomes:
                failed = isinstance(outcome.result, Failure)
                if failed:
                    failures.append(outcome.result)
                else:
                    chunks.write(directory, plan, outcome.chunk, outcome.result)
                progress.advance(outcome.chunk.runs, outcome.chunk.cost, failed=failed)
            summary.append(directory, [outcome.summary for outcome in outcomes])
    finally:
        stop.set()
    return failures


def _outcomes(
    plan: Plan,
    batch: Sequence[Chunk],
    threads: int,
    look: Callable[[int], None],
    check: Callable[[int], None],
) -> list[Outcome]:
    """Run chunks in one call; one by one if that fails, so that a failure costs one chunk only.

    `look` and `check` are called during runs, and raise `Stopped` after the sweep was stopped.
    """
    started, before = time.time(), time.perf_counter()
    try:
        table = chunks.batch(plan, batch, threads, look)
    except BaseException as error:  # a panic of the native module is no Exception
        check(0)
        if len(batch) > 1:
            each = [_outcomes(plan, [one], threads, look, check) for one in batch]
            return [outcome for outcomes in each for outcome in outcomes]
        failure = chunks.explain(plan, batch[0], error, check)
        failed = Summary.failed(batch[0].hash, summary.worker(), started, failure)
        return [Outcome(batch[0], failure, failed)]
    seconds = time.perf_counter() - before
    tables = chunks.split(batch, table)
    share = (time.time() - started) / len(batch)
    outcomes = []
    for number, (chunk, part) in enumerate(zip(batch, tables, strict=True)):
        begin = started + number * share
        times = Summary(
            chunk.hash,
            summary.worker(),
            begin,
            begin + share,
            seconds * threads / len(batch),
            chunk.runs,
            threads,
        )
        outcomes.append(Outcome(chunk, part, times))
    return outcomes
