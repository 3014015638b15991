"""Attempts at chunks: times and errors, one line of JSON each, one file per process."""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .errors import Failure

FOLDER = "summaries"


@dataclass(frozen=True)
class Summary:
    """One attempt at a chunk."""

    chunk: str
    """Hash of the chunk."""
    worker: str
    """Host and process."""
    started: float
    """Start in seconds since 1970."""
    finished: float
    """End in seconds since 1970, with the file written."""
    run_seconds: float
    """Time inside of the runs, multiplied by the number of threads."""
    runs: int
    """Number of runs; 0 if the file was there already, or if the chunk failed."""
    threads: int = 1
    """Threads that this worker used."""
    error: str = ""
    """Reason of a failure."""
    combinations: tuple[dict[str, object], ...] = field(default=())
    """Changes of the runs that failed."""

    @classmethod
    def failed(cls, chunk: str, worker: str, started: float, failure: Failure) -> Summary:
        """The summary of a chunk that failed."""
        return cls(
            chunk, worker, started, started, 0.0, 0, 1, failure.message, failure.combinations
        )

    def failure(self) -> Failure | None:
        """The failure, if the chunk failed."""
        return Failure(self.chunk, tuple(self.combinations), self.error) if self.error else None


def worker() -> str:
    """Name of this process."""
    return f"{socket.gethostname()}-{os.getpid()}"


def append(directory: Path, summaries: Iterable[Summary]) -> None:
    """Append summaries to the file of this process."""
    lines = "".join(json.dumps(asdict(summary)) + "\n" for summary in summaries)
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    with open(folder / f"{worker()}.jsonl", "a", encoding="utf-8") as file:
        file.write(lines)


def load(directory: Path) -> list[Summary]:
    """All summaries in the order of their start. Damaged and half-written lines are left out."""
    found = []
    for path in (directory / FOLDER).glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                content = json.loads(line)
                content["combinations"] = tuple(content["combinations"])
                one = Summary(**content)
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
                continue
            if _is_valid(one):
                found.append(one)
    return sorted(found, key=lambda summary: summary.started)


def _is_valid(one: Summary) -> bool:
    """Whether all values have their types."""
    numbers = (one.started, one.finished, one.run_seconds, one.runs, one.threads)
    return (
        all(isinstance(text, str) for text in (one.chunk, one.worker, one.error))
        and all(type(each) in (int, float) and math.isfinite(each) for each in numbers)
        and all(isinstance(changes, dict) for changes in one.combinations)
    )


def overhead(summaries: Iterable[Summary]) -> float | None:
    """Mean time per chunk outside of the runs, in seconds of one core; None without a chunk.

    Counted from the end of the previous chunk of the same worker, and so with the dispatch, if
    the previous chunk ended less than `GAP_SECONDS` before.
    """
    last: dict[str, float] = {}
    spent = []
    for summary in sorted(summaries, key=lambda one: one.started):
        if summary.runs:
            end = last.get(summary.worker, summary.started)
            begin = end if 0.0 <= summary.started - end < GAP_SECONDS else summary.started
            spent.append((summary.finished - begin) * summary.threads - summary.run_seconds)
        last[summary.worker] = summary.finished
    return max(sum(spent) / len(spent), 0.0) if spent else None


GAP_SECONDS = 10.0
"""Longest pause of a worker that counts as dispatch. A longer one means: there was no work."""
