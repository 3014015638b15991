"""Examples: each runs for a short time and prints the promised output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import freshline
from freshline import lab
from freshline.lab import Hop, Scenario, Updates

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *arguments: str) -> str:
    """Runs an example to its end, and returns its output."""
    package = str(Path(freshline.__file__).parents[1])
    paths = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_every_example_has_a_test() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested


def test_readme() -> None:
    assert re.fullmatch(r"robot-7/pose \{'x': 1\.0, 'y': 2\.0\} (None|\d\S*)\n", run("readme"))


def test_telemetry() -> None:
    pytest.importorskip("numpy", reason="needs numpy")
    *lines, last = run("telemetry", "1.1").splitlines()
    assert 2 <= len(lines) <= 4
    for line in lines:
        assert re.fullmatch(r"x=[+-]\d\.\d\d m, y=[+-]\d\.\d\d m, \d+\.\d ms old, \d+ updates/s permitted", line), line
    assert re.fullmatch(r"\d+ poses were replaced before they were sent", last)


def test_commands_asyncio() -> None:
    printed = run("commands_asyncio", "1")
    assert "base: robot-7 is at {'x': 0." in printed
    assert printed.index("base: falls silent") < printed.index("robot: stops, no base/speed is younger than 0.2 s")


def test_own_law() -> None:
    lines = run("own_law", "2").splitlines()
    found = [re.fullmatch(r"(\S+) +mean age +(\d+) ± \d+ ms", line) for line in lines]
    assert all(found)
    names = [match[1] for match in found if match]
    assert sorted(names) == ["TwoInFlight", "acp+d", "lazy", "tenth"]
    ages = [int(match[2]) for match in found if match]
    assert ages == sorted(ages)


def test_lab_sweep(tmp_path: Path) -> None:
    for module in ["pyarrow", "polars"]:
        pytest.importorskip(module, reason=f"needs {module}")
    first, *lines = run("lab_sweep", str(tmp_path / "sweep"), "1").splitlines()
    assert first == "9 of 9 runs"
    assert len(lines) == 9
    assert re.fullmatch(r"acp\+d +1 sources: +\d+\.\d ms", lines[0])
    # A second call adds the runs of one more seed.
    assert run("lab_sweep", str(tmp_path / "sweep"), "2").splitlines()[0] == "18 of 18 runs"


def test_capture_age(tmp_path: Path) -> None:
    scenario = (
        Scenario("A meter behind a tap", duration="5s")
        .link("host", forward=Hop())
        .link("path", forward=Hop(rate="400kbit", delay="20ms"))
        .flow("meter", path=["host", "path"], updates=Updates(law="tenth", payload="400B"))
    )
    path = tmp_path / "capture.pcap"
    path.write_bytes(lab.run(scenario).capture("host", "host/reverse"))
    first, second = run("capture_age", str(path)).splitlines()
    assert re.fullmatch(r"\d+ packets in [45]\.\d s", first)
    pattern = r"session .*: \d+ updates; age at the source: mean \d+\.\d ms, .*; at the monitor: mean \d+\.\d ms, .*"
    assert re.fullmatch(pattern, second)
