"""Run chunks as tasks of a Ray cluster, one core each.

Results do not travel through Ray: each task writes its file into the directory of the sweep, which
must be on a file system that all nodes see under the same path. Tasks return a short summary.
If a node is lost, Ray runs its tasks again elsewhere. A task whose first attempt still runs does no
harm: both write the same bytes, and the rename is atomic.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from . import chunk as chunks
from . import summary
from .errors import Failure, SweepError
from .plan import NAME, Chunk, Plan
from .progress import Progress
from .summary import Summary

RETRIES = 5
"""Number of times that Ray runs a chunk again after its node or its worker was lost."""
CONNECT_SECONDS = 10.0
"""Maximum time for the head of a cluster to accept a connection."""
POLL_SECONDS = 0.5
"""Maximum time between two checks of signals and of the size of the cluster while waiting for a task."""


def run(
    directory: Path,
    plan: Plan,
    missing: Sequence[Chunk],
    cpus: int | None,
    progress: Progress,
    address: str | None,
    init: Mapping[str, Any],
) -> list[Failure]:
    """Run `missing` chunks, and return the failures.

    `cpus` limits the number of tasks in flight. The default is twice the cores of the cluster, so
    that a core has its next task queued. Raises `SweepError` without Ray or without a cluster.
    """
    failures: list[Failure] = []
    waiting = iter(missing)
    pending: dict[Any, Chunk] = {}
    with _cluster(address, init) as ray:
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(work)
        try:
            while True:
                while len(pending) < (cpus or _in_flight(ray)):
                    if (chunk := next(waiting, None)) is None:
                        break
                    pending[task.remote(str(directory), plan.only(chunk))] = chunk
                if not pending:
                    return failures
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=POLL_SECONDS)
                for reference in ready:
                    chunk = pending.pop(reference)
                    result = _result(ray, reference, chunk)
                    summary.append(directory, [result])
                    failure = result.failure()
                    failures += [failure] if failure else []
                    progress.advance(chunk.runs, chunk.cost, failed=failure is not None)
                progress.tick()
        except BaseException:
            for reference in pending:
                ray.cancel(reference, force=True)
            raise


def work(directory: str, plan: Plan) -> Summary:
    """Run the only chunk of `plan`; this is the task."""
    folder = Path(directory)
    if not (folder / NAME).is_file():
        raise SweepError(
            f"the node {socket.gethostname()} does not see {directory}; the directory of a sweep "
            "must be on a file system that all nodes share"
        )
    return chunks.run(folder, plan, plan.chunks[0], 1)


def _result(ray: ModuleType, reference: Any, chunk: Chunk) -> Summary:
    """The summary of a finished task. The error of a task is its failure."""
    try:
        found = ray.get(reference)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        failure = Failure(chunk.hash, (), f"{type(cause).__name__}: {cause}")
        return Summary.failed(chunk.hash, summary.worker(), time.time(), failure)
    assert isinstance(found, Summary)
    return found


def _in_flight(ray: ModuleType) -> int:
    return max(4, 2 * int(ray.cluster_resources().get("CPU", 0)))


@contextmanager
def _cluster(address: str | None, init: Mapping[str, Any]) -> Iterator[ModuleType]:
    """Connect to a cluster, unless this process is connected; disconnect afterwards if so."""
    try:
        import ray
    except ImportError as error:
        raise SweepError('backend="ray" needs Ray: pip install "freshline[ray]"') from error
    own = not ray.is_initialized()
    if own:
        try:
            _reach(address)
            ray.init(address=address, **init)
        except OSError as error:
            raise SweepError(f"cannot connect to the Ray cluster {address}: {error}") from error
    try:
        yield ray
    finally:
        if own:
            ray.shutdown()


def _reach(address: str | None) -> None:
    """Raise `OSError` if nothing listens at `HOST:PORT`: Ray itself would retry for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
