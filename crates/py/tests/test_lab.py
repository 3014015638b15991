"""Scenarios: how they are given, results, errors, interruption."""

from __future__ import annotations

import json
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support import command, python

from freshline import AgeProcess, ScenarioError, lab
from freshline._native import Prepared, toml_of

TITLE = "one link, one source"
SMALL: dict[str, Any] = {
    "title": TITLE,
    "duration": "4s",
    "warm_up": "1s",
    "runs": 2,
    "link": [{"name": "link", "forward": {"rate": "1mbit", "delay": "5ms", "queue": "50p"}, "reverse": {}}],
    "flow": [
        {"name": "robot", "path": ["link"], "updates": {"law": "acp+", "payload": "500B"}},
        {"name": "bulk", "path": ["link"], "cross_traffic": {"pattern": "poisson", "rate": "200kbit", "size": "500B"}},
    ],
}


def rows(table: Any) -> list[dict[str, Any]]:
    columns = table.to_dict()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


# How a scenario is given


@pytest.fixture(scope="module")
def result() -> lab.Result:
    return lab.run(SMALL)


def test_a_file_a_dictionary_and_an_object_give_the_same_numbers(result: lab.Result, tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    scenario = lab.Scenario.from_dict(SMALL)
    file.write_text(toml_of(SMALL))
    expected = result.metrics.to_dict()
    given: list[Any] = [file, str(file), scenario, dict(SMALL)]
    for one in given:
        assert lab.run(one).metrics.to_dict() == expected
    assert result.title == TITLE


def test_scenarios_come_with_the_package() -> None:
    listed = lab.scenarios()
    names = [one["name"] for one in listed]
    assert len(names) > 100 and {"wifi-sources", "six-hops", "fresher/hops-1"} <= set(names)
    assert all(one["title"] for one in listed)
    assert any(one["reproduces"] for one in listed)
    text = lab.scenario_text("fresher/hops-1")
    assert tomllib.loads(text)["title"] == next(one["title"] for one in listed if one["name"] == "fresher/hops-1")
    assert lab.run("fresher/hops-1", {"duration": "12s"}, runs=1).value("age_mean", "source") > 0


def test_set_changes_keys(result: lab.Result) -> None:
    other = lab.run(SMALL, {"flow.robot.updates.payload": "50B", "flow.bulk.count": 0})
    assert other.value("updates", "robot") > result.value("updates", "robot")
    assert {row["of"] for row in rows(other.metrics)} != {row["of"] for row in rows(result.metrics)}


def test_runs_and_seed_override_those_of_the_scenario(result: lab.Result) -> None:
    assert len({(row["seed"], row["run"]) for row in rows(result.runs)}) == 2
    more = lab.run(SMALL, runs=3)
    assert sorted({row["run"] for row in rows(more.runs)}) == [0, 1, 2]
    firsts = [row for row in rows(more.runs) if row["run"] < 2]
    assert firsts == rows(result.runs), "further runs do not change the first ones"
    other = lab.run(SMALL, seed=7)
    assert set(other.runs["seed"]) == {7}
    assert other.value("age_mean", "robot") != result.value("age_mean", "robot")
    assert lab.run(SMALL, {"runs": 2, "seed": 7}).metrics.to_dict() == other.metrics.to_dict()


def test_each_of_several_seeds_has_one_run() -> None:
    some = lab.run(SMALL, seeds=[5, 3, 1 << 63])
    assert list(dict.fromkeys(some.runs["seed"])) == [5, 3, 1 << 63]
    assert set(some.runs["run"]) == {0}
    counted = lab.run(SMALL, seeds=2)
    assert list(dict.fromkeys(counted.runs["seed"])) == [1, 2]
    alone = lab.run(SMALL, seeds=[3])
    assert rows(alone.runs) == [row for row in rows(some.runs) if row["seed"] == 3]
    assert alone.metrics["ci95"][0] is None


def test_seeds_are_integers_of_any_kind_and_distinct() -> None:
    numpy = pytest.importorskip("numpy")
    expected = lab.run(SMALL, seeds=[1, 2]).runs.to_dict()
    for same in (numpy.int64(2), numpy.arange(1, 3), [numpy.uint8(1), numpy.int32(2)], range(1, 3), iter([1, 2])):
        assert lab.run(SMALL, seeds=same).runs.to_dict() == expected
    for wrong, message in [
        ([3, 3], "3 appears twice"),
        (numpy.array([1, 1]), "1 appears twice"),
        (True, "give a number, a range or a list, not True"),
        ([True, 2], "True is not an integer"),
        ([1.0], "1.0 is not an integer"),
        ("12", "give a number"),
    ]:
        with pytest.raises(ValueError, match=message):
            lab.run(SMALL, seeds=wrong)


@pytest.mark.parametrize("every", ["soon", "", 0, "0s", -1, float("nan")])
def test_the_interval_of_series_is_checked_before_the_runs(every: float | str) -> None:
    def never() -> object:
        raise AssertionError("a run started")

    with pytest.raises(ValueError):
        lab.run(SMALL, every=every, laws={"robot": never})


def test_seeds_and_runs_exclude_each_other() -> None:
    for both in ({"runs": 2}, {"seed": 2}):
        with pytest.raises(ValueError, match="either"):
            lab.run(SMALL, seeds=2, **both)  # type: ignore[arg-type]
    for none in ([], 0):
        with pytest.raises(ValueError, match="seeds"):
            lab.run(SMALL, seeds=none)


def test_metrics_are_the_means_of_the_runs(result: lab.Result) -> None:
    for row in rows(result.metrics):
        values = [one["value"] for one in rows(result.runs) if (one["of"], one["name"]) == (row["of"], row["name"])]
        assert row["value"] == pytest.approx(sum(values) / len(values))
        assert {one["unit"] for one in rows(result.runs) if one["name"] == row["name"]} == {row["unit"]}


# Sweeps


def test_a_sweep_has_a_point_for_each_combination_and_its_keys_in_front() -> None:
    sweep = {"flow.robot.updates.payload": ["100B", "500B"], "link.link.forward.loss": [0.0, 0.1, 0.2]}
    result = lab.run({**SMALL, "sweep": sweep}, runs=1)
    keys = list(sweep)
    assert result.metrics.column_names[:2] == result.runs.column_names[:2] == sorted(keys)
    assert len(result.points) == 6
    found = [tuple(row[key] for key in keys) for row in rows(result.metrics) if row["name"] == "age_mean"]
    assert sorted(set(found)) == [(payload, loss) for payload in ("100B", "500B") for loss in (0.0, 0.1, 0.2)]
    with pytest.raises(LookupError, match="several"):
        result.value("age_mean", "robot")
    lossy = result.value("age_mean", "robot", **{keys[0]: "500B", keys[1]: 0.2})
    assert lossy > result.value("age_mean", "robot", **{keys[0]: "500B", keys[1]: 0.0})
    alone = lab.run(SMALL, {keys[0]: "500B", keys[1]: 0.2}, runs=1)
    assert alone.value("age_mean", "robot") == lossy


def test_value_lists_the_known_metrics(result: lab.Result) -> None:
    for name, of in [("age", "robot"), ("age_mean", "unknown")]:
        with pytest.raises(LookupError, match="age_mean of robot"):
            result.value(name, of)
    with pytest.raises(LookupError, match="'foo' is not a swept key; the scenario has no sweep"):
        result.value("age_mean", "robot", foo=1)
    keys = {"flow.robot.updates.payload": ["100B", "500B"], "link.link.forward.loss": [0.0]}
    swept = lab.run({**SMALL, "sweep": keys}, runs=1)
    for wrong in ("no.such.key", "unit"):
        with pytest.raises(LookupError, match=f"'{wrong}' is not a swept key; the swept keys are {', '.join(keys)}"):
            swept.value("age_mean", "robot", **{wrong: 1})


# The same numbers


def test_the_number_of_threads_changes_nothing(result: lab.Result) -> None:
    for threads in (1, 2, 5):
        again = lab.run(SMALL, threads=threads)
        assert again.runs.to_dict() == result.runs.to_dict()
        assert again.metrics.to_dict() == result.metrics.to_dict()


def test_runs_of_several_python_threads_at_once_do_not_disturb_each_other(result: lab.Result) -> None:
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(lab.run(SMALL).runs.to_dict())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [result.runs.to_dict()] * 4


@pytest.mark.parametrize("sweep", [False, True])
def test_the_command_prints_the_same_numbers(sweep: bool, tmp_path: Path) -> None:
    scenario = {**SMALL, "sweep": {"flow.robot.updates.law": ["acp+", "lazy"]}} if sweep else SMALL
    file = tmp_path / "small.toml"
    file.write_text(toml_of(scenario))
    printed = json.loads(command("lab", "run", str(file), "--json"))
    result = lab.run(file)
    assert printed["runs"] == 2 and printed["seed"] == 1
    expected = (
        [{**point["set"], **metric} for point in printed["points"] for metric in point["metrics"]]
        if sweep
        else printed["metrics"]
    )
    assert rows(result.metrics) == [{**one, "ci95": one.get("ci95")} for one in expected]


# Recordings


def test_series_have_a_line_for_each_interval(result: lab.Result) -> None:
    series = lab.run(SMALL, runs=1, every="500ms").series
    assert {"flow-robot", "link-link"} <= set(series)
    times = list(series["link-link"]["time_s"])
    assert times[:3] == pytest.approx([0.5, 1.0, 1.5]) and len(times) % 8 == 0
    assert max(times) == pytest.approx(4)
    fine = result.record(every=0.1, ages=False, packets=False)
    assert len(fine.series["link-link"]) == 5 * len(series["link-link"])
    assert result.record(every=None).series == {}
    for every in (0, -1, "soon"):
        with pytest.raises(ValueError):
            result.record(every=every)


def test_the_ages_of_the_deliveries_give_the_mean_age() -> None:
    for warm_up in (None, "1s"):
        scenario = {**SMALL, "runs": 1}
        scenario.pop("warm_up") if warm_up is None else scenario.update(warm_up=warm_up)
        result = lab.run(scenario)
        ages = [row for row in rows(result.ages) if row["flow"] == "robot"]
        start, deliveries = ages[0], ages[1:]
        assert start["received_s"] == start["generated_s"]
        received = [row["received_s"] for row in deliveries]
        generated = [row["generated_s"] for row in deliveries]
        assert received == sorted(received) and all(map(float.__ge__, received, generated))
        whole = AgeProcess(received, generated, start=start["received_s"], end=4.0)
        if warm_up is None:
            assert whole.mean == pytest.approx(result.value("age_mean", "robot"), rel=1e-6)
            continue
        # The age from 1 s to 4 s: the area from the start, less that until the end of the warm-up.
        before = AgeProcess(received, generated, start=start["received_s"], end=1.0)
        assert whole.mean is not None and before.mean is not None
        area = whole.mean * whole.duration - before.mean * before.duration
        assert area / 3 == pytest.approx(result.value("age_mean", "robot"), rel=1e-6)


def test_packets_are_those_that_leave_each_hop(result: lab.Result) -> None:
    packets = rows(result.packets)
    assert {packet["carrier"] for packet in packets} == {"link", "link/reverse"}
    assert {packet["flow"] for packet in packets} == {"robot", "bulk"}
    times = [packet["time_s"] for packet in packets]
    assert times == sorted(times) and 0 <= times[0] and times[-1] <= 4
    assert min(packet["delay_s"] for packet in packets if packet["carrier"] == "link") >= 0.005
    acks = [packet for packet in packets if packet["carrier"] == "link/reverse" and packet["flow"] == "robot"]
    updates = [packet for packet in packets if packet["carrier"] == "link" and packet["flow"] == "robot"]
    assert acks and len(acks) <= len(updates)


def test_a_recording_is_of_the_run_that_was_asked_for() -> None:
    result = lab.run({**SMALL, "sweep": {"flow.robot.updates.law": ["acp+", "lazy"]}})
    runs = [result.record(point=point, row=row).ages.to_dict() for point in (0, 1) for row in (0, 1)]
    assert all(one != other for number, one in enumerate(runs) for other in runs[:number])
    assert result.record(point=1, row=1).ages.to_dict() == runs[3]
    assert result.ages.to_dict() == runs[0]
    for wrong in ({"point": 2}, {"row": 2}):
        with pytest.raises(IndexError):
            result.record(**wrong)  # type: ignore[arg-type]


def test_each_recording_has_only_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    result = lab.run(SMALL, runs=1)
    whole = result.record()
    asked: list[tuple[bool, bool, bool]] = []
    real = lab.Result.record

    def record(self: lab.Result, **given: Any) -> lab.Recording:
        asked.append((given["every"] is not None, given.get("ages", True), given.get("packets", True)))
        return real(self, **given)

    monkeypatch.setattr(lab.Result, "record", record)
    for _ in range(2):
        assert {name: table.to_dict() for name, table in result.series.items()} == {
            name: table.to_dict() for name, table in whole.series.items()
        }
        assert result.ages.to_dict() == whole.ages.to_dict()
        assert result.packets.to_dict() == whole.packets.to_dict()
    assert asked == [(True, False, False), (False, True, False), (False, False, True)]


# Errors


def test_an_unknown_scenario_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no-such-scenario.*scenarios\(\)"):
        lab.run("no-such-scenario")
    with pytest.raises(FileNotFoundError):
        lab.scenario_text("no-such-scenario")
    with pytest.raises(OSError):
        lab.run(tmp_path)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"flow.unknown.count": 1}, "unknown"),
        ({"flow.robot.updates.lag": "acp"}, "lag"),
        ({"flow.robot.updates.law": "newton"}, "newton"),
        ({"duration": "-1s"}, "duration|-1s"),
        ({"duration": "soon"}, "soon"),
        ({"link.link.forward.loss": 2}, "loss|2"),
        ({"": 1}, ""),
        ({"flow..count": 1}, ""),
        ({"runs": 0}, "runs"),
        ({"seed": -1}, "seed|-1"),
        ({"warm_up": "9s"}, "warm_up"),
        ({"title": {"a": object()}}, "title"),
        ({"title": float("nan")}, "title|string"),
    ],
)
def test_an_invalid_change_is_an_error_with_the_scenario_and_the_key(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ScenarioError, match=why or None):
        lab.run(SMALL, changes)


def test_an_invalid_scenario_is_an_error_with_the_place(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    for text, why in [("title = ", "line 1"), ("title = 'x'\nduration = '1s'\nx = 1", "x"), ("", "title|duration")]:
        file.write_text(text)
        with pytest.raises(ScenarioError, match=why):
            lab.run(file)
    with pytest.raises(ScenarioError):
        lab.run({"title": "x", "duration": object()})
    with pytest.raises(ScenarioError):
        lab.run({**SMALL, "flow": 3})


def test_numbers_of_numpy_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    loss, count = "link.link.forward.loss", "flow.bulk.count"
    expected = lab.run(SMALL, {loss: 0.25, count: 2}, runs=1, seed=3).runs.to_dict()
    changes = {loss: numpy.float32(0.25), count: numpy.int64(2)}
    assert lab.run(SMALL, changes, runs=numpy.int8(1), seed=numpy.uint64(3)).runs.to_dict() == expected
    changed = {**SMALL, "runs": numpy.int32(1), "seed": numpy.array(3), "sweep": {loss: numpy.array([0.25]), count: (2,)}}
    assert list(lab.run(changed).runs["value"]) == expected["value"]


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle
    for wrong in (deep, cycle, [cycle]):
        scenario = lab.Scenario.from_dict(SMALL)
        scenario.reproduce = {"of": wrong}
        for start in (
            lambda: lab.run(SMALL, {"title": wrong}),
            lambda: lab.run({**SMALL, "title": wrong}),
            lambda: lab.run(scenario),
            lambda: scenario.to_toml(),
            lambda: lab.reproduce("fresher/hops-1", {"title": wrong}),
        ):
            with pytest.raises(ScenarioError, match="more than 64 levels"):
                start()
    for other in (None, object(), b"a", {1, 2}):
        with pytest.raises(ScenarioError, match="`title`.*is not a number, a string"):
            lab.run(SMALL, {"title": other})


def test_arguments_of_wrong_types_are_refused() -> None:
    for wrong in (None, 3, [SMALL]):
        with pytest.raises(TypeError):
            lab.run(wrong)  # type: ignore[arg-type]
    for seeds in ([-1], [1 << 64], ["a"], [1.5]):
        with pytest.raises((TypeError, OverflowError, ValueError)):
            lab.run(SMALL, seeds=seeds)  # type: ignore[arg-type]
    with pytest.raises((TypeError, OverflowError, ValueError)):
        lab.run(SMALL, threads=-1)


def test_recordings_cannot_be_constructed() -> None:
    with pytest.raises(TypeError):
        lab.Recording()


# Interruption


def test_ctrl_c_ends_many_runs_within_a_second() -> None:
    done = python(
        """
        import os, signal, threading, time
        from freshline import lab
        def interrupt():
            interrupt.at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.5, interrupt).start()
        try:
            lab.run("wifi-sources", {"flow.source.count": 12, "duration": "12s"}, runs=100_000)
        except KeyboardInterrupt:
            print(time.monotonic() - interrupt.at < 3)
        print(lab.run("fresher/hops-1", {"duration": "12s"}, runs=1).value("age_mean", "source") > 0)
        """,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "True\nTrue\n"), done.stderr


def test_ctrl_c_ends_one_long_run_within_a_second() -> None:
    done = python(
        """
        import os, signal, threading, time
        from freshline import lab
        def interrupt():
            interrupt.at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.5, interrupt).start()
        try:
            lab.run("wifi-sources", {"flow.source.count": 48, "duration": "1000s"}, runs=1)
        except KeyboardInterrupt:
            print(time.monotonic() - interrupt.at < 2)
        """,
        timeout=90,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_progress_function_that_raises_cancels() -> None:
    prepared = Prepared("wifi-sources", None, None, {"flow.source.count": 12, "duration": "12s", "runs": 100_000})
    seen: list[int] = []

    def progress(done: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise KeyError("enough")

    began = time.monotonic()
    with pytest.raises(KeyError, match="enough"):
        prepared.run(progress=progress)
    assert time.monotonic() - began < 20
    assert len(seen) == 3 and seen == sorted(seen)


def test_progress_is_shown_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    lab.run(SMALL, progress=True)
    assert "2/2 runs" in capsys.readouterr().err
    lab.run(SMALL)
    assert capsys.readouterr().err == ""


def test_python_threads_go_on_while_the_lab_computes() -> None:
    turns, stop = 0, threading.Event()

    def turn() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        # On a busy machine a short run takes one turn of the processor. While the lab held Python's lock, there
        # would be no turn in a run, however long.
        for seconds in (20, 80, 320, 1280):
            before = turns
            lab.run("wifi-sources", {"flow.source.count": 12, "duration": f"{seconds}s"}, runs=2)
            if turns - before > 20:
                break
        else:
            pytest.fail("Python's threads stood still")
    finally:
        stop.set()
        thread.join()


# Figures of papers

REPRODUCED = """
[reproduce]
of = "a test"
[[reproduce.row]]
id = "round trip"
what = "round trip of one update"
metric = "rtt_mean"
of = "robot"
expected = 0.009
tolerance = 0.5
source = "model"
quote = "about 9 ms"
[[reproduce.row]]
what = "an impossible age"
metric = "age_mean"
of = "robot"
expected = 5.0
tolerance = 0.01
source = "model"
"""


def test_numbers_of_a_paper_are_compared_with_ours(tmp_path: Path) -> None:
    small = {**SMALL, "flow": [{**SMALL["flow"][0], "updates": {"law": "lazy", "payload": "500B"}}]}
    file = tmp_path / "small.toml"
    file.write_text(toml_of(small) + REPRODUCED)
    table = rows(lab.reproduce(str(file)))
    assert table == rows(lab.reproduce(file))  # type: ignore[arg-type]
    first, second = table
    assert (first["what"], first["quote"], first["expected"]) == ("round trip of one update", "about 9 ms", 0.009)
    assert first["ours"] == pytest.approx(0.0094, abs=0.001) and second["ours"] < 1
    assert first["verdict"] != second["verdict"]
    with pytest.raises(ScenarioError):
        lab.reproduce("fresher/hops-1", {"no.such.key": 1})
    with pytest.raises(FileNotFoundError):
        lab.reproduce("no-such-scenario")


def test_a_scenario_without_a_figure_reproduces_nothing(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(toml_of(SMALL))
    with pytest.raises(ScenarioError, match="reproduce"):
        lab.reproduce(str(file))
