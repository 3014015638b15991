"""Run chunks as a job array of Slurm.

The directory of the sweep must be on a file system that all nodes see under the same path.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import chunk as chunks
from . import files, plan, summary
from .errors import Failure, SweepError
from .plan import Chunk, Plan

FOLDER = "slurm"
DEFAULT_MAX_ARRAY_SIZE = 1001
"""Slurm's own default of `MaxArraySize`."""


@dataclass(frozen=True)
class Slurm:
    """Options of the job array of `sweep(..., backend="slurm")`."""

    partition: str | None = None
    """Partition; None: the default of the cluster."""
    time: str | None = None
    """Time limit of a task, such as `1:00:00`; None: four times the estimate, at least 10 min."""
    memory: str | None = None
    """Memory of a task, such as `2G`; None: the default of the cluster."""
    options: Sequence[str] = ()
    """Further options of `sbatch`, such as `--account=lab`."""
    setup: Sequence[str] = ()
    """Lines of shell that run before a task, such as `module load python/3.12`."""
    python: str = field(default_factory=lambda: sys.executable)
    """Python interpreter on the nodes, with the same version of freshline."""
    max_array_size: int | None = None
    """Maximum number of tasks; None: `MaxArraySize` of the cluster. Tasks take several chunks
    if there are more chunks."""


def check(directory: Path, options: Slurm) -> None:
    """Raise `SweepError` if the directory or an option cannot be written to `array.sh`."""
    if bad := set(str(directory)) & set('"\\\n\r'):
        raise SweepError(
            f"backend=\"slurm\": the directory {str(directory)!r} contains {min(bad)!r}, which a "
            "job array cannot have in the path of its log; use another directory"
        )
    given = {
        "partition": [options.partition],
        "time": [options.time],
        "memory": [options.memory],
        "options": options.options,
        "setup": options.setup,
    }
    for name, values in given.items():
        for value in values:
            if value is not None and {*str(value)} & {"\n", "\r"}:
                hint = "; give one entry per line" if name in ("options", "setup") else ""
                raise SweepError(f"Slurm: {name}: {value!r} contains a newline{hint}")


def write(
    directory: Path, planned: Plan, missing: Sequence[Chunk], cpus: int | None, options: Slurm
) -> Path:
    """Write the list of tasks and the script `array.sh`; return the script.

    The script refers to its own list, so that a later submission does not change the tasks of an
    array that still runs.
    """
    size = options.max_array_size or _max_array_size()
    each = math.ceil(len(missing) / size)
    tasks = [missing[first : first + each] for first in range(0, len(missing), each)]
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    number = len(list(folder.glob("tasks-*.json"))) + 1
    names = [[chunk.hash for chunk in task] for task in tasks]
    while not files.create(folder / f"tasks-{number}.json", json.dumps(names)):
        number += 1
    script = directory / "array.sh"
    text = _script(directory, number, tasks, cpus, options)
    files.write(script, text)
    script.chmod(0o755)
    return script


def submit(directory: Path, script: Path) -> str:
    """Submit the script; return the number of the job. Raises `SweepError` without `sbatch`."""
    program = shutil.which("sbatch")
    if program is None:
        raise SweepError(
            "cannot submit the sweep: there is no `sbatch` in PATH. "
            f"Submit it on a host of the cluster by `sbatch {shlex.quote(str(script))}`, "
            "or call freshline.sweep with submit=False to only write the script"
        )
    done = subprocess.run([program, "--parsable", str(script)], capture_output=True, text=True)
    job = done.stdout.strip().split(";")[0]
    if done.returncode != 0 or not job:
        raise SweepError(f"`sbatch {script}` failed: {done.stderr.strip() or 'no job number'}")
    with open(directory / FOLDER / "jobs", "a", encoding="utf-8") as file:
        file.write(f"{job}\n")
    return job


def is_queued(directory: Path) -> bool | None:
    """Whether a job of the sweep is pending or runs; None if that is unknown."""
    try:
        path = directory / FOLDER / "jobs"
        jobs = path.read_text(encoding="utf-8", errors="replace").split()
    except FileNotFoundError:
        return False
    program = shutil.which("squeue")
    if program is None:
        return None
    for job in jobs[-20:]:
        done = subprocess.run([program, "-h", "-j", job], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip():
            return True
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            return None
    return False


def run_task(directory: Path, tasks: Path, number: int) -> list[Failure]:
    """Run the chunks of one task of the array, and return the failures."""
    planned = plan.load(directory)
    if planned is None:
        raise SweepError(f"{directory} has no {plan.NAME}; is it on a shared file system?")
    names = _read_tasks(tasks)
    if not 0 <= number < len(names):
        raise SweepError(f"{tasks} has the tasks 0 to {len(names) - 1}, not {number}")
    by_hash = {chunk.hash: chunk for chunk in planned.chunks}
    failures = []
    for name in names[number]:
        if (chunk := by_hash.get(name)) is None:
            continue  # the sweep was extended and its chunks renamed since
        done = chunks.run(directory, planned, chunk, 1)
        summary.append(directory, [done])
        failure = done.failure()
        failures += [failure] if failure else []
    return failures


def _read_tasks(path: Path) -> list[list[str]]:
    """Hashes of the chunks of each task."""
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SweepError(f"{path} is not a list of tasks ({error})") from error
    is_list = isinstance(names, list) and all(
        isinstance(task, list) and all(isinstance(name, str) for name in task) for task in names
    )
    if not is_list:
        raise SweepError(f"{path} is not a list of tasks")
    return names  # type: ignore[no-any-return]


def _script(
    directory: Path,
    number: int,
    tasks: Sequence[Sequence[Chunk]],
    cpus: int | None,
    options: Slurm,
) -> str:
    longest = max(sum(chunk.cost for chunk in task) for task in tasks)
    minutes = max(10, math.ceil(4 * longest / 60))
    limit = f"%{cpus}" if cpus else ""
    settings = [
        "--job-name=freshline-sweep",
        f"--array=0-{len(tasks) - 1}{limit}",
        "--ntasks=1",
        "--cpus-per-task=1",
        f"--time={options.time or minutes}",
        f'--output="{str(directory / FOLDER).replace("%", "%%")}/%A_%a.log"',  # %% is one %
        *([f"--partition={options.partition}"] if options.partition else []),
        *([f"--mem={options.memory}"] if options.memory else []),
        *options.options,
    ]
    command = shlex.join([options.python, "-m", "freshline._sweep", str(directory)])
    tasks_file = shlex.quote(str(directory / FOLDER / f"tasks-{number}.json"))
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {setting}" for setting in settings),
        "set -e",
        *options.setup,
        f'exec {command} --tasks {tasks_file} --task "$SLURM_ARRAY_TASK_ID"',
    ]
    return "\n".join(lines) + "\n"


def _max_array_size() -> int:
    """`MaxArraySize` of the cluster; Slurm's default if `scontrol` does not say."""
    program = shutil.which("scontrol")
    if program is None:
        return DEFAULT_MAX_ARRAY_SIZE
    done = subprocess.run([program, "show", "config"], capture_output=True, text=True)
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", done.stdout, re.MULTILINE)
    return max(int(found[1]), 1) if found else DEFAULT_MAX_ARRAY_SIZE

