"""A sweep on a Ray cluster of three nodes on this machine, one of which is lost during the sweep."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import one_queue

pytest.importorskip("pyarrow")
ray = pytest.importorskip("ray")

from freshline import _sweep  # noqa: E402
from freshline._sweep import cost, grid, native  # noqa: E402
from freshline._sweep.plan import Plan  # noqa: E402

LONG = os.environ.get("FRESHLINE_LONG") == "1"

SCENARIO = one_queue("10s")
GRID = {"flow.source.updates.rate": ["200/s", "900/s"], "duration": ["10s", "40s"]}
MEMORY = 80 * 1024 * 1024


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head and two nodes, one core each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    options = {"num_cpus": 1, "object_store_memory": MEMORY, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=options)
    try:
        for _ in range(2):
            made.add_node(num_cpus=1, object_store_memory=MEMORY)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()  # type: ignore[no-untyped-call]


def rows_of(sweep: _sweep.Sweep) -> list[tuple[object, ...]]:
    """All rows, sorted."""
    return sorted((tuple(row.values()) for row in sweep.table().to_pylist()), key=repr)


def noting(starts: str) -> Callable[[str, Plan], _sweep.Summary]:
    """The task, which first notes the chunk, the node and the process in the folder `starts`.

    On the node that is to be lost, it stops there, so that the node is lost during a chunk.
    """

    def work(directory: str, planned: Plan) -> _sweep.Summary:
        import os
        import time

        import ray
        from freshline._sweep.ray import work as real

        node = ray.get_runtime_context().get_node_id()
        open(f"{starts}/{planned.chunks[0].hash}-{node}-{os.getpid()}", "w").close()
        if os.path.exists(f"{starts}.hold-{node}"):
            open(f"{starts}.held", "w").close()
            time.sleep(60)
        return real(directory, planned)

    return work


def lose_node(cluster: Any, directory: Path, starts: Path, files: int, lost: list[int]) -> None:
    """Kill a node in the middle of a chunk, after `files` chunks are complete."""
    node = list(cluster.worker_nodes)[0]
    end = time.monotonic() + 120
    while time.monotonic() < end:
        complete = len(list(directory.glob("chunks/*.parquet")))
        if complete >= files:
            Path(f"{starts}.hold-{node.node_id}").touch()
        if Path(f"{starts}.held").exists():
            cluster.remove_node(node, allow_graceful=False)
            lost.append(complete)
            return
        time.sleep(0.01)


def test_lost_node_loses_no_run(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = tmp_path / "queue.toml"
    scenario.write_text(SCENARIO)
    seeds, chunk_runs = (2500, 100) if LONG else (60, 8)
    monkeypatch.setattr(cost, "CALL_RUNS", 0)
    monkeypatch.setattr(cost, "estimate", lambda rows, measured: [1.0 / chunk_runs] * len(rows))
    lost: list[int] = []
    starts = tmp_path / "starts"
    starts.mkdir()
    monkeypatch.setattr(_sweep.ray, "work", noting(str(starts)))
    arguments = (cluster, tmp_path / "out", starts, 5, lost)
    killer = threading.Thread(target=lose_node, args=arguments)
    ray.init(address=cluster.address, log_to_driver=False)
    killer.start()
    start = time.monotonic()
    sweep = _sweep.sweep(
        scenario, GRID, seeds, directory=tmp_path / "out", backend="ray", chunk_seconds=1.0
    )
    seconds = time.monotonic() - start
    killer.join()
    chunks = len(sweep._plan.chunks)
    print(
        f"{sweep.total} runs, {chunks} chunks, {seconds:.1f} s, node lost after {lost} chunks, "
        f"overhead {sweep.overhead} s per chunk"
    )
    assert lost and lost[0] < chunks - 3, "the node was lost too late to matter"
    attempts = Counter(path.name.split("-")[0] for path in starts.iterdir())
    assert max(attempts.values()) > 1, "no chunk was lost with the node"

    combinations = grid.combinations(GRID)
    planned = Counter(
        (work.combination, seed)
        for one in sweep._plan.chunks
        for work in one.work
        for seed in grid.from_ranges(work.seeds)
    )
    assert planned == Counter((at, s) for at in range(4) for s in range(1, seeds + 1))
    assert sweep.is_complete and sweep.failures == []

    jobs: list[native.Job] = [(row, list(range(1, seeds + 1))) for row in combinations]
    table = native.run_batch("queue", SCENARIO, str(tmp_path), jobs, 1)
    expected = []
    for row in table.to_pylist():
        changes = combinations[row.pop("job")]
        expected.append((*changes.values(), *row.values()))
    assert rows_of(sweep) == sorted(expected, key=repr)


def test_errors_of_tasks_are_reported(cluster: Any, tmp_path: Path) -> None:
    scenario = tmp_path / "queue.toml"
    scenario.write_text(SCENARIO)
    out = tmp_path / "out"
    options = {"log_to_driver": False}
    done = _sweep.sweep(
        scenario, {}, 4, directory=out, backend="ray", ray_address=cluster.address, ray_init=options
    )
    assert done.is_complete and not ray.is_initialized()
    with pytest.raises(_sweep.SweepError, match="does not see /nowhere"):
        _sweep.ray.work("/nowhere", done._plan)
    with pytest.raises(_sweep.SweepError, match="cannot connect to the Ray cluster"):
        _sweep.sweep(
            scenario, {}, 8, directory=out, backend="ray", ray_address="127.0.0.1:1"
        )
