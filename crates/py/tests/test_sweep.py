"""Sweeps on this machine and on a job array: no run is lost or double, whatever happens."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import one_queue

pa = pytest.importorskip("pyarrow")

from freshline import _sweep  # noqa: E402
from freshline._sweep import background, chunk, cost, files, grid, local, native, plan  # noqa: E402
from freshline._sweep import progress as bar  # noqa: E402

LONG = os.environ.get("FRESHLINE_LONG") == "1"

SCENARIO = one_queue("2s")
RATE = "flow.source.updates.rate"
GRID = {RATE: ["100/s", "300/s", "500/s"], "flow.source.count": [1, 2]}
Rows = list[tuple[object, ...]]
CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "queue.toml"
    path.write_text(SCENARIO)
    return path


def rows_of(sweep: _sweep.Sweep) -> Rows:
    """All rows, sorted."""
    return sorted((tuple(row.values()) for row in sweep.table().to_pylist()), key=repr)


def serial(combinations: list[dict[str, object]], seeds: list[int]) -> Rows:
    """The rows of one run after another."""
    found = []
    for changes in combinations:
        for seed in seeds:
            table = native.run_batch("queue", SCENARIO, None, [(changes, [seed])], 1)
            for row in table.to_pylist():
                del row["job"]
                found.append((*changes.values(), *row.values()))
    return sorted(found, key=repr)


def check_runs(sweep: _sweep.Sweep, combinations: int, seeds: list[int]) -> None:
    """Each combination has each seed once, in exactly one chunk."""
    planned = Counter(
        (work.combination, seed)
        for one in sweep._plan.chunks
        for work in one.work
        for seed in grid.from_ranges(work.seeds)
    )
    assert planned == Counter((at, seed) for at in range(combinations) for seed in seeds)
    assert sweep.is_complete and sweep.done == combinations * len(seeds)


def interrupt_after(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """Press Ctrl-C after that number of chunks was written."""
    real, count = chunk.write, iter(range(files))

    def write(*args: object) -> None:
        if next(count, None) is None:
            raise KeyboardInterrupt
        real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(chunk, "write", write)


def small(monkeypatch: pytest.MonkeyPatch, runs: int = 5) -> None:
    """Plan chunks of `runs` runs, whatever a run costs, and time one run per combination."""
    monkeypatch.setattr(cost, "CALL_RUNS", 0)
    monkeypatch.setattr(cost, "estimate", lambda rows, measured: [1.0 / runs] * len(rows))


def test_rows_equal_those_of_serial_runs(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    sweep = _sweep.sweep(scenario, GRID, 7, directory=tmp_path / "out", cpus=2)
    check_runs(sweep, 6, list(range(1, 8)))
    assert rows_of(sweep) == serial(grid.combinations(GRID), list(range(1, 8)))
    names = [RATE, "flow.source.count", "seed", "of", "name", "value", "unit"]
    assert sweep.table().column_names == names
    assert sweep.overhead is not None and sweep.overhead < 1.0


def test_metrics_are_the_means_over_the_seeds(scenario: Path, tmp_path: Path) -> None:
    over = {RATE: ["100/s", "300/s"]}
    sweep = _sweep.sweep(scenario, over, 4, directory=tmp_path / "out", progress=False)
    table = sweep.metrics()
    assert table.column_names == [RATE, "of", "name", "value", "unit", "ci95", "runs"]
    of_key: dict[tuple[str, ...], list[float]] = {}
    for row in sweep.table().to_pylist():
        key = (row[RATE], row["of"], row["name"], row["unit"])
        of_key.setdefault(key, []).append(row["value"])
    assert len(table) == len(of_key) and ("300/s", "source", "age_mean", "s") in of_key
    for row in table.to_pylist():
        values = of_key[row[RATE], row["of"], row["name"], row["unit"]]
        mean = sum(values) / 4
        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / 3)
        assert row["runs"] == len(values) == 4
        assert row["value"] == pytest.approx(mean)
        # 3.18245: the 97.5 % quantile of Student's t with 3 degrees of freedom.
        assert row["ci95"] == pytest.approx(3.18245 * deviation / 2, rel=1e-4, abs=1e-12)
    one = _sweep.sweep(scenario, over, 1, directory=tmp_path / "one", progress=False).metrics()
    assert set(one.column("ci95").to_pylist()) == {None}
    assert set(one.column("runs").to_pylist()) == {1}


@pytest.mark.parametrize("module", ["polars", "duckdb"])
def test_a_missing_package_is_named(
    module: str, scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = _sweep.sweep(scenario, {}, 1, directory=tmp_path / "out", progress=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"Sweep.{module} needs .*: pip install {module}"):
        getattr(sweep, module)()


def test_results_open_in_polars_and_duckdb(scenario: Path, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    sweep = _sweep.sweep(scenario, GRID, 2, directory=tmp_path / "out")
    opened = _sweep.open_sweep(tmp_path / "out")
    rows = len(sweep.table())
    assert opened.dataset().count_rows() == rows
    assert opened.polars().collect().height == rows
    assert opened.duckdb().aggregate("count(*)").fetchall() == [(rows,)]
    for path in opened.files:
        path.unlink()
    assert opened.done == 0 and opened.missing == 12 and len(opened.table()) == 0
    assert opened.polars().collect().height == 0
    assert opened.duckdb().aggregate("count(*)").fetchall() == [(0,)]


def test_interrupted_sweep_resumes(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(_sweep.SweepInterrupted, match="same arguments to resume"):
            _sweep.sweep(scenario, GRID, 10, directory=tmp_path / "out", chunk_seconds=1)
    stopped = _sweep.open_sweep(tmp_path / "out")
    assert 0 < stopped.done < stopped.total == 60
    kept = {path: path.stat().st_mtime_ns for path in stopped.files}
    resumed = _sweep.sweep(scenario, GRID, 10, directory=tmp_path / "out", chunk_seconds=1)
    check_runs(resumed, 6, list(range(1, 11)))
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in resumed.files}.items()
    whole = _sweep.sweep(scenario, GRID, 10, directory=tmp_path / "whole", chunk_seconds=1)
    assert rows_of(resumed) == rows_of(whole)


class Stuck:
    """Native calls that end after 30 s, or by their progress function."""

    def __init__(self) -> None:
        self.calls = 0

    def run_batch(self, *arguments: Any) -> object:
        self.calls += 1
        look = arguments[5] if len(arguments) > 5 else None
        end = time.monotonic() + 30
        while time.monotonic() < end:
            time.sleep(0.02)
            if look:
                look(0)
        raise AssertionError("the call was not ended")


def background_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "freshline-sweep"]


@pytest.mark.parametrize("failing", [False, True])
def test_the_background_thread_ends_after_control_c(
    failing: bool, scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a batch of several chunks, and during the search for the failed combination of a chunk."""
    small(monkeypatch, runs=12)  # runs of two combinations
    out = tmp_path / "out"
    _sweep.sweep(scenario, GRID, 1, directory=out, chunk_seconds=1, progress=False)
    stuck, real_tick = Stuck(), bar.Progress.tick

    def run_batch(*arguments: Any) -> object:
        if failing and len(arguments) > 5 and arguments[4] > 1:
            raise RuntimeError("the queue is on fire")
        return stuck.run_batch(*arguments)

    def tick(shown: bar.Progress) -> None:
        real_tick(shown)
        if stuck.calls:
            raise KeyboardInterrupt

    monkeypatch.setattr(native, "run_batch", run_batch)
    monkeypatch.setattr(bar.Progress, "tick", tick)
    monkeypatch.setattr(cost, "pilots", lambda *_: iter(()))
    with pytest.raises(_sweep.SweepInterrupted):
        _sweep.sweep(scenario, GRID, 9, directory=out, chunk_seconds=1, cpus=4, progress=False)
    end = time.monotonic() + 2
    while background_threads() and time.monotonic() < end:
        time.sleep(0.02)
    assert not background_threads()
    assert stuck.calls == 1


def test_control_c_ends_the_process_soon(scenario: Path, tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom freshline import _sweep\n"
        "from freshline._sweep import cost, native\ncost.CALL_RUNS = 0\n"
        "real = native.run_batch\n"
        "def slow(*args):\n    time.sleep(0.3)\n    return real(*args)\n"
        "native.run_batch = slow\nprint('on', flush=True)\n"
        "_sweep.sweep(sys.argv[1], {'flow.source.count': [1, 2, 3]}, 200, directory=sys.argv[2],"
        " chunk_seconds=0.01)"
    )
    arguments = [sys.executable, "-c", code, str(scenario), str(tmp_path / "out")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        end = time.monotonic() + 60
        while len(list(tmp_path.glob("out/chunks/*.parquet"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert b"to resume" in errors
    stopped = _sweep.open_sweep(tmp_path / "out")
    assert 0 < stopped.done < stopped.total == 600


def test_damaged_chunks_run_again(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    sweep = _sweep.sweep(scenario, GRID, 10, directory=tmp_path / "out", chunk_seconds=1)
    before = rows_of(sweep)
    truncated, empty, flipped, wrong = sweep.files[:4]
    whole = {path: path.read_bytes() for path in sweep.files}
    truncated.write_bytes(whole[truncated][:-100])
    empty.write_bytes(b"")
    damaged = bytearray(whole[flipped])
    damaged[len(damaged) // 3] ^= 0xFF
    flipped.write_bytes(damaged)
    wrong.write_bytes(whole[truncated])
    (tmp_path / "out/chunks/stray.parquet").write_bytes(whole[truncated])
    stale = tmp_path / f"out/chunks/.x.parquet~{os.uname().nodename}~{2**22 + 1}~0.tmp"
    stale.write_bytes(b"half")
    os.utime(stale, (time.time() - 7200,) * 2)
    assert _sweep.open_sweep(tmp_path / "out").done < sweep.total
    again = _sweep.sweep(scenario, GRID, 10, directory=tmp_path / "out", chunk_seconds=1)
    assert rows_of(again) == before
    assert {path: path.read_bytes() for path in again.files} == whole
    assert not stale.exists()


def test_files_of_processes_in_other_containers_stay(tmp_path: Path) -> None:
    old, dead = time.time() - 7200, 2**22 + 1
    host = os.uname().nodename
    removed = {f".a~{host}~{dead}~0.tmp", ".b~elsewhere~1~0.tmp", ".c.tmp"}
    kept = {f".d~{host}~{os.getpid()}~0.tmp"}
    for name in removed | kept:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (old, old))
    young = {f".e~{host}~{dead}~0.tmp", ".f~elsewhere~1~0.tmp"}
    for name in young:
        (tmp_path / name).touch()
    files.remove_stale(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept | young


@pytest.mark.parametrize(
    "number", [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EIO]
)
def test_a_file_is_created_once_without_hard_links(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "plan.json"
    if number == errno.EIO:
        with pytest.raises(OSError, match=os.strerror(number)):
            files.create(path, "one")
        assert list(tmp_path.iterdir()) == []
        return
    assert files.create(path, "one")
    assert not files.create(path, "two")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_equal_plans_give_equal_bytes(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    one = _sweep.sweep(scenario, GRID, 10, directory=tmp_path / "one", chunk_seconds=1, cpus=1)
    (tmp_path / "two").mkdir()
    shutil.copy(tmp_path / "one/plan.json", tmp_path / "two/plan.json")
    two = _sweep.sweep(scenario, GRID, 10, directory=tmp_path / "two", cpus=8)
    assert [path.name for path in one.files] == [path.name for path in two.files]
    for first, second in zip(one.files, two.files, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_directory_grows_by_seeds_and_values(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    first = _sweep.sweep(scenario, {RATE: ["100/s"]}, 5, directory=tmp_path / "out")
    kept = {path: path.stat().st_mtime_ns for path in first.files}
    second = _sweep.sweep(scenario, {RATE: ["100/s"]}, range(0, 9), directory=tmp_path / "out")
    check_runs(second, 1, list(range(9)))
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in second.files}.items()
    listed: list[dict[str, object]] = [{RATE: "100/s"}, {RATE: "300/s", "flow.source.count": 2}]
    third = _sweep.sweep(scenario, listed, range(0, 9), directory=tmp_path / "out")
    check_runs(third, 2, list(range(9)))
    fresh = _sweep.sweep(scenario, listed, range(0, 9), directory=tmp_path / "fresh")
    assert rows_of(third) == rows_of(fresh)
    assert len(list((tmp_path / "out/chunks").iterdir())) == len(third.files)
    attempts = Counter(one.chunk for one in third.summaries if one.runs)
    assert max(attempts.values()) == 1


def test_types_widen_when_the_grid_grows(scenario: Path, tmp_path: Path) -> None:
    key = "flow.source.count"
    _sweep.sweep(scenario, {key: [1, 2]}, 2, directory=tmp_path / "out")
    wide = grid.columns([{key: 1}, {key: 2}, {key: 0.5}])
    assert [column.type for column in wide] == ["double"]
    loaded = plan.load(tmp_path / "out")
    assert loaded is not None
    for kind in ("double", "string"):
        column = grid.Column(key, kind)
        new = replace(loaded, columns=(column,))
        for old in loaded.chunks:
            renamed = new.chunk(old.cost, old.work)
            assert renamed.hash != old.hash
            chunk.convert(tmp_path / "out", old, new, renamed)
            assert chunk.is_whole(tmp_path / "out", new, renamed)


def test_other_sweep_in_the_directory_is_refused(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _sweep.sweep(scenario, GRID, 4, directory=out)
    with pytest.raises(_sweep.SweepError, match="1 seeds that the call lacks, such as 4"):
        _sweep.sweep(scenario, GRID, 3, directory=out)
    with pytest.raises(_sweep.SweepError, match="3 combinations that the grid lacks"):
        _sweep.sweep(scenario, GRID | {"flow.source.count": [1]}, 4, directory=out)
    scenario.write_text(SCENARIO.replace('"2s"', '"3s"'))
    with pytest.raises(_sweep.SweepError, match="differs from line 3 on"):
        _sweep.sweep(scenario, GRID, 4, directory=out)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/plan.json").write_text("{}")
    with pytest.raises(_sweep.SweepError, match="not the plan of a sweep"):
        _sweep.sweep(scenario, GRID, 4, directory=tmp_path / "other")
    with pytest.raises(_sweep.SweepError, match="holds no sweep"):
        _sweep.open_sweep(tmp_path)


def test_two_processes_do_not_work_on_one_directory(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    code = (
        "import sys\nfrom pathlib import Path\nfrom freshline._sweep import files\n"
        "with files.locked(Path(sys.argv[1])):\n    print('on', flush=True)\n    sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", code, str(out)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(arguments, **pipes) as process:
        assert process.stdout is not None and process.stdout.readline() == b"on\n"
        for more in ({}, {"backend": "slurm", "submit": False}):
            with pytest.raises(_sweep.SweepError, match=r"another process works on .*open_sweep"):
                _sweep.sweep(scenario, GRID, 1, directory=out, **more)  # type: ignore[arg-type]
        assert not (out / "plan.json").exists()
        process.communicate(timeout=30)
    sweep = _sweep.sweep(scenario, GRID, 1, directory=out)
    check_runs(sweep, 6, [1])
    assert (out / "lock").exists()
    with files.locked(out):
        assert _sweep.open_sweep(out).is_complete


def test_the_lock_is_held_during_runs_and_released_after_errors(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, real, refused = tmp_path / "out", chunk.write, []

    def write(*args: object) -> None:
        with pytest.raises(_sweep.SweepError, match="another process"):
            _sweep.sweep(scenario, GRID, 2, directory=out)
        refused.append(args)
        real(*args)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(chunk, "write", write)
        with pytest.raises(_sweep.SweepInterrupted):
            _sweep.sweep(scenario, GRID, 1, directory=out)
    assert refused
    check_runs(_sweep.sweep(scenario, GRID, 2, directory=out), 6, [1, 2])


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.EIO])
def test_a_file_system_without_locks_is_enough(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    if number == errno.EIO:
        with pytest.raises(OSError, match=os.strerror(number)), files.locked(tmp_path):
            pass
        return
    with files.locked(tmp_path), files.locked(tmp_path):
        pass


def test_files_that_vanish_during_the_runs_are_an_error(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    out, real = tmp_path / "out", local.run

    def run(*args: Any) -> Any:
        failures = real(*args)
        chunk.path(out, args[2][0]).unlink()
        return failures

    with monkeypatch.context() as patch:
        patch.setattr(local, "run", run)
        patch.setattr(_sweep.Sweep, "_settled", lambda self: self.is_complete)
        with pytest.raises(_sweep.SweepError, match=r"\d+ of 60 runs of .* missing.*again"):
            _sweep.sweep(scenario, GRID, 10, directory=out, chunk_seconds=1)
    check_runs(_sweep.sweep(scenario, GRID, 10, directory=out), 6, list(range(1, 11)))


def test_a_directory_name_is_no_pattern(scenario: Path, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    for name in ("[ab] *?", "a *?", "what?"):
        sweep = _sweep.sweep(scenario, GRID, 1, directory=tmp_path / name)
        rows = len(sweep.table())
        assert sweep.polars().collect().height == rows
        counted = sweep.duckdb().filter("seed = 1").aggregate("count(*)")
        assert counted.fetchall() == [(rows,)]


def test_a_damaged_plan_is_an_error(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _sweep.sweep(scenario, GRID, 2, directory=out)
    path = out / "plan.json"
    whole = path.read_bytes()

    def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
        content = json.loads(whole)
        change(content)
        return json.dumps(content).encode()

    damaged = [
        whole.replace(b"A queue", b"A \xff\xfeeue"),
        whole[: len(whole) // 2],
        b"[" * 100_000,
        b"[]",
        b"null",
        changed(lambda c: c["chunks"].append(c["chunks"][0])),
        changed(lambda c: c["chunks"].append(c["chunks"][0] | {"hash": "0" * 64})),
        changed(lambda c: c["chunks"][0]["work"][0].__setitem__(0, 99)),
        changed(lambda c: c["chunks"][0]["work"][0].__setitem__(0, -1)),
        changed(lambda c: c["chunks"][0]["work"][0].__setitem__(1, [["1", "2"]])),
        changed(lambda c: c["chunks"][0].__setitem__("hash", "../../x")),
        changed(lambda c: c["combinations"].pop()),
        changed(lambda c: c["combinations"].reverse()),
        changed(lambda c: c["scenario"].__setitem__("text", "")),
        changed(lambda c: c["costs"].__setitem__(0, "much")),
        changed(lambda c: c["columns"].pop()),
        changed(lambda c: c["scenario"].__setitem__("files", [])),
    ]
    for content in damaged:
        path.write_bytes(content)
        for start in (
            lambda: _sweep.open_sweep(out),
            lambda: _sweep.sweep(scenario, GRID, 2, directory=out),
        ):
            with pytest.raises(_sweep.SweepError, match=r"(?s)restore the file, or use another"):
                start()
    path.write_bytes(whole)
    assert _sweep.open_sweep(out).is_complete


def test_damaged_summaries_are_left_out(scenario: Path, tmp_path: Path) -> None:
    sweep = _sweep.sweep(scenario, GRID, 2, directory=tmp_path / "out")
    _sweep.sweep(scenario, GRID, 9, directory=tmp_path / "out")
    before = sweep.summaries
    path = next((tmp_path / "out/summaries").glob("*.jsonl"))
    good = json.loads(path.read_text().splitlines()[0])
    lines = [
        b"\xff\xfe",
        b"[" * 100_000,
        b"[1]",
        b"3",
        json.dumps(good | {"started": "soon"}).encode(),
        json.dumps(good | {"combinations": [1]}).encode(),
        json.dumps(good | {"chunk": ["a"]}).encode(),
    ]
    path.write_bytes(path.read_bytes() + b"\n".join(lines) + b"\n")
    assert before and sweep.summaries == before
    assert sweep.failures == [] and sweep.overhead is not None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ('a"b', {}, "the directory"),
        ("a\nb", {}, "the directory"),
        ("a", {"partition": "x\n#SBATCH --uid=0"}, "partition.*newline"),
        ("a", {"options": ["--account=lab", "--a\n"]}, "options.*newline"),
        ("a", {"setup": ["true\nfalse"]}, "setup.*newline"),
    ],
)
def test_a_script_of_slurm_is_not_torn(
    name: str, options: dict[str, Any], message: str, scenario: Path, tmp_path: Path
) -> None:
    given = _sweep.Slurm(**options)
    out = tmp_path / name
    with pytest.raises(_sweep.SweepError, match=message):
        _sweep.sweep(scenario, {}, 1, directory=out, backend="slurm", slurm=given, submit=False)
    assert not out.exists()


def test_files_of_the_scenario_belong_to_it(tmp_path: Path) -> None:
    (tmp_path / "up.trace").write_text("".join(f"{at}\n" for at in range(1, 100)))
    text = SCENARIO.replace('forward = { rate = "8mbit",', 'forward = { trace = "up.trace",')
    path = tmp_path / "traced.toml"
    path.write_text(text)
    sweep = _sweep.sweep(path, {}, 2, directory=tmp_path / "out")
    assert list(sweep._plan.source.files) == ["up.trace"]
    (tmp_path / "up.trace").write_text("".join(f"{at}\n" for at in range(1, 101)))
    with pytest.raises(_sweep.SweepError, match=r"the file up\.trace of the scenario changed"):
        _sweep.sweep(path, {}, 2, directory=tmp_path / "out")
    with pytest.raises(_sweep.SweepError, match="restore it, or use another directory"):
        sweep._plan.source.check_files()


def test_bad_keys_are_found_before_a_run(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object) -> None:
        raise AssertionError("a run started")

    monkeypatch.setattr(native, "run_batch", never)
    with pytest.raises(_sweep.SweepError, match="bad"):
        _sweep.sweep(scenario, {"bad.key": [1], RATE: ["1/s"]}, 2, directory=tmp_path / "out")
    assert not (tmp_path / "out/plan.json").exists()


@pytest.mark.parametrize(
    ("over", "seeds", "message"),
    [
        ({"a.b": "text"}, 1, "needs a list of values"),
        ({"a.b": []}, 1, "has no values"),
        ({"a.b": [1, 1]}, 1, "appears twice"),
        ({"a.b": [float("nan")]}, 1, "not finite"),
        ({"a.b": [2**63]}, 1, "64 bits"),
        ({"a.b": [None]}, 1, "not a number"),
        ({"a.b": [CYCLE]}, 1, "contains itself"),
        ({"seed": [1]}, 1, "argument `seeds`"),
        ({"value": [1]}, 1, "column of the results"),
        ([], 1, "no combinations"),
        ({}, 0, "empty"),
        ({}, [1, 1], "appears twice"),
        ({}, [-1], "not an integer"),
        ({}, "5", "give a number"),
        ({}, True, "give a number"),
        ({}, [True], "not an integer"),
        ({}, [2**63], "not an integer"),
    ],
)
def test_arguments_are_checked(
    scenario: Path, tmp_path: Path, over: grid.Grid, seeds: int, message: str
) -> None:
    with pytest.raises(_sweep.SweepError, match=message):
        _sweep.sweep(scenario, over, seeds, directory=tmp_path / "out")


def test_failed_chunks_do_not_stop_the_others(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    real = native.run_batch

    def broken(name: str, text: str, folder: str | None, jobs: list[native.Job], *n: Any) -> object:
        if any(row["flow.source.count"] == 2 and 9 in seeds for row, seeds in jobs):
            raise RuntimeError("the queue is on fire")
        return real(name, text, folder, jobs, *n)

    with monkeypatch.context() as patch:
        patch.setattr(native, "run_batch", broken)
        with pytest.raises(_sweep.SweepError, match="the queue is on fire") as caught:
            _sweep.sweep(scenario, GRID, 10, directory=tmp_path / "out", chunk_seconds=1, cpus=8)
    failures = caught.value.failures
    assert failures and all(one.combinations[0]["flow.source.count"] == 2 for one in failures)
    half = _sweep.open_sweep(tmp_path / "out")
    lost = {one.chunk for one in failures}
    assert half.missing == sum(one.runs for one in half._plan.chunks if one.hash in lost)
    assert {one.chunk for one in half.failures} == lost
    again = _sweep.sweep(scenario, GRID, 10, directory=tmp_path / "out")
    check_runs(again, 6, list(range(1, 11)))
    assert again.failures == []


def test_chunks_of_unequal_runs_have_equal_costs() -> None:
    rows: list[cost.Combination] = [{"a": a, "b": b} for a in (1, 10, 100) for b in ("x", "y")]
    true = [row["a"] * (0.02 if row["b"] == "x" else 0.06) for row in rows]  # type: ignore[operator]
    estimated = cost.estimate(rows, {0: true[0], 1: true[1], 2: true[2], 4: true[4]})
    assert estimated == pytest.approx(true, rel=1e-3)
    source = _sweep.scenario.Source("queue", SCENARIO, None, {})
    base = plan.Plan("1", source, (), tuple(rows), tuple(estimated), ())
    chunks = plan.pack(base, {at: list(range(100)) for at in range(6)}, 45.0)
    assert sum(one.runs for one in chunks) == 600
    assert all(30 <= one.cost <= 60 for one in chunks[:-1])
    assert len(plan.pack(base, {5: [1, 2]}, 1.0)) == 2


def test_pilots_cover_every_value_first() -> None:
    rows: list[cost.Combination] = [{"a": a, "b": b} for a in range(10) for b in range(10)]
    first = [rows[at] for at in cost.order(rows)[:25]]
    assert {row["a"] for row in first} == {row["b"] for row in first} == set(range(10))


def test_columns_have_one_type_over_the_whole_grid() -> None:
    rows = grid.combinations(
        [{"a": 1, "b": True, "c": 1}, {"a": 2.5, "b": False, "c": "x"}, {"a": 3, "d": [1, 2]}]
    )
    columns = grid.columns(rows)
    assert [column.type for column in columns] == ["double", "bool", "string", "string"]
    assert [column.cell(rows[2]) for column in columns] == [3.0, None, None, "[1, 2]"]
    numpy = pytest.importorskip("numpy")
    listed = grid.combinations({"a": numpy.linspace(0, 1, 3), "b": numpy.arange(2)})
    assert [type(value) for value in listed[0].values()] == [float, int]


def test_abandoned_background_work_starts_no_task() -> None:
    started: list[int] = []

    def run(task: int) -> int:
        started.append(task)
        return task

    for _ in background.results(range(1000), run, threads=2, ahead=1):
        break
    time.sleep(0.3)
    assert len(started) < 10
    with pytest.raises(ZeroDivisionError):
        list(background.results([1, 0], lambda task: 1 // task, threads=1, ahead=1))


def test_progress_estimates_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    shown = bar.Progress(shown=True)
    shown.begin(50, 200, 30.0)
    shown._start -= 60
    shown.advance(50, 10.0)
    assert "100/200 runs, 2 min 0 s left" in shown.line()
    shown.end()
    assert "50/200 runs" in capsys.readouterr().err
    bar.Progress().begin(0, 1, 1.0)
    assert capsys.readouterr().err == ""


FAKE_SBATCH = r"""#!/bin/bash
script="${@: -1}"
last=$(sed -n 's/^#SBATCH --array=0-\([0-9]*\).*/\1/p' "$script")
echo "$script" >> "$FAKE_SLURM/submitted"
touch "$FAKE_SLURM/running"
(
  for task in $(seq 0 "$last"); do
    [ "$task" = "$FAKE_SKIP" ] || SLURM_ARRAY_TASK_ID=$task bash "$script" || true
  done >> "$FAKE_SLURM/log" 2>&1
  rm "$FAKE_SLURM/running"
) > /dev/null 2>&1 &
echo "4242;cluster"
"""
FAKE_SQUEUE = '#!/bin/bash\n[ -e "$FAKE_SLURM/running" ] && echo "4242 R"\nexit 0\n'


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Slurm that runs arrays one task after the other, in the background."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"sbatch": FAKE_SBATCH, "squeue": FAKE_SQUEUE}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    monkeypatch.setenv("FAKE_SKIP", "none")
    yield folder
    end = time.monotonic() + 30
    while (folder / "running").exists() and time.monotonic() < end:
        time.sleep(0.1)


def test_job_array_runs_the_missing_chunks(
    scenario: Path, tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    out = tmp_path / "out folder"
    options = _sweep.Slurm(
        partition="short", options=["--account=lab"], setup=["export A=1"], max_array_size=4
    )
    start: Callable[[], _sweep.Sweep] = lambda: _sweep.sweep(  # noqa: E731
        scenario, GRID, 10, directory=out, chunk_seconds=1, backend="slurm", slurm=options, cpus=3
    )
    monkeypatch.setenv("FAKE_SKIP", "1")
    sweep = start()
    with pytest.raises(_sweep.SweepError, match="no job of the sweep is queued"):
        monkeypatch.setattr(_sweep.Sweep, "_settled", lambda self: self.is_complete)
        sweep.wait(timeout=60, poll=0.2)
    assert 0 < sweep.done < sweep.total
    monkeypatch.setenv("FAKE_SKIP", "none")
    sweep = start().wait(timeout=60, poll=0.2)
    check_runs(sweep, 6, list(range(1, 11)))
    assert rows_of(sweep) == serial(grid.combinations(GRID), list(range(1, 11)))
    script = (out / "array.sh").read_text()
    assert "#SBATCH --partition=short" in script and "#SBATCH --account=lab" in script
    assert "#SBATCH --array=0-" in script and "%3\n" in script and "%A_%a.log" in script
    first = json.loads((out / "slurm/tasks-1.json").read_text())
    assert len(first) <= 4 and max(len(task) for task in first) > 1
    assert len((cluster / "submitted").read_text().splitlines()) == 2
    start()
    assert len((cluster / "submitted").read_text().splitlines()) == 2


def test_a_queued_array_is_not_submitted_again(
    scenario: Path, tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, runs=30)
    out = tmp_path / "out"

    def start(seeds: int = 10, **settings: Any) -> _sweep.Sweep:
        fixed: dict[str, Any] = {"chunk_seconds": 1, "backend": "slurm", "progress": False}
        return _sweep.sweep(scenario, GRID, seeds, directory=out, **fixed, **settings)

    monkeypatch.setenv("FAKE_SKIP", "1")
    start()
    end = time.monotonic() + 60
    while (cluster / "running").exists():
        assert time.monotonic() < end
        time.sleep(0.1)
    (cluster / "running").touch()
    before = (out / "plan.json").read_bytes()
    for seeds in (10, 12):
        with pytest.raises(_sweep.SweepError, match=r"still queued or running.*wait\(\)"):
            start(seeds)
    assert (out / "plan.json").read_bytes() == before
    assert not start(submit=False).is_complete
    (cluster / "squeue").write_text("#!/bin/bash\necho 'no controller' >&2\nexit 1\n")
    with pytest.raises(_sweep.SweepError, match="does not show whether"):
        start()
    (cluster / "squeue").write_text(FAKE_SQUEUE)
    assert len((cluster / "submitted").read_text().splitlines()) == 1
    (cluster / "running").unlink()
    monkeypatch.setenv("FAKE_SKIP", "none")
    assert start().wait(timeout=60, poll=0.2, progress=False).is_complete
    (cluster / "running").touch()
    assert start().is_complete
    (cluster / "running").unlink()
    assert len((cluster / "submitted").read_text().splitlines()) == 2


def test_a_percent_sign_in_the_directory_is_no_pattern_of_slurm(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    out = tmp_path / "50%A"
    _sweep.sweep(scenario, GRID, 3, directory=out, backend="slurm", submit=False, progress=False)
    script = (out / "array.sh").read_text()
    assert f'#SBATCH --output="{tmp_path}/50%%A/slurm/%A_%a.log"\n' in script
    assert f"{out}/slurm/tasks-1.json" in script


def test_slurm_without_sbatch_leaves_the_script(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    out = tmp_path / "out"
    with pytest.raises(_sweep.SweepError, match="no `sbatch` in PATH"):
        _sweep.sweep(scenario, GRID, 3, directory=out, backend="slurm")
    assert (out / "array.sh").exists()
    sweep = _sweep.sweep(scenario, GRID, 3, directory=out, backend="slurm", submit=False)
    assert not sweep.is_complete
    done = [sys.executable, "-m", "freshline._sweep", str(out), "--task"]
    assert subprocess.run([*done, "0"], check=False).returncode == 0
    wrong = subprocess.run([*done, "99"], check=False, capture_output=True)
    assert wrong.returncode == 2 and b"has the tasks 0 to" in wrong.stderr
    assert sweep.done > 6


@pytest.mark.skipif(not LONG, reason="long: 10,000 runs; set FRESHLINE_LONG=1")
def test_two_cores_do_twice_the_work(scenario: Path, tmp_path: Path) -> None:
    if os.getloadavg()[0] > 0.3:
        pytest.skip("other programs use the cores; the load must be below 0.3")
    sweep = _sweep.sweep(scenario, GRID, 1667, directory=tmp_path / "out", cpus=2)
    start = time.monotonic()
    for one in sweep._plan.chunks:
        chunk.batch(sweep._plan, [one], 1)
    one_core = time.monotonic() - start
    for path in sweep.files:
        path.unlink()
    start = time.monotonic()
    failures = local.run(
        sweep.directory, sweep._plan, sweep._plan.chunks, 2, bar.Progress(shown=False)
    )
    two_cores = time.monotonic() - start
    assert not failures and sweep.is_complete
    efficiency = one_core / 2 / two_cores
    print(f"10002 runs: {one_core:.1f} s on one core, {two_cores:.1f} s on two, {efficiency:.1%}")
    assert efficiency >= 0.95
