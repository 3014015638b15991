"""`sweep`: plan, run the missing runs, and return the results."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from . import chunk as chunks
from . import errors, files, local, planning, ray
from . import slurm as array
from .errors import Failure, SweepError
from .grid import Grid
from .plan import Chunk, Plan, load
from .progress import Progress
from .result import Sweep
from .slurm import Slurm

Backend = Literal["local", "ray", "slurm"]


def sweep(
    scenario: object,
    grid: Grid,
    seeds: int | Iterable[int],
    *,
    directory: str | os.PathLike[str],
    backend: Backend = "local",
    chunk_seconds: float = 45.0,
    cpus: int | None = None,
    progress: bool | None = None,
    ray_address: str | None = None,
    ray_init: Mapping[str, Any] | None = None,
    slurm: Slurm | None = None,
    submit: bool = True,
) -> Sweep:
    """Run a scenario for all combinations of a grid and all seeds; store the results in files.

    A call with the same arguments resumes a sweep that was interrupted. A call with more values
    or more seeds extends it: only the missing runs are run.

    Arguments:
        scenario: Name of a bundled scenario, path of a file, dict, or a scenario built in Python.
        grid: Values per key, such as `{"flow.robot.count": [1, 2, 4]}`, of which all combinations
            run; or a list of combinations, such as `[{"flow.robot.count": 1}]`.
        seeds: Number of seeds (N means 1 to N), a range or a list. One run per combination and
            seed.
        directory: Where the plan and the results go. With Ray and Slurm it must be on a file
            system that all nodes see under the same path.
        backend: `local`: the cores of this machine. `ray`: one task per chunk on a Ray cluster.
            `slurm`: a job array; the call returns after the submission, see `Sweep.wait`.
        chunk_seconds: Estimated duration of a chunk on one core, in seconds. A chunk is the unit
            that is written, retried and resumed.
        cpus: Maximum number of cores. Default: all of this machine; with Ray twice as many tasks
            in flight as the cluster has cores; with Slurm no limit.
        progress: Show a progress bar on stderr. Default: if stderr is a terminal.
        ray_address: Address of the Ray cluster. Default: as `ray.init`. Ignored if this process is
            already connected.
        ray_init: Further arguments of `ray.init`.
        slurm: Options of the job array.
        submit: Submit the job array. False: only write `array.sh`.

    Raises:
        SweepError: An argument is not valid; the directory holds another sweep; another process
            works on it; its job array is still queued; or chunks failed, after all others have
            finished.
        SweepInterrupted: Ctrl-C. The directory is consistent.
    """
    if backend not in ("local", "ray", "slurm"):
        raise SweepError(f'backend: {backend!r} is not "local", "ray" or "slurm"')
    if not chunk_seconds > 0 or (cpus is not None and cpus < 1):
        raise SweepError("chunk_seconds must be positive, and cpus at least 1")
    path = Path(directory).resolve()
    options = slurm or Slurm()
    if backend == "slurm":
        array.check(path, options)
    bar = Progress(shown=progress)
    started: Sweep | None = None
    lock = ExitStack()
    try:
        bar.tick()
        asked = planning.request(scenario, grid, seeds)
        path.mkdir(parents=True, exist_ok=True)
        lock.enter_context(files.locked(path))
        if backend == "slurm" and submit:
            _check_queue(path)
        cores = (cpus or os.cpu_count() or 1) if backend == "local" else 1
        plan = planning.prepare(path, asked, chunk_seconds, cores, bar.tick)
        started = Sweep(path, plan)
        missing = _missing(path, plan)
        bar.begin(
            plan.runs - sum(chunk.runs for chunk in missing),
            plan.runs,
            sum(chunk.cost for chunk in missing),
        )
        failures: list[Failure] = []
        if not missing:
            return started
        if backend == "local":
            failures = local.run(path, plan, missing, cores, bar)
        elif backend == "ray":
            failures = ray.run(path, plan, missing, cpus, bar, ray_address, ray_init or {})
        else:
            _submit(path, plan, missing, cpus, options, submit)
        if backend != "slurm" and not failures:
            _check_complete(started)
    except KeyboardInterrupt:
        done, total = (started.done, started.total) if started else (0, 0)
        raise errors.interrupted(done, total, path) from None
    finally:
        lock.close()
        bar.end()
    if failures:
        raise errors.failed(failures, path)
    return started


def _check_complete(started: Sweep) -> None:
    """Raise `SweepError` if files of chunks that were run are not there."""
    if not started._settled():
        raise SweepError(
            f"{started.missing} of {started.total} runs of {started.directory} are missing: the "
            "files of their chunks were removed or damaged while the sweep ran. Call "
            "freshline.sweep again with the same arguments to run them"
        )


def _check_queue(directory: Path) -> None:
    """Raise `SweepError` if a job array may still run chunks that a new one would run, too."""
    is_queued = array.is_queued(directory)
    if is_queued is False:
        return
    planned = load(directory)
    if planned is None or Sweep(directory, planned).is_complete:
        return
    jobs = directory / array.FOLDER / "jobs"
    if is_queued is None:
        raise SweepError(
            f"`squeue` does not show whether the job array of {directory} is still queued; "
            f"if it is not, remove {jobs} and call freshline.sweep again"
        )
    raise SweepError(
        f"a job array of {directory} is still queued or running. Wait for it by "
        f"freshline.open_sweep({str(directory)!r}).wait(), or cancel it by `scancel`; "
        f"the jobs are in {jobs}"
    )


def _missing(directory: Path, plan: Plan) -> list[Chunk]:
    """Chunks to run, the longest ones first. Damaged files are removed."""
    found = []
    for chunk in plan.chunks:
        if chunks.is_whole(directory, plan, chunk):
            continue
        found.append(chunk)
        path = chunks.path(directory, chunk)
        if path.exists():
            print(f"{path} is damaged; its runs are run again", file=sys.stderr)
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda chunk: -chunk.cost)


def _submit(
    directory: Path,
    plan: Plan,
    missing: list[Chunk],
    cpus: int | None,
    options: Slurm,
    submit: bool,
) -> None:
    script = array.write(directory, plan, missing, cpus, options)
    if submit:
        array.submit(directory, script)
