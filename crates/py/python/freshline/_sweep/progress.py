"""A progress bar on stderr, with the time left."""

from __future__ import annotations

import sys
import time

WIDTH = 24
"""Characters of the bar."""
TERMINAL_SECONDS, LOG_SECONDS = 0.5, 10.0
"""Shortest time between two lines on a terminal, and elsewhere."""


class Progress:
    """Counts runs, and estimates the time left from the estimated costs of runs.

    `shown=None` shows the bar if stderr is a terminal. Elsewhere (`shown=True`) it prints a line
    every `LOG_SECONDS`.

    For runs of one cost: `with Progress(total) as bar: bar.update(done)`.
    For chunks: `begin`, then `within` while a chunk runs and `advance` when it ends; then `end`.
    """

    def __init__(self, total: int = 0, *, shown: bool | None = None) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = self._terminal if shown is None else shown
        self._start = self._printed = time.monotonic()
        self.done, self.total, self.failed = 0, total, 0
        self._finished, self._left = 0.0, float(total)
        self._running = (0, 0.0)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self, done: int, total: int, cost: float) -> None:
        """Start with `done` of `total` runs complete, and `cost` core-seconds of chunks to run."""
        self._start = time.monotonic()
        self.done, self.total, self._left = done, total, cost
        self._print()

    def within(self, runs: int, cost: float) -> None:
        """`runs` of the current chunks are done, of `cost` core-seconds. From any thread."""
        self._running = (runs, cost)

    def advance(self, runs: int, cost: float, *, failed: bool = False) -> None:
        """A chunk ended."""
        self._running = (0, 0.0)
        self.done += 0 if failed else runs
        self.failed += failed
        self._finished += cost
        self._left -= cost
        self.tick()

    def update(self, done: int) -> None:
        """`done` runs of one cost are complete."""
        self._running = (done, float(done))
        self.tick()

    def tick(self) -> None:
        """Print, if the last line is old enough."""
        if time.monotonic() - self._printed >= (TERMINAL_SECONDS if self._terminal else LOG_SECONDS):
            self._print()

    def end(self) -> None:
        """Print the last state, and leave its line."""
        self._print()
        if self._shown and self._terminal:
            print(file=sys.stderr)

    def line(self) -> str:
        """The text of the bar."""
        if not self.total:
            return "timing pilot runs"
        runs, cost = self._running
        done = min(self.done + runs, self.total)
        filled = WIDTH * done // self.total
        text = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{self.total} runs"
        finished, left = self._finished + cost, self._left - cost
        if finished > 0 and left > 1e-9:
            text += f", {duration((time.monotonic() - self._start) * left / finished)} left"
        return text + (f", {self.failed} chunks failed" if self.failed else "")

    def _print(self) -> None:
        self._printed = time.monotonic()
        if self._shown:
            start, end = ("\r\x1b[K", "") if self._terminal else ("", "\n")
            print(f"{start}{self.line()}", end=end, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """A time for people, such as `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes} min {whole % 60} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
