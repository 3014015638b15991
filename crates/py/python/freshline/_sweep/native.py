"""The only place where the sweep calls the native module. Tests replace these functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .arrow import pa, pc
from .grid import RUN_COLUMNS

Job = tuple[dict[str, object], list[int]]
"""Changes of the scenario, and the seeds of its runs."""


def run_batch(
    name: str,
    text: str,
    folder: str | None,
    jobs: list[Job],
    threads: int,
    progress: Callable[[int], None] | None = None,
) -> pa.Table:
    """Run the scenario once per job and seed, on `threads` threads.

    Returns the columns job, seed, of, name, value and unit, in the order of jobs and seeds.
    `progress` gets the number of runs done now and then; if it raises, the call ends early.
    """
    from freshline import _native

    rows = _native.run_batch(name, text, _path(folder), jobs, threads, progress)
    table = pa.RecordBatchReader.from_stream(rows).read_all()  # pa.table would import pandas
    types = {"job": "uint32"} | RUN_COLUMNS
    # The native module's strings are views, for which Arrow has few functions.
    return table.cast(pa.schema([(name, pa.type_for_alias(type)) for name, type in types.items()]))


def load() -> None:
    """Import the modules that `run_batch` needs, so that the first call takes no longer than others."""
    from freshline import _native

    _ = _native.run_batch, pa.RecordBatchReader, pc.cast


def check(name: str, text: str, folder: str | None, changes: dict[str, object]) -> None:
    """Parse the scenario with `changes`, without a run. Raises if a key or a value is wrong."""
    from freshline import _native

    _native.Prepared(name, text, _path(folder), changes)


def scenario_text(name: str) -> str:
    """Text of a bundled scenario."""
    from freshline import _native

    return str(_native.scenario_text(name))


def toml_of(scenario: dict[str, object]) -> str:
    """TOML text of a scenario."""
    from freshline import _native

    return str(_native.toml_of(scenario))


def confidence(values: list[float]) -> float | None:
    """Half the width of the 95 % confidence interval of the mean."""
    from freshline import _native

    return _native.confidence(values)


def version() -> str:
    """Version of freshline. Results of two versions are never mixed in one directory."""
    from freshline import _native

    return str(_native.__version__)


def _path(folder: str | None) -> Path | None:
    return None if folder is None else Path(folder)
