"""Sources and monitors on the loopback interface: topics, payloads, ages, credentials, ends."""

from __future__ import annotations

import array
import ctypes
import datetime
import gc
import hashlib
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support import GUARD, line_of, pair, python, started, threads, until

import freshline
from freshline import (
    ClosedError,
    Error,
    FullError,
    Monitor,
    PutError,
    SettingError,
    Source,
    State,
    TopicParams,
    UndeliveredError,
    UnknownTopicError,
)

pytestmark = pytest.mark.real_time

EVERY = TopicParams("log", kind="every")
KEYED = TopicParams("map", kind="keyed")
MEBIBYTE = 1 << 20


def received(monitor: Monitor, name: str) -> State:
    """The newest state of `name`, once there is one."""
    return until(lambda: monitor.latest(name))  # type: ignore[no-any-return]


# A story


def test_a_state_that_a_source_puts_arrives_at_the_monitor() -> None:
    with pair(["pose"]) as (monitor, source):
        source.topic("pose").put(b"here")
        with monitor.subscribe("robot/*") as states:
            state = states.next(GUARD)
        assert state is not None
        assert (state.source, state.topic, state.name, state.key) == ("robot", "pose", "robot/pose", None)
        assert (state.payload, bytes(state), state.text(), len(state)) == (b"here", b"here", "here", 4)
        assert not state.is_record and not state.is_removed and state.is_usable
        assert "robot/pose of 4 bytes" in repr(state)


def test_a_state_is_true_although_it_is_empty() -> None:
    with pair() as (monitor, source), monitor.subscribe("robot") as states:
        source.put(b"")
        state = states.next(GUARD)
        assert state is not None and state and len(state) == 0


def test_a_source_without_topics_has_one_state_without_a_name() -> None:
    with pair() as (monitor, source):
        source.put("north")
        state = received(monitor, "robot")
        assert (state.topic, state.name, state.text()) == ("", "robot", "north")
        assert source.topic("").name == ""


def test_the_first_topic_is_that_of_put() -> None:
    with pair(["pose", "battery"]) as (monitor, source):
        source.put("first")
        assert received(monitor, "robot/pose").text() == "first"
        assert monitor.latest("robot/battery") is None


def test_the_newest_state_replaces_older_ones() -> None:
    with pair(["pose"]) as (monitor, source):
        topic = source.topic("pose")
        for number in range(1000):
            topic.put(str(number))
        until(lambda: received(monitor, "robot/pose").text() == "999")
        with monitor.subscribe("robot/pose") as states:
            state = states.next(GUARD)
            assert state is not None and state.text() == "999", "the current state comes first"
        assert topic.replaced > 0


def test_put_returns_the_state_that_was_not_sent_yet() -> None:
    source = Source("udp://127.0.0.1:9", topics=["pose"])
    topic = source.topic("pose")
    assert topic.put("one") is None
    until(lambda: topic.put("two") is not None, 1)
    assert topic.put(b"three") == b"two"
    assert topic.replaced >= 2
    source.close()


def test_each_key_has_a_newest_state_and_can_be_removed() -> None:
    with pair([KEYED]) as (monitor, source):
        topic = source.topic("map")
        for key in ["b", "a", "c"]:
            topic.put_key(key, f"state of {key}")
        until(lambda: len(monitor.keys("robot/map")) == 3)
        assert [state.key for state in monitor.keys("robot/map")] == [b"a", b"b", b"c"]
        found = monitor.latest_key("robot/map", b"b")
        assert found is not None and found.text() == "state of b"
        assert monitor.latest_key("robot/map", "z") is None
        with monitor.subscribe("robot/map") as states:
            assert {states.next(GUARD).key for _ in range(3)} == {b"a", b"b", b"c"}  # type: ignore[union-attr]
            topic.remove_key("b")
            state = states.next(GUARD)
            assert state is not None and state.is_removed
            assert (state.key, state.payload) == (b"b", b"")
        assert [state.key for state in monitor.keys("robot/map")] == [b"a", b"c"]


def test_each_record_arrives_once_and_in_order() -> None:
    with pair([EVERY]) as (monitor, source), monitor.subscribe("robot/log") as states:
        topic = source.topic("log")
        for number in range(2000):
            topic.push(str(number))
        texts = []
        for _ in range(2000):
            state = states.next(GUARD)
            assert state is not None and state.is_record
            texts.append(state.text())
            del state
        assert texts == [str(number) for number in range(2000)]
        assert states.try_next() is None
        report = source.finish(GUARD)
        assert report["topics"][0]["records"]["done"] == 2000


def test_max_bytes_of_records_raises_full_error() -> None:
    source = Source("udp://127.0.0.1:9", topics=[TopicParams("log", kind="every", max_bytes=4096)])
    topic = source.topic("log")
    with pytest.raises(FullError, match="log"):
        for _ in range(100):
            topic.push(bytes(100))
    source.close()


def test_max_keys_raises_full_error() -> None:
    source = Source("udp://127.0.0.1:9", topics=[TopicParams("map", kind="keyed", max_keys=2)])
    topic = source.topic("map")
    with pytest.raises(FullError, match="map"):
        for number in range(1000):
            topic.put_key(str(number), "")
    source.close()


def test_a_pattern_selects_the_topics_of_a_subscription() -> None:
    with pair(["pose", "battery"]) as (monitor, source):
        source.topic("pose").put("p")
        source.topic("battery").put("b")
        received(monitor, "robot/pose"), received(monitor, "robot/battery")
        with monitor.subscribe("*/battery") as states:
            assert states.next(GUARD).topic == "battery"  # type: ignore[union-attr]
            assert states.next(0.05) is None
        with monitor.subscribe("other/*") as states:
            assert states.try_next() is None


def test_two_subscriptions_each_receive_a_state() -> None:
    with pair(["pose"]) as (monitor, source):
        one, other = monitor.subscribe("*"), monitor.subscribe("*")
        source.topic("pose").put("p")
        for states in (one, other):
            state = states.next(GUARD)
            assert state is not None and state.text() == "p"


# Payloads

FLOATS = [1.5, -2.0, 3.25, 4.0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (b"bytes", b"bytes"),
        (b"", b""),
        ("text \u00fc", "text \u00fc".encode()),
        (bytearray(b"mutable"), b"mutable"),
        (memoryview(b"view"), b"view"),
        (memoryview(b"abcdef")[::2], b"ace"),
        (array.array("d", FLOATS), array.array("d", FLOATS).tobytes()),
        (array.array("H", [1, 2]), b"\x01\x00\x02\x00"),
    ],
    ids=["bytes", "empty", "str", "bytearray", "memoryview", "memoryview-step", "array-d", "array-H"],
)
def test_put_takes_the_bytes_of_any_buffer(given: Any, expected: bytes) -> None:
    with pair() as (monitor, source):
        source.put(given)
        assert received(monitor, "robot").payload == expected


@pytest.mark.parametrize("order", ["C", "F", "step", "transposed", "scalar", "read-only", "empty"])
def test_put_sends_the_numbers_of_a_numpy_array_in_c_order(order: str) -> None:
    numpy = pytest.importorskip("numpy")
    numbers = numpy.arange(12, dtype="<f8").reshape(3, 4)
    made = {
        "C": numbers,
        "F": numpy.asfortranarray(numbers),
        "step": numbers[:, ::2],
        "transposed": numbers.T,
        "scalar": numpy.float64(2.5),
        "read-only": numbers.view(),
        "empty": numbers[:0],
    }[order]
    if order == "read-only":
        made.flags.writeable = False
    with pair() as (monitor, source):
        source.put(made)
        assert received(monitor, "robot").payload == made.tobytes("C")


def test_put_numpy_keeps_type_and_shape() -> None:
    numpy = pytest.importorskip("numpy")
    sent = numpy.arange(24, dtype=">i2").reshape(2, 3, 4)[:, ::2]
    with pair() as (monitor, source):
        source.topic("").put_numpy(sent)
        got = received(monitor, "robot").numpy()
        assert got.dtype == sent.dtype and got.shape == sent.shape
        assert (got == sent).all()


def test_put_numpy_refuses_objects() -> None:
    numpy = pytest.importorskip("numpy")
    with pair() as (_, source), pytest.raises(ValueError, match="allow_pickle"):
        source.topic("").put_numpy(numpy.array([object()]))


def test_values_come_back_from_json_and_msgpack() -> None:
    value = {"x": [1, 2.5, None, True], "text": "\u00fc\u4e2d"}
    with pair(["j", "m"]) as (monitor, source):
        source.topic("j").put_json(value)
        state = received(monitor, "robot/j")
        assert state.json() == value
        assert state.text() == '{"x":[1,2.5,null,true],"text":"\u00fc\u4e2d"}'
        pytest.importorskip("msgpack")
        source.topic("m").put_msgpack(value)
        assert received(monitor, "robot/m").msgpack() == value


def test_put_json_refuses_nan() -> None:
    with pair() as (monitor, source):
        with pytest.raises(ValueError, match="JSON"):
            source.topic("").put_json(float("nan"))
        with pytest.raises(TypeError):
            source.topic("").put_json(object())
        assert monitor.latest("robot") is None


def test_put_refuses_objects_without_bytes() -> None:
    with pair() as (_, source):
        for value in [1, 2.5, None, ["a"], {"a": 1}]:
            with pytest.raises(TypeError, match="put_json"):
                source.put(value)  # type: ignore[arg-type]
        with pytest.raises(UnicodeEncodeError):
            source.put("\ud800")


def test_text_json_and_msgpack_of_other_bytes_raise() -> None:
    with pair() as (monitor, source):
        source.put(b"\xff\xfe\xc1")
        state = received(monitor, "robot")
        with pytest.raises(UnicodeDecodeError):
            state.text()
        with pytest.raises(ValueError):
            state.json()
        with pytest.raises(ValueError):
            state.numpy()


def test_a_state_of_a_mebibyte_arrives() -> None:
    payload = os.urandom(MEBIBYTE)
    with pair() as (monitor, source):
        source.put(payload)
        assert received(monitor, "robot").payload == payload


def test_too_large_a_state_raises_put_error() -> None:
    with pair(max_state=1000) as (_, source), pytest.raises(PutError, match="1000"):
        source.put(bytes(1001))


def test_views_of_a_state_share_its_memory_and_keep_it() -> None:
    numpy = pytest.importorskip("numpy")
    sent = numpy.arange(1000, dtype="<f8")
    with pair() as (monitor, source):
        source.put(sent)
        state = received(monitor, "robot")
    one, other = numpy.frombuffer(state), numpy.frombuffer(state)
    address = one.__array_interface__["data"][0]
    assert address == other.__array_interface__["data"][0]
    assert not one.flags.writeable
    view = memoryview(state)
    assert view.readonly and view.obj is state and view.nbytes == 8000
    with pytest.raises(TypeError, match="not writable"):
        (ctypes.c_char * 8000).from_buffer(state)
    del state, other, view
    gc.collect()
    freshline.Source("udp://127.0.0.1:9").close()
    assert (one == sent).all(), "the array holds the state"


# Ages


def test_the_age_grows_and_its_uncertainty_is_small_on_loopback() -> None:
    with pair() as (monitor, source):
        source.put("x")
        state = received(monitor, "robot")
        until(lambda: state.age is not None)
        first = state.age
        time.sleep(0.05)
        assert first is not None and state.age is not None
        assert 0.04 < state.age - first < 1
        assert state.age_uncertainty is not None and 0 <= state.age_uncertainty < 0.5


@pytest.mark.parametrize("age", [0.05, "50ms", datetime.timedelta(milliseconds=50)])
def test_a_state_that_was_sampled_50_ms_ago_is_50_ms_older(age: Any) -> None:
    with pair(["now", "aged"]) as (monitor, source):
        # In one turn of the network, with one clock.
        source.topic("aged").put("x", age=age)
        source.topic("now").put("x")
        now, aged = received(monitor, "robot/now"), received(monitor, "robot/aged")
        until(lambda: now.age is not None and aged.age is not None)
        difference = aged.age - now.age  # type: ignore[operator]
        assert 0.04 < difference < 0.2


def test_an_age_that_is_negative_or_not_a_number_is_refused() -> None:
    with pair() as (_, source):
        for age in [-0.1, float("nan"), float("inf"), "soon"]:
            with pytest.raises(ValueError):
                source.put("x", age=age)
        with pytest.raises(TypeError):
            source.put("x", age=[])  # type: ignore[arg-type]


def test_the_source_knows_an_upper_bound_of_the_age() -> None:
    with pair() as (_, source):
        assert source.age is None
        source.put("x")
        until(lambda: source.age is not None)
        assert source.age is not None and source.age < 1
        assert source.rate > 0 and source.is_open


def test_old_states_are_reported_stale_and_then_recovered() -> None:
    with Monitor("udp://127.0.0.1:0", max_ages={"*/pose": 0.2}) as monitor:
        source = Source(monitor.url, name="robot", topics=["pose", "free"])
        for name in ("pose", "free"):
            source.topic(name).put("x")
        events = monitor.events
        kinds = [events.next(GUARD) for _ in range(2)]
        assert [event and event.kind for event in kinds] == ["opened", "stale"]
        stale = kinds[1]
        assert stale is not None
        assert (stale.source, stale.topic, stale.max_age) == ("robot", "pose", pytest.approx(0.2))
        assert monitor.latest("robot/pose") is None, "it is too old"
        assert monitor.latest("robot/free") is not None
        source.topic("pose").put("y")
        event = events.next(GUARD)
        assert event is not None and (event.kind, event.topic) == ("recovered", "pose")
        source.close()
        event = events.next(GUARD)
        while event is not None and event.kind == "stale":
            event = events.next(GUARD)
        assert event is not None and (event.kind, event.source, event.why) == ("gone", "robot", "closed")


# The return direction


def test_a_source_receives_the_topics_of_the_monitor() -> None:
    with Monitor("udp://127.0.0.1:0", name="base", topics=["cmd", "mode"]) as monitor:
        source = Source(monitor.url, name="robot", max_ages={"base/cmd": 0.2})
        source.put("x")
        monitor.topic("cmd").put("go")
        with source.subscribe("base/cmd") as states:
            state = states.next(GUARD)
            assert state is not None and (state.name, state.text()) == ("base/cmd", "go")
        seen: list[str] = []
        with source.listen("base/mode", lambda state: seen.append(state.text())):
            monitor.topic("mode").put("manual")
            until(lambda: seen == ["manual"])
        events = source.received_events
        until(lambda: (event := events.next(GUARD)) and (event.kind, event.topic) == ("stale", "cmd"))
        assert source.latest("base/cmd") is None
        monitor.topic("cmd").put("stop")
        until(lambda: (event := events.next(GUARD)) and (event.kind, event.topic) == ("recovered", "cmd"))
        newest = source.latest("base/cmd")
        assert newest is None or newest.text() == "stop"
        source.close()


def test_a_source_without_receive_has_no_received_events() -> None:
    with pair() as (_, source):
        with pytest.raises(SettingError, match="receive"):
            _ = source.received_events
        assert source.latest("monitor/cmd") is None


# Credentials


def test_a_pinned_certificate_and_a_token_open_a_session() -> None:
    with Monitor("quic://127.0.0.1:0", tokens=["secret"]) as monitor:
        assert monitor.fingerprint is not None and monitor.fingerprint.startswith("sha256:")
        source = Source(monitor.url, name="robot", pins=[monitor.fingerprint], token=b"secret")
        source.put("x")
        assert received(monitor, "robot").text() == "x"
        source.close()


def test_a_wrong_token_is_an_event_and_not_an_exception() -> None:
    with Monitor("quic://127.0.0.1:0", tokens=["secret"]) as monitor:
        assert monitor.fingerprint is not None
        source = Source(monitor.url, name="robot", pins=[monitor.fingerprint], token="guess")
        source.put("x")
        until(lambda: (event := source.events.next(GUARD)) and event.kind in ("closed", "unreachable") and event.why)
        assert not source.is_open and monitor.latest("robot") is None
        source.close()


def test_a_wrong_pin_is_an_event() -> None:
    with Monitor("quic://127.0.0.1:0", insecure=True) as monitor:
        source = Source(monitor.url, name="robot", pins=["sha256:" + "0" * 64])
        source.put("x")
        event = until(lambda: (event := source.events.next(GUARD)) and event.kind == "unreachable" and event)
        assert monitor.fingerprint in event.why and "pin the new one" in event.why
        source.close()


def test_a_source_that_trusts_no_certificate_is_refused() -> None:
    with pytest.raises(SettingError, match=r"no trusted certificate.*`pin`.*`ca_file`"):
        Source("quic://127.0.0.1:3774")


def test_reload_closes_the_sessions_of_removed_credentials(tmp_path: Path) -> None:
    file = tmp_path / "credentials"

    def grant(token: str) -> None:
        file.write_text(f"robot publish {hashlib.sha256(token.encode()).hexdigest()}\n")

    grant("secret")
    with Monitor("quic://127.0.0.1:0", credentials_file=file) as monitor:
        assert monitor.fingerprint is not None
        source = Source(monitor.url, name="robot", pins=[monitor.fingerprint], token="secret")
        source.put("x")
        received(monitor, "robot")
        assert monitor.reload() == 0
        grant("other")
        assert monitor.reload() == 1
        until(lambda: (event := monitor.events.next(GUARD)) and event.kind == "gone" and event.why == "revoked")
        file.write_text("not [ toml")
        with pytest.raises(SettingError, match="credentials"):
            monitor.reload()
        source.close()


# Samples


def test_a_sample_function_gives_each_update() -> None:
    with pair() as (monitor, source), monitor.subscribe("robot") as states:
        calls: list[str] = []

        def sample() -> str:
            calls.append(threading.current_thread().name)
            return str(len(calls))

        source.topic("").sample_with(sample)
        numbers = [int(states.next(GUARD).text()) for _ in range(3)]  # type: ignore[union-attr]
        assert numbers == sorted(numbers) and numbers[2] >= 3
        source.put("put")
        until(lambda: (state := states.next(GUARD)) and state.text() == "put")
        count = len(calls)
        time.sleep(0.1)
        assert len(calls) <= count + 1, "`put` ends it"


@pytest.mark.parametrize(
    ("sample", "why"),
    [
        (lambda: {}["missing"], "KeyError"),
        (lambda: 17, "TypeError"),
        (lambda: "\ud800", "UnicodeEncodeError"),
        (lambda argument: argument, "TypeError"),
        (lambda: sys.exit(3), "SystemExit"),
    ],
    ids=["raises", "wrong type", "surrogate", "argument", "exit"],
)
def test_an_exception_of_the_sample_function_is_an_event(sample: Any, why: str) -> None:
    with pair() as (monitor, source):
        source.topic("").sample_with(sample)
        event = until(lambda: (event := source.events.next(GUARD)) and event.kind == "trouble" and event)
        assert why in event.why
        assert monitor.latest("robot") is None
        source.topic("").sample_with(lambda: "mended")
        assert received(monitor, "robot").text() == "mended"


def test_sample_with_is_refused_for_topics_with_keys() -> None:
    with pair([KEYED]) as (_, source), pytest.raises(PutError, match="keyed"):
        source.topic("map").sample_with(lambda: b"")


def test_the_sample_function_may_use_the_source_but_not_close_it() -> None:
    with pair() as (monitor, source):
        said: list[BaseException | None] = []

        def sample() -> str:
            assert source.rate > 0
            try:
                source.close()
            except Error as error:
                said.append(error)
            return "x"

        source.topic("").sample_with(sample)
        until(lambda: said)
        assert "network thread cannot wait" in str(said[0])
        until(lambda: source.has_ended)


def test_closing_while_the_sample_function_runs_does_not_hang() -> None:
    done = python(
        """
        import threading, time, freshline
        monitor = freshline.Monitor("udp://127.0.0.1:0")
        lock = threading.Lock()
        for how in ["sleeps", "computes", "waits for a lock"] * 5:
            source = freshline.Source(monitor.url, name="robot", law={"law": "fixed", "params": {"rate": "1000/s"}})
            begun = threading.Event()
            def sample():
                begun.set()
                if how == "sleeps":
                    time.sleep(0.02)
                elif how == "computes":
                    sum(range(100_000))
                else:
                    with lock:
                        pass
                return b"x"
            lock.acquire()
            source.topic("").sample_with(sample)
            begun.wait()
            threading.Timer(0.05, lock.release).start()
            source.close()
            lock.acquire()
            lock.release()
        monitor.close()
        print("closed")
        """
    )
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr


# Ends


def test_a_record_that_a_variable_holds_is_not_acknowledged() -> None:
    with pair([EVERY]) as (monitor, source), monitor.subscribe("robot/log") as states:
        source.topic("log").push("one")
        held = states.next(GUARD)
        assert held is not None
        with pytest.raises(UndeliveredError):
            source.finish(0.3)


def test_done_acknowledges_a_record_that_is_still_held() -> None:
    with pair([EVERY]) as (monitor, source), monitor.subscribe("robot/log") as states:
        source.topic("log").push("one")
        held = states.next(GUARD)
        assert held is not None
        held.done()
        held.done()
        assert held.text() == "one"
        report = source.finish(GUARD)
        assert report["topics"][0]["records"]["done"] == 1


def test_an_unread_record_goes_to_the_next_subscription() -> None:
    with pair([EVERY]) as (monitor, source):
        source.topic("log").push("one")
        first = monitor.subscribe("robot/log")
        until(lambda: monitor.sources())
        time.sleep(0.05)
        first.close()
        second = monitor.subscribe("robot/log")
        state = second.next(GUARD)
        assert state is not None and state.text() == "one"


def test_a_subscription_with_1024_unread_records_holds_back_further_ones() -> None:
    count = 3000
    with pair([EVERY]) as (monitor, source):
        unread, read = monitor.subscribe("*"), monitor.subscribe("*")
        pushing = threading.Thread(target=lambda: [source.topic("log").push(str(number)) for number in range(count)])
        pushing.start()
        got = 0
        while (state := read.next(0.5)) is not None:
            got += 1
            del state
        assert 1024 <= got < count
        unread.close()
        while got < count and (state := read.next(GUARD)) is not None:
            got += 1
            del state
        assert got == count
        pushing.join()


def test_finish_waits_for_the_newest_states() -> None:
    with Monitor("udp://127.0.0.1:0") as monitor:
        for number in range(20):
            source = Source(monitor.url, name="robot", topics=["pose"])
            source.topic("pose").put(str(number))
            report = source.finish(GUARD)
            assert report["topics"][0]["delivered"] == 1


def test_finish_without_a_monitor_raises_undelivered_error() -> None:
    source = Source("udp://127.0.0.1:9")
    source.put("x")
    with pytest.raises(UndeliveredError):
        source.finish("100ms")
    assert source.has_ended and source.close() is None


def test_the_end_of_a_with_block_delivers_the_last_state() -> None:
    with Monitor("udp://127.0.0.1:0") as monitor:
        with Source(monitor.url, name="robot") as source:
            source.put("last")
        events = [event.kind for event in iter(lambda: monitor.events.next(1), None) if event]
        assert events == ["opened", "gone"]
        assert monitor.close()["ended"][0]["fresh"] >= 1  # type: ignore[index]


def test_an_exception_ends_a_with_block_without_waiting() -> None:
    began = time.monotonic()
    with pytest.raises(KeyError), Source("udp://127.0.0.1:9") as source:
        source.linger = 30
        source.put("x")
        raise KeyError
    assert time.monotonic() - began < 10


def test_closing_twice_is_harmless_and_use_after_it_raises_closed_error() -> None:
    monitor = Monitor("udp://127.0.0.1:0", topics=["cmd"])
    source = Source(monitor.url, name="robot", topics=["pose", EVERY, KEYED], receive=True)
    pose, states, events = source.topic("pose"), monitor.subscribe("*"), monitor.events
    command = monitor.topic("cmd")
    source_events = source.events
    assert isinstance(source.close(), dict) and source.close() is None
    assert isinstance(monitor.close(), dict) and monitor.close() is None
    assert source.has_ended and monitor.has_ended and not source.is_open
    uses: list[Any] = [
        lambda: source.topic("pose"),
        lambda: source.put("x"),
        lambda: pose.put("x"),
        lambda: pose.sample_with(lambda: b""),
        lambda: command.put("x"),
        lambda: source.age,
        lambda: source.rate,
        lambda: source.subscribe("*"),
        lambda: source.listen("*", print),
        lambda: source.latest("a"),
        lambda: source.finish(1),
        lambda: source.stop(),
        lambda: source.drain(),
        lambda: source.received_events,
        lambda: monitor.subscribe("*"),
        lambda: monitor.latest("a"),
        lambda: monitor.latest_key("a", b"k"),
        lambda: monitor.keys("a"),
        lambda: monitor.sources(),
        lambda: monitor.reload(),
        lambda: monitor.topic("cmd"),
        lambda: monitor.stop(),
    ]
    for use in uses:
        with pytest.raises(ClosedError, match="ended"):
            use()
    assert monitor.url.startswith("udp://127.0.0.1:") and monitor.address[0] == "127.0.0.1"
    assert states.next() is None and states.is_over and list(states) == []
    # Iteration ends. The session may have been opened and closed before.
    assert {event.kind for event in [*events, *source_events]} <= {"opened", "closed", "gone"}
    assert list(events) == [] and list(source_events) == []
    assert source.events.next(1) is None


def test_unknown_topics_are_named_with_those_that_exist() -> None:
    with pair(["pose"]) as (monitor, source):
        with pytest.raises(UnknownTopicError, match=r'"nose".*"pose"'):
            source.topic("nose")
        with pytest.raises(LookupError):
            monitor.topic("cmd")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Source("http://x"), "udp"),
        (lambda: Source("udp://127.0.0.1:9", law="x"), "tenth"),
        (lambda: Source("udp://127.0.0.1:9", law={"law": "fixed", "params": {"rat": 1}}), "rat"),
        (lambda: Source("udp://127.0.0.1:9", law={"law": "nothing"}), "nothing"),
        (lambda: Source("udp://127.0.0.1:9", max_rate=-1), "-1"),
        (lambda: Source("udp://127.0.0.1:9", max_rate=float("nan")), "NaN"),
        (lambda: Source("udp://127.0.0.1:9", max_rate="fast"), "50/s"),
        (lambda: Source("udp://127.0.0.1:9", max_bandwidth="fast"), "fast"),
        (lambda: Source("udp://127.0.0.1:9", keep_alive=0), "keep_alive"),
        (lambda: Source("udp://127.0.0.1:9", max_state=1 << 40), "1099511627776"),
        (lambda: Source("udp://127.0.0.1:9", topics=["a", "a"]), '"a"'),
        (lambda: Source("udp://127.0.0.1:9", token="secret"), "quic"),
        (lambda: Source("quic://127.0.0.1:9", pins=["zz"]), "sha256"),
        (lambda: Source("quic://127.0.0.1:9", ca_file="/nowhere.pem"), "nowhere.pem"),
        (lambda: Source("udp://127.0.0.1:9", scheduler="x"), "freshest"),
        (lambda: Monitor("http://127.0.0.1:0"), "udp"),
        (lambda: Monitor("quic://127.0.0.1:0", credentials_file="/nowhere.toml"), "nowhere.toml"),
        (lambda: TopicParams("x", kind="newest"), "keyed"),
        (lambda: TopicParams("x", weight=0), "weight"),
        (lambda: TopicParams("x", weight=float("nan")), "weight"),
    ],
)
def test_a_bad_setting_raises_setting_error_with_the_text_of_the_library(make: Any, text: str) -> None:
    with pytest.raises(SettingError, match=re.escape(text)):
        make()


def test_an_address_in_use_is_not_a_setting_error() -> None:
    with Monitor("udp://127.0.0.1:0") as monitor:
        port = monitor.address[1]
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        with pytest.raises(Error, match="in use") as caught:
            Monitor(f"udp://127.0.0.1:{port}")
        assert not isinstance(caught.value, SettingError)


def test_all_exceptions_are_errors_of_the_package() -> None:
    for name, base in {
        "SettingError": ValueError,
        "ClosedError": Exception,
        "UndeliveredError": Exception,
        "PutError": ValueError,
        "FullError": PutError,
        "UnknownTopicError": LookupError,
        "ScenarioError": ValueError,
        "CaptureError": ValueError,
        "SweepError": Exception,
    }.items():
        kind = getattr(freshline, name)
        assert issubclass(kind, Error) and issubclass(kind, base), name
        assert kind.__doc__


# Listeners and threads


def test_a_listener_calls_the_function_with_each_state() -> None:
    with pair([EVERY]) as (monitor, source):
        texts: list[str] = []
        listener = monitor.listen("robot/log", lambda state: texts.append(state.text()))
        for number in range(100):
            source.topic("log").push(str(number))
        report = source.finish(GUARD)
        assert report["topics"][0]["records"]["done"] == 100, "the function has read them"
        listener.close()
        assert texts == [str(number) for number in range(100)]


def test_an_exception_of_a_listener_goes_to_the_hook_and_the_next_state_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    seen: list[str] = []

    def callback(state: State) -> None:
        seen.append(state.text())
        raise KeyError(state.text())

    with pair([EVERY]) as (monitor, source):
        with monitor.listen("*", callback) as listener:
            for text in ("one", "two"):
                source.topic("log").push(text)
            until(lambda: len(raised) == 2)
            assert seen == ["one", "two"]
            assert all(one.exc_type is KeyError and one.thread is listener._thread for one in raised)
        # The exceptions, which hold the frames with the states, are in `raised`.
        raised.clear()
        source.finish(GUARD)


def test_a_listener_may_be_closed_by_its_function() -> None:
    with pair([EVERY]) as (monitor, source):
        seen: list[str] = []

        def callback(state: State) -> None:
            seen.append(state.text())
            listener.close()

        ready = threading.Event()
        listener = monitor.listen("*", lambda state: ready.wait(GUARD) and callback(state))
        for text in ("one", "two", "three"):
            source.topic("log").push(text)
        ready.set()
        until(lambda: not listener._thread.is_alive())
        assert seen == ["one"]
        listener.close()


def test_threads_that_iterate_end_when_another_closes() -> None:
    for closed in ("subscription", "monitor"):
        with pair() as (monitor, source):
            states = monitor.subscribe("*")
            events = monitor.events
            readers = [threading.Thread(target=lambda: list(states)) for _ in range(8)]
            if closed == "monitor":
                readers += [threading.Thread(target=lambda: list(events)) for _ in range(4)]
            for reader in readers:
                reader.start()
            source.put("x")
            time.sleep(0.02)
            (states if closed == "subscription" else monitor).close()
            for reader in readers:
                reader.join(GUARD)
                assert not reader.is_alive()


def test_races_of_close_with_every_other_call_end_without_a_hang() -> None:
    done = python(
        """
        import random, threading, freshline
        dice = random.Random(1)
        for turn in range(60):
            monitor = freshline.Monitor("udp://127.0.0.1:0", topics=["cmd"])
            source = freshline.Source(monitor.url, name="r", topics=["a"], receive=True)
            source.topic("a").sample_with(lambda: b"x")
            states, events = monitor.subscribe("*"), source.events
            def use():
                try:
                    for _ in range(50):
                        source.age, source.rate, source.is_open, source.latest("monitor/cmd")
                        monitor.latest("r/a"), monitor.sources(), monitor.topic("cmd").put("x")
                        with monitor.subscribe("*") as mine:
                            mine.next(0.001)
                        events.try_next()
                except freshline.ClosedError:
                    pass
            def close():
                dice.choice([source.close, monitor.close, lambda: source.finish(0.1)])()
            def close_all():
                try:
                    close()
                except freshline.Error:
                    pass
            threads = [threading.Thread(target=use) for _ in range(3)]
            threads += [threading.Thread(target=lambda: list(states)) for _ in range(2)]
            threads += [threading.Thread(target=lambda: list(events))]
            threads += [threading.Timer(dice.random() / 50, close_all) for _ in range(3)]
            for thread in threads: thread.start()
            threads[-1].join(); source.close(); monitor.close()
            for thread in threads: thread.join()
        print("ended")
        """,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_sources_that_are_dropped_end_their_threads() -> None:
    gc.collect()
    before = threads()
    with Monitor("udp://127.0.0.1:0") as monitor:
        for number in range(20):
            Source(monitor.url, name=f"robot-{number}").put("x")
        until(lambda: threads() <= before + 1)
    until(lambda: threads() <= before)


# Signals and the end of the interpreter

WAITING = {
    "a subscription": "monitor.subscribe('*').next()",
    "an iteration": "list(monitor.subscribe('*'))",
    "events": "list(monitor.events)",
    "a source": "list(source.events)",
    "a finish": "source.put('x'); source.finish(1000)",
    "a block": "source.linger = 1000; source.put('x'); source.__exit__(None, None, None)",
    "a listener": "monitor.listen('*', print)._thread.join()",
}


@pytest.mark.parametrize("waiting", WAITING.values(), ids=WAITING.keys())
def test_ctrl_c_interrupts_a_wait(waiting: str) -> None:
    code = f"""
    import freshline
    monitor = freshline.Monitor("udp://127.0.0.1:0")
    source = freshline.Source("udp://127.0.0.1:9", topics=None)
    print("ready")
    {waiting}
    """
    with started(code) as process:
        assert line_of(process) == "ready"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        _, errors = process.communicate(timeout=GUARD)
        assert "KeyboardInterrupt" in errors
        assert time.monotonic() - sent < 3


def test_the_interpreter_exits_with_open_sources_and_monitors() -> None:
    with Monitor("udp://127.0.0.1:0") as monitor:
        done = python(
            """
            import sys, threading, time, freshline
            source = freshline.Source(sys.argv[1], name="robot", topics=["a"], receive=True)
            monitor = freshline.Monitor("udp://127.0.0.1:0")
            busy = freshline.Source(monitor.url, name="busy", law={"law": "fixed", "params": {"rate": "2000/s"}})
            busy.topic("").sample_with(lambda: b"x" * 100)
            for endless in [source.events, monitor.events, monitor.subscribe("*"), monitor.subscribe("*")]:
                threading.Thread(target=lambda it: list(it), args=(endless,), daemon=True).start()
            monitor.listen("*", lambda state: None)
            source.topic("a").put("x")
            while not source.is_open: time.sleep(0.01)
            time.sleep(0.1)
            """,
            monitor.url,
        )
        assert (done.returncode, done.stderr) == (0, "")
        gone = until(lambda: (event := monitor.events.next(GUARD)) and event.kind == "gone" and event)
        assert (gone.source, gone.why) == ("robot", "closed"), "it closed its session"


def test_an_exception_ends_the_interpreter_although_sources_are_open() -> None:
    done = python(
        """
        import freshline
        monitor = freshline.Monitor("udp://127.0.0.1:0")
        source = freshline.Source(monitor.url)
        source.topic("").sample_with(lambda: b"x")
        monitor.listen("*", print)
        raise KeyError("the program's own")
        """
    )
    assert done.returncode == 1 and "the program's own" in done.stderr


@pytest.mark.parametrize("ends", ["sys.exit()", "source.close()", "del source, monitor", "source.finish(1)", "raise KeyError"])
def test_a_child_by_fork_leaves_the_parents_sources_alone(ends: str) -> None:
    done = python(
        f"""
        import os, sys, time, freshline
        monitor = freshline.Monitor("udp://127.0.0.1:0")
        source = freshline.Source(monitor.url, name="robot")
        source.put("before")
        while not monitor.latest("robot"): time.sleep(0.01)
        child = os.fork()
        if child == 0:
            try:
                {ends}
            except (freshline.ClosedError, KeyError):
                pass
            sys.exit(3)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        source.put("after")
        end = time.monotonic() + 10
        while monitor.latest("robot").text() != "after" and time.monotonic() < end: time.sleep(0.01)
        print(status in (0, 3), monitor.latest("robot").text(), source.has_ended, monitor.has_ended)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True after False False\n", "")


# The interpreter's lock


def iterations(seconds: float) -> int:
    """The number of iterations of a loop in Python that this thread makes meanwhile."""
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        count += 1
    return count


def test_a_thread_that_waits_does_not_slow_down_others() -> None:
    with pair() as (monitor, source):
        ratios = []
        for _ in range(5):
            alone = iterations(0.1)
            states = [monitor.subscribe("*") for _ in range(4)]
            readers = [threading.Thread(target=lambda one: list(one), args=(one,)) for one in states]
            for reader in readers:
                reader.start()
            ratios.append(iterations(0.1) / alone)
            for one, reader in zip(states, readers, strict=True):
                one.close()
                reader.join(GUARD)
        assert max(ratios) > 0.8, ratios


def test_the_network_goes_on_while_python_holds_the_lock() -> None:
    code = """
    import sys, time, freshline
    source = freshline.Source(sys.argv[1], name="robot", law={"law": "fixed", "params": {"rate": "100/s"}})
    for number in range(1000):
        source.put(str(number))
        if number % 50 == 49:
            print(source.age)
        time.sleep(0.004)
    """
    with Monitor("udp://127.0.0.1:0") as monitor, started(code, monitor.url) as process:
        line_of(process)
        ages = []
        for _ in range(5):
            # One call that never releases the lock, for some 0.2 s.
            sum(range(10_000_000))
            ages.append(float(line_of(process)))
        # The source is acknowledged meanwhile: otherwise its age would be that of the whole computation.
        assert min(ages) < 0.2, ages


def test_the_package_has_a_version() -> None:
    done = python("import freshline, sys; print(freshline.__version__, len(freshline.__all__))")
    assert done.returncode == 0 and re.match(r"\d+\.\d+\.\d+ \d+", done.stdout)


def test_the_interpreter_exits_while_a_function_for_samples_runs() -> None:
    for _ in range(3):
        done = python(
            """
            import time, freshline
            monitor = freshline.Monitor("udp://127.0.0.1:0")
            source = freshline.Source(monitor.url, name="robot", topics=["pose"])
            def sample():
                time.sleep(0.002)
                return b"x"
            source.topic("pose").sample_with(sample)
            time.sleep(0.2)
            """
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_state_older_than_the_clock_can_show_is_refused() -> None:
    with pair() as (_, source), pytest.raises(PutError, match="at most a year"):
        source.put(b"x", age=2 * 365 * 86_400)


def test_topics_as_text_are_refused() -> None:
    with pytest.raises(SettingError, match=r"topics=\[\"pose\"\]"):
        Source("udp://127.0.0.1:9", topics="pose")


def test_only_arrays_that_put_numpy_sent_are_read_as_such() -> None:
    numpy = pytest.importorskip("numpy")
    import io

    zipped, pickled = io.BytesIO(), io.BytesIO()
    numpy.savez(zipped, numpy.arange(3))
    numpy.save(pickled, numpy.array([object()]), allow_pickle=True)
    whole = io.BytesIO()
    numpy.save(whole, numpy.arange(100.0))
    payloads = [b"", b"x", zipped.getvalue(), pickled.getvalue(), whole.getvalue() + b"x", whole.getvalue()[:-1]]
    with pair() as (monitor, source):
        states = monitor.subscribe("*")
        for payload in payloads:
            source.put(payload)
            state = states.next(GUARD)
            assert state is not None and state.payload == payload
            with pytest.raises(ValueError, match="no array that put_numpy sent"):
                state.numpy()


def test_an_array_that_is_read_shares_the_states_memory() -> None:
    numpy = pytest.importorskip("numpy")
    with pair() as (monitor, source):
        states = monitor.subscribe("*")
        sent = numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3))
        source.topic("").put_numpy(sent)
        state = states.next(GUARD)
        assert state is not None
        read = state.numpy()
        assert read.flags["F_CONTIGUOUS"] and not read.flags["WRITEABLE"]
        assert (read == sent).all()
        assert numpy.shares_memory(read, numpy.frombuffer(state, "u1"))


def test_finish_and_linger_take_every_kind_of_time() -> None:
    with pair() as (_, source):
        source.put(b"x")
        source.finish(datetime.timedelta(seconds=GUARD))
    with pair() as (_, source):
        source.linger = "2s"
        with source:
            source.put(b"x")


def test_an_error_can_be_raised_while_the_interpreter_exits() -> None:
    done = python(
        """
        import freshline
        class Robot:
            def __init__(self):
                self.source = freshline.Source("udp://127.0.0.1:9", topics=["pose"])
                self.source.close()
            def __del__(self):
                for call in (lambda: self.source.topic("pose"), lambda: self.source.finish(0.1)):
                    try:
                        call()
                    except freshline.ClosedError:
                        print("closed")
        robot = Robot()
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\nclosed\n", "")


def test_addresses_of_objects_are_not_sent() -> None:
    numpy = pytest.importorskip("numpy")
    with pair() as (_, source):
        for array in (numpy.array(["secret"], dtype=object), numpy.zeros(2, dtype=[("a", "f8"), ("b", "O")])):
            with pytest.raises(TypeError, match="addresses of memory"):
                source.put(array)


def test_a_child_by_fork_is_told_that_the_source_is_not_its_own() -> None:
    done = python(
        """
        import os, freshline
        monitor = freshline.Monitor("udp://127.0.0.1:0")
        source = freshline.Source(monitor.url, topics=["pose"])
        pose = source.topic("pose")
        if os.fork() == 0:
            for call in (monitor.sources, monitor.reload, lambda: pose.put(b"x"), lambda: source.put(b"x")):
                try:
                    call()
                except freshline.ClosedError as error:
                    print("parent process" in str(error), flush=True)
            os._exit(0)
        os.wait()
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n" * 4, "")


def test_a_function_for_samples_can_be_called() -> None:
    with pair() as (_, source), pytest.raises(TypeError, match="needs a function"):
        source.topic("").sample_with(b"x")
