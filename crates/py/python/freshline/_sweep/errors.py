"""Errors of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from freshline._errors import Error


@dataclass(frozen=True)
class Failure:
    """A chunk that could not be run."""

    chunk: str
    """Hash of the chunk, which is the name of its file."""
    combinations: tuple[dict[str, object], ...]
    """Changes of the runs that failed; those of the whole chunk if the failing run is unknown."""
    message: str
    """Reason of the failure."""

    def __str__(self) -> str:
        shown = ", ".join(_shown(changes) for changes in self.combinations[:3])
        more = f" and {len(self.combinations) - 3} more" if len(self.combinations) > 3 else ""
        return f"chunk {self.chunk[:12]} with {shown}{more}: {self.message}"


class SweepError(Error):
    """A sweep cannot start, or some of its chunks failed.

    `failures` lists the chunks that failed. All other chunks are complete when this is raised.
    """

    def __init__(self, message: str, failures: Sequence[Failure] = ()) -> None:
        super().__init__(message)
        self.failures = tuple(failures)


class Stopped(Exception):
    """Ends a native call on a background thread after the sweep was stopped."""


class SweepInterrupted(KeyboardInterrupt):
    """The user stopped a sweep. Its directory is consistent; the message says how to resume."""


def failed(failures: Sequence[Failure], directory: object) -> SweepError:
    """The error for chunks that failed after all others have finished."""
    lines = "\n".join(f"  {failure}" for failure in failures[:10])
    more = f"\n  and {len(failures) - 10} more" if len(failures) > 10 else ""
    count = "1 chunk" if len(failures) == 1 else f"{len(failures)} chunks"
    return SweepError(
        f"{count} of the sweep in {directory} failed; all other chunks are complete:\n{lines}{more}\n"
        "Correct the cause and call freshline.sweep again with the same arguments: "
        "it runs only the missing chunks.",
        failures,
    )


def interrupted(done: int, total: int, directory: object) -> SweepInterrupted:
    """The error for Ctrl-C. `done` and `total` are numbers of runs; no `total`: there is no plan."""
    if not total:
        return SweepInterrupted(f"stopped while the sweep in {directory} was planned")
    return SweepInterrupted(
        f"stopped after {done} of {total} runs. Their results are in {directory}; "
        "call freshline.sweep again with the same arguments to resume."
    )


def _shown(changes: dict[str, object]) -> str:
    return "(" + ", ".join(f"{key}={value!r}" for key, value in changes.items()) + ")"
