"""Laws in Python: comparison with the lab's own, methods, errors."""

from __future__ import annotations

import gc
import math
import threading
import time
import traceback
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from support import python

from freshline import ScenarioError, lab
from freshline.lab import Ack, Law

SMALL: dict[str, Any] = {
    "title": "one link, one source",
    "duration": "4s",
    "runs": 1,
    "link": [{"name": "link", "forward": {"rate": "1mbit", "delay": "5ms", "queue": "50p"}, "reverse": {}}],
    "flow": [
        {"name": "robot", "path": ["link"], "updates": {"law": "lazy", "payload": "100B"}},
        {"name": "bulk", "path": ["link"], "cross_traffic": {"pattern": "poisson", "rate": "100kbit", "size": "500B"}},
    ],
}
METRICS = ["age_mean", "updates", "rtt_mean", "backlog"]


def run(law: Callable[[], object], set: dict[str, Any] | None = None, flow: str = "robot", **rest: Any) -> lab.Result:
    return lab.run(SMALL, set, laws={flow: law}, **rest)


def updates(law: Callable[[], object]) -> float:
    """Updates per second of the source in 4 s."""
    return run(law).value("updates", "robot")


class Lazy(Law):
    """One update per smoothed round trip, as the lab's `lazy`: the period is that known when the last update left."""

    def __init__(self) -> None:
        self.restart(0)

    def restart(self, now: float) -> None:
        self.rate, self.srtt, self.newest = None, None, -1

    def on_ack(self, now: float, ack: Ack) -> None:
        if ack.seq > self.newest:
            self.newest = ack.seq
            self.srtt = ack.rtt if self.srtt is None else 0.8 * self.srtt + 0.2 * ack.rtt
            self.rate = 1 / self.srtt


# The lab's own law


def compare(scenario: Any, set: dict[str, Any], runs: int, within: float) -> None:
    own = lab.run(scenario, set, runs=runs)
    python = lab.run(scenario, set, runs=runs, laws={"source": Lazy})
    for name in METRICS:
        expected, found = own.value(name, "source"), python.value(name, "source")
        assert found == pytest.approx(expected, rel=within), name


@pytest.mark.parametrize("sources", [1, 12, 48])
def test_lazy_in_python_is_the_labs_own_on_wifi(sources: int) -> None:
    changes = {"flow.source.updates.law": "lazy", "flow.source.count": sources, "duration": "14s"}
    compare("wifi-sources", changes, 3, 1e-6)


def test_lazy_in_python_is_the_labs_own_on_six_hops() -> None:
    scenario = tomllib.loads(lab.scenario_text("six-hops"))
    (source,) = (flow for flow in scenario["flow"] if flow["name"] == "source")
    source["updates"] = {"law": "lazy", "payload": "1024B"}
    del scenario["reproduce"]
    compare(scenario, {"duration": "60s"}, 2, 1e-6)


@pytest.mark.parametrize("name", ["hops-3", "loss-01", "loss-10", "loss-bursts", "jitter-20", "narrow-back", "leo", "step-route"])
def test_lazy_in_python_is_the_labs_own_on_other_paths(name: str) -> None:
    compare(f"fresher/{name}", {"flow.source.updates.law": "lazy", "duration": "40s"}, 2, 1e-6)


def test_lazy_in_python_is_nearly_the_labs_own_with_outages() -> None:
    # The lab's own law probes again after a silence, by a timeout; this one does not.
    compare("fresher/outages", {"flow.source.updates.law": "lazy"}, 2, 0.01)


# Methods of a law


class Steady:
    """25 updates per second; a law need not be a `Law`."""

    rate = 25.0


def test_a_law_needs_nothing_but_a_rate() -> None:
    assert updates(Steady) == pytest.approx(25, abs=0.5)
    assert updates(type("Whole", (), {"rate": 25})) == pytest.approx(25, abs=0.5)
    numpy = pytest.importorskip("numpy")
    assert updates(type("Numpy", (), {"rate": numpy.float64(25)})) == pytest.approx(25, abs=0.5)


def test_a_function_or_a_partial_makes_laws_too() -> None:
    from functools import partial

    def make(rate: float) -> Steady:
        law = Steady()
        law.rate = rate
        return law

    assert updates(partial(make, 50.0)) == pytest.approx(50, abs=0.5)
    assert updates(lambda: make(10.0)) == pytest.approx(10, abs=0.5)


class Periodic(Law):
    """An update every 100 ms, by the time and not by a rate."""

    def __init__(self) -> None:
        self.sent: list[float] = []
        made.append(self)

    def on_sent(self, now: float, seq: int) -> None:
        self.sent.append(now)

    def next_update(self) -> float:
        return len(self.sent) * 0.1


made: list[Any] = []


def test_next_update_sets_the_time_of_each_update() -> None:
    made.clear()
    run(Periodic)
    (law,) = made
    assert len(law.sent) == 40 or len(law.sent) == 41
    assert law.sent[1:] == pytest.approx([number / 10 for number in range(1, len(law.sent))], abs=0.02)


def test_next_update_none_waits_for_the_next_input() -> None:
    class Waits(Law):
        def __init__(self) -> None:
            self.at: float | None = 0.0

        def on_sent(self, now: float, seq: int) -> None:
            self.at = None

        def on_ack(self, now: float, ack: Ack) -> None:
            self.at = now + 0.2

        def next_update(self) -> float | None:
            return self.at

    assert 3 < updates(Waits) < 5.5


def test_a_timeout_is_called_at_its_time() -> None:
    class Timed(Law):
        rate = 5.0

        def __init__(self) -> None:
            self.calls: list[float] = []
            made.append(self)

        def next_timeout(self) -> float | None:
            return 0.25 * (len(self.calls) + 1) if len(self.calls) < 8 else None

        def on_timeout(self, now: float) -> None:
            self.calls.append(now)

    made.clear()
    run(Timed)
    assert made[0].calls == pytest.approx([0.25 * number for number in range(1, 9)], abs=1e-6)


def test_an_ack_has_consistent_numbers() -> None:
    class Watches(Law):
        rate = 50.0

        def __init__(self) -> None:
            self.acks: list[tuple[float, Ack]] = []
            self.sent: dict[int, float] = {}
            made.append(self)

        def on_sent(self, now: float, seq: int) -> None:
            self.sent[seq] = now

        def on_ack(self, now: float, ack: Ack) -> None:
            self.acks.append((now, ack))

    made.clear()
    run(Watches)
    (law,) = made
    assert len(law.acks) > 150
    for now, ack in law.acks:
        assert ack.rtt == pytest.approx(now - ack.sent_at - ack.hold, abs=1e-9) and 0.005 < ack.rtt < 1
        assert ack.sent_at == pytest.approx(law.sent[ack.seq], abs=1e-9) and ack.generated_at <= ack.sent_at
        assert 0 < ack.len <= 100 and ack.hold >= 0 and ack.stale == 0
    fresh = [ack.fresh for _, ack in law.acks]
    assert fresh == sorted(fresh)
    with pytest.raises(AttributeError):
        law.acks[0][1].seq = 1
    with pytest.raises(TypeError):
        Ack()


def test_a_law_without_a_rate_sends_one_update_and_waits() -> None:
    assert updates(Law) <= 1


def test_a_law_that_always_wants_to_send_is_bounded() -> None:
    class Now(Law):
        def next_update(self) -> float:
            return 0.0

    for law in (Now, type("Fast", (), {"rate": 1e9})):
        result = lab.run({**SMALL, "duration": "1s"}, laws={"robot": law})
        assert 5000 < result.value("updates", "robot") <= 10_001


def test_a_slow_rate_is_raised_to_the_floor() -> None:
    assert updates(type("Slow", (), {"rate": 1e-9})) == pytest.approx(0.5, abs=0.3)


# Errors


def raising(method: str) -> type[Law]:
    def fails(self: Law, *arguments: object) -> None:
        raise KeyError(f"of {method}")

    more = {"next_timeout": lambda self: 1.0} if method == "on_timeout" else {}
    return type("Raising", (Law,), {"rate": 10.0, method: fails, **more})


@pytest.mark.parametrize(
    "method", ["__init__", "restart", "on_sent", "on_ack", "next_update", "next_timeout", "on_timeout"]
)
def test_an_exception_of_a_law_ends_the_run_with_its_traceback(method: str) -> None:
    with pytest.raises(KeyError, match=f"of {method}") as caught:
        run(raising(method), runs=50)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "fails" and "run" in frames


def test_an_exception_of_a_property_is_raised_too() -> None:
    class Computed:
        @property
        def rate(self) -> float:
            return 1 / 0

    with pytest.raises(ZeroDivisionError):
        run(Computed)


def test_an_exception_while_recording_is_raised_too() -> None:
    class Later(Law):
        rate = 10.0
        fails = False

        def on_sent(self, now: float, seq: int) -> None:
            if Later.fails:
                raise KeyError("later")

    result = run(Later)
    Later.fails = True
    with pytest.raises(KeyError, match="later"):
        _ = result.series


def test_a_law_that_exits_or_interrupts_ends_the_run() -> None:
    for kind in (SystemExit, KeyboardInterrupt):

        class Exits(Law):
            def restart(self, now: float) -> None:
                raise kind

        with pytest.raises(kind):
            run(Exits)


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1, 0, 1e20])
def test_an_invalid_rate_is_an_error(rate: float) -> None:
    with pytest.raises(ValueError, match="rate is"):
        run(type("Wrong", (), {"rate": rate}))


@pytest.mark.parametrize("rate", ["fast", [1], 1j])
def test_a_rate_that_is_no_number_is_an_error(rate: Any) -> None:
    with pytest.raises(TypeError, match="a law's rate is a number"):
        run(type("Wrong", (), {"rate": rate}))


def test_an_object_without_a_rate_is_no_law() -> None:
    with pytest.raises(TypeError, match="no `rate`"):
        run(object)


@pytest.mark.parametrize("method", ["next_update", "next_timeout"])
def test_invalid_times_are_errors(method: str) -> None:
    for value, kind in [(math.nan, ValueError), (math.inf, ValueError), ("soon", TypeError)]:
        law = type("Wrong", (Law,), {"rate": 10.0, method: lambda self, value=value: value})
        with pytest.raises(kind, match=rf"{method}\(\) gives|{method}\(\) gave"):
            run(law)


@pytest.mark.parametrize("step", [0.0, -0.1])
def test_a_timeout_that_never_advances_is_an_error(step: float) -> None:
    class Stuck(Law):
        rate = 10.0
        timeout = 1.0

        def on_timeout(self, now: float) -> None:
            self.timeout += step

        def next_timeout(self) -> float:
            return self.timeout

    with pytest.raises(ValueError, match="give a later one"):
        run(Stuck)


def test_a_method_with_the_wrong_arguments_is_an_error() -> None:
    with pytest.raises(TypeError, match="positional argument"):
        run(type("Wrong", (Law,), {"on_ack": lambda self: None}))


@pytest.mark.parametrize("flow", ["nothing", "bulk"])
def test_laws_belong_to_flows_of_updates(flow: str) -> None:
    with pytest.raises(ScenarioError, match=f"`{flow}`.*those are: robot"):
        run(Steady, flow=flow)


def test_a_law_is_made_by_a_class_or_a_function() -> None:
    for wrong in (25.0, "acp", Steady()):
        with pytest.raises(TypeError, match="class or function"):
            run(wrong)  # type: ignore[arg-type]


# Several runs


def test_each_source_of_each_run_has_its_own_object() -> None:
    made.clear()

    class Counted(Lazy):
        def __init__(self) -> None:
            super().__init__()
            self.seqs: list[int] = []
            self.threads: set[int] = set()
            made.append(self)

        def on_sent(self, now: float, seq: int) -> None:
            self.seqs.append(seq)
            self.threads.add(threading.get_ident())

    run(Counted, {"flow.robot.count": 3}, runs=4, threads=2)
    assert len(made) == 12 and len({id(law) for law in made}) == 12
    for law in made:
        assert law.seqs == sorted(set(law.seqs)), "no other source used it"
        assert len(law.threads) == 1


def test_a_law_in_python_is_deterministic() -> None:
    found = [run(Lazy, runs=3, threads=threads).runs.to_dict() for threads in (1, 2, None)]
    assert found[0] == found[1] == found[2]
    result = run(Lazy)
    assert result.ages.to_dict() == run(Lazy).ages.to_dict()


def test_laws_are_let_go_after_the_run() -> None:
    class Kept(Lazy):
        pass

    run(Kept, runs=3)
    with pytest.raises(KeyError):
        run(raising("on_ack"))
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Kept)]


def test_a_law_in_python_may_be_interrupted() -> None:
    done = python(
        """
        import os, signal, threading, time
        from freshline import lab
        class Slow(lab.Law):
            rate = 10.0
            def on_sent(self, now, seq):
                sum(range(1000))
        def interrupt():
            interrupt.at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.5, interrupt).start()
        try:
            lab.run("wifi-sources", {"flow.source.count": 4, "duration": "15s"}, laws={"source": Slow}, runs=10_000)
        except KeyboardInterrupt:
            print(time.monotonic() - interrupt.at < 3)
        """,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_law_that_sleeps_lets_other_threads_run() -> None:
    class Sleeps(Law):
        rate = 20.0

        def on_sent(self, now: float, seq: int) -> None:
            time.sleep(0.002)

    turns, stop = 0, threading.Event()

    def turn() -> None:
        nonlocal turns
        while not stop.wait(0.001):
            turns += 1

    thread = threading.Thread(target=turn)
    thread.start()
    run(Sleeps)
    stop.set()
    thread.join()
    assert turns > 20


def test_a_slow_law_does_not_hold_up_an_interruption() -> None:
    done = python(
        """
        import signal, time
        from freshline import lab
        class Slow(lab.Law):
            rate = 10.0
            def on_ack(self, now, ack):
                time.sleep(0.1)
        def interrupt(*_):
            raise RuntimeError("interrupted")
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        began = time.monotonic()
        try:
            lab.run("wifi-sources", {"duration": "600s"}, laws={"source": Slow}, runs=1)
        except RuntimeError:
            print(time.monotonic() - began < 10.0)
        """,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_any_number_of_threads_is_accepted() -> None:
    one = lab.run("wifi-sources", {"duration": "11s"}, runs=2, threads=1)
    many = lab.run("wifi-sources", {"duration": "11s"}, runs=2, threads=1_000_000)
    assert one.runs.to_dict() == many.runs.to_dict()
