"""The programs of the tutorials and how-to guides run: with shorter loops, addresses of the loopback, and replacements
for missing software and hardware."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import GUARD, blocks, line_of, python, run_page, started
from test_docs import REPOSITORY

import freshline
from freshline import lab

real_time = pytest.mark.real_time
TUTORIALS = REPOSITORY / "docs" / "tutorials"
HOW_TO = REPOSITORY / "docs" / "how-to"


def program(page: Path, *, having: str, changes: Mapping[str, str] | None = None) -> str:
    """The block of Python of the page that has this text, with words changed. Each change must apply."""
    code = next(text for _, language, text in blocks(page.read_text()) if language == "python" and having in text)
    for old, new in (changes or {}).items():
        assert old in code, old
        code = code.replace(old, new)
    return code


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def with_modules(folder: Path, modules: Mapping[str, str]) -> Iterator[None]:
    """Programs started inside find these modules, which replace packages that are not installed."""
    for name, text in modules.items():
        file = folder / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        yield


ROBOT = TUTORIALS / "robot-python.md"


@real_time
def test_five_lines_print_the_pose() -> None:
    done = python(program(ROBOT, having="next(timeout=2)"))
    assert done.stdout == "{'x': 1.0, 'y': 2.0}\n", done.stderr


@real_time
def test_the_base_accepts_a_source_with_its_fingerprint() -> None:
    address = f"quic://127.0.0.1:{free_port()}"
    base = program(ROBOT, having="print(monitor.fingerprint)", changes={"quic://0.0.0.0:3774": address})
    with started(base) as process:
        pins = [line_of(process)]
        with freshline.Source(address, name="robot-7", topics=["pose"], pins=pins) as robot:
            robot.topic("pose").put_json({"x": 1.0})
            assert line_of(process).startswith("{'x': 1.0} ")


@real_time
@pytest.mark.parametrize(("having", "topics"), [('topics=["pose"]) as robot:\n    pose =', {"pose"}), ("topics=topics) as robot", {"pose", "battery"})])
def test_the_robot_streams_its_topics(having: str, topics: set[str]) -> None:
    with freshline.Monitor("udp://127.0.0.1:0") as monitor:
        states = monitor.subscribe("robot-7/*")
        done = python(program(ROBOT, having=having, changes={"udp://127.0.0.1:3774": monitor.url, "range(2000)": "range(50)"}))
        assert done.stdout.endswith("poses were replaced before they were sent\n"), done.stderr
        assert {state.topic for state in iter(lambda: states.next(timeout=0.2), None)} == topics


def test_own_laws_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    whole: Callable[..., lab.Result] = lab.run

    def short(scenario: str, set: Mapping[str, Any] | None = None, **others: Any) -> lab.Result:
        return whole(scenario, {"duration": "12s", **(set or {})}, **{**others, "runs": 1})

    monkeypatch.setattr(lab, "run", short)
    run_page(TUTORIALS / "own-law.md")
    printed = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"[1-9][0-9.]* ms", printed[0])
    assert len(printed) == 5 and all(re.fullmatch(r"fresher/\S+ +[0-9.]+ ms, tenth +[0-9.]+ ms", row) for row in printed[1:])


SCENARIO = """
title = "A robot and an upload over one link"
duration = "20s"
[[link]]
name = "uplink"
forward = { rate = "2mbit", delay = "10ms", queue = "20p" }
reverse = { delay = "10ms" }
[[flow]]
name = "robot"
path = ["uplink"]
updates = { law = "lazy", payload = "200B" }
"""


@real_time
def test_the_tests_for_ci_pass(tmp_path: Path) -> None:
    page = HOW_TO / "ci.md"
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "uplink.toml").write_text(SCENARIO)
    code = program(page, having="from freshline import lab") + program(page, having="import freshline\n")
    (tmp_path / "test_fresh.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_fresh.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=3 * GUARD, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_the_bridge_publishes_states_alone(tmp_path: Path) -> None:
    publisher = tmp_path / "mosquitto_pub"
    publisher.write_text('#!/bin/sh\necho "$4 $(cat)" >>"$(dirname "$0")/published"\n')
    publisher.chmod(0o755)
    state = {"age_ms": 1.5, "source": "kitchen", "topic": "sensor", "key": "temperature", "payload": "21.5"}
    lines = [state, {"event": "stale", "source": "kitchen"}, {"source": "door", "payload": "open"}]
    subprocess.run(
        [sys.executable, "-c", program(HOW_TO / "home-assistant.md", having="mosquitto_pub")],
        input="".join(f"{json.dumps(line)}\n" for line in lines),
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        text=True,
        timeout=GUARD,
        check=True,
    )
    assert (tmp_path / "published").read_text() == "freshline/kitchen/sensor/temperature 21.5\nfreshline/door open\n"


MAVUTIL = """
class Message:
    def __init__(self, kind):
        self.kind = kind
    def get_type(self):
        return self.kind
    def get_srcSystem(self):
        return 1
    def get_srcComponent(self):
        return 2
    def get_msgbuf(self):
        return bytearray(self.kind.encode())

class Connection:
    def __init__(self):
        self.kinds = ["ATTITUDE", "COMMAND_LONG"]
    def recv_match(self, blocking):
        import time
        time.sleep(0.05)
        self.kinds.reverse()
        return Message(self.kinds[0])

def mavlink_connection(device, baud):
    assert device.startswith("/dev/tty") and baud > 0
    return Connection()
"""


@real_time
def test_mavlink_arrives_at_the_ground_station(tmp_path: Path) -> None:
    page = HOW_TO / "mavlink-radio.md"
    address = f"127.0.0.1:{free_port()}"
    station = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    station.bind(("127.0.0.1", 0))
    station.settimeout(GUARD)
    changes = {"0.0.0.0:3774": address, "14550": str(station.getsockname()[1]), '"state"': repr(str(tmp_path / "state"))}
    with station, started(program(page, having="out.sendto", changes=changes)) as ground:
        changes = {"ground.example": address, "sha256:…": line_of(ground)}
        vehicle = program(page, having="mavutil", changes=changes)
        with with_modules(tmp_path, {"pymavlink.mavutil": MAVUTIL}), started(vehicle):
            kinds: set[bytes] = set()
            while kinds != {b"ATTITUDE", b"COMMAND_LONG"}:
                kinds.add(station.recv(100))


ROS = {
    "rclpy.__init__": """
from . import node
def init():
    pass
def spin(node):
    import time
    while True:
        for callback in node.callbacks:
            callback("odometry")
        time.sleep(0.05)
""",
    "rclpy.node": """
class Node:
    def __init__(self, name):
        self.callbacks = []
    def create_subscription(self, kind, topic, callback, qos):
        self.callbacks.append(callback)
""",
    "rclpy.qos": "qos_profile_sensor_data = object()",
    "rclpy.serialization": "serialize_message = str.encode",
    "nav_msgs.msg": "class Odometry: pass",
}


@real_time
def test_a_node_of_ros_sends_odometry(tmp_path: Path) -> None:
    with freshline.Monitor("quic://127.0.0.1:0") as monitor:
        states = monitor.subscribe("robot-7/odom")
        changes = {"quic://base.example": monitor.url, "sha256:…": str(monitor.fingerprint)}
        node = program(HOW_TO / "ros2-wifi.md", having="rclpy.spin", changes=changes)
        with with_modules(tmp_path, ROS), started(node):
            state = states.next(timeout=GUARD)
            assert state is not None and state.payload == b"odometry"


def test_every_page_with_programs_is_tested() -> None:
    pages = [page for folder in (TUTORIALS, HOW_TO) for page in folder.glob("*.md")]
    programs = [page.name for page in pages for _, language, _ in blocks(page.read_text()) if language == "python"]
    tested = ["ci.md"] * 2 + ["home-assistant.md"] + ["mavlink-radio.md"] * 2 + ["own-law.md"] * 3 + ["robot-python.md"] * 4 + ["ros2-wifi.md"]
    assert sorted(programs) == tested
