"""Run one task of a job array: `python -m freshline._sweep DIRECTORY --tasks FILE --task N`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import slurm
from .errors import SweepError


def main() -> int:
    """Exit code: 0 for success, 1 if a chunk failed, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m freshline._sweep",
        description="Run one task of the job array of a sweep. array.sh calls this.",
    )
    parser.add_argument("directory", type=Path, help="directory of the sweep")
    parser.add_argument("--task", type=int, required=True, metavar="N", help="index of the task")
    parser.add_argument(
        "--tasks", type=Path, metavar="FILE", help="list of tasks (default: the latest)"
    )
    given = parser.parse_args()
    folder = given.directory / slurm.FOLDER
    tasks = given.tasks or max(
        folder.glob("tasks-*.json"),
        key=lambda path: int(path.stem.rpartition("-")[2]),
        default=folder / "tasks-1.json",
    )
    try:
        failures = slurm.run_task(given.directory, tasks, given.task)
    except (SweepError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for failure in failures:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
