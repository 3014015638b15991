"""Sweeps: many runs of a scenario on the cores of this machine, on Ray, or on Slurm.

The plan divides the runs into chunks of about 45 s of one core. Each chunk becomes one Parquet
file, whose name is a hash of everything that decides its results.

| module       | purpose                                                    |
|--------------|------------------------------------------------------------|
| `start`      | `sweep` itself                                             |
| `scenario`   | text of the scenario, and the files that it reads          |
| `grid`       | combinations, columns and seeds                            |
| `cost`       | pilot runs, and estimated costs of combinations            |
| `plan`       | chunks and their hashes; `plan.json`                       |
| `planning`   | make or extend the plan of a directory                     |
| `chunk`      | run a chunk, write its file, check it                      |
| `local`, `ray`, `slurm` | backends                                        |
| `result`     | the results as Arrow, Polars and DuckDB                    |
| `summary`    | times and errors of chunks                                 |
| `progress`   | progress bar                                               |
| `arrow`      | PyArrow, imported on first use                             |
| `files`      | atomic files, and the lock of a directory                  |
| `background` | threads that Ctrl-C does not wait for                      |
| `native`     | calls of the native module                                 |
"""

from __future__ import annotations

from .errors import Failure, SweepError, SweepInterrupted
from .result import Sweep, open_sweep
from .slurm import Slurm
from .start import sweep
from .summary import Summary

__all__ = [
    "Failure",
    "Slurm",
    "Summary",
    "Sweep",
    "SweepError",
    "SweepInterrupted",
    "open_sweep",
    "sweep",
]
