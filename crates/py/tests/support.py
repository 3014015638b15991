"""Helpers that several test files share."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import freshline

GUARD = 20.0
"""Seconds after which a test is considered to hang."""


def python(code: str, *arguments: str, timeout: float = GUARD) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a new interpreter, which must end by itself within `timeout` seconds."""
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@contextmanager
def started(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A new interpreter that runs `code`; it is killed at the end of the block."""
    command = [sys.executable, "-u", "-X", "faulthandler", "-c", textwrap.dedent(code), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line of its standard output."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def until(condition: Callable[[], Any], timeout: float = GUARD) -> Any:
    """Waits until `condition` gives something that is true, and returns that."""
    end = time.monotonic() + timeout
    while not (result := condition()):
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.005)
    return result


@contextmanager
def pair(
    topics: list[str | freshline.TopicParams] | None = None, *, name: str = "robot", **settings: Any
) -> Iterator[tuple[freshline.Monitor, freshline.Source]]:
    """A monitor, and a source that sends to it, on the loopback interface."""
    with freshline.Monitor("udp://127.0.0.1:0") as monitor:
        source = freshline.Source(monitor.url, name=name, topics=topics, **settings)
        try:
            yield monitor, source
        finally:
            source.close()


def blocks(text: str) -> list[tuple[int, str, str]]:
    """Line, language and text of each block of code."""
    found = re.finditer(r"^```([\w,]+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start()) + 2, match[1], match[2]) for match in found]


def run_page(page: Path) -> set[str]:
    """Compiles the Python blocks of a page, runs those without `no_run` in one namespace, and returns all languages."""
    namespace: dict[str, object] = {"__name__": page.stem}
    languages = set()
    for line, language, text in blocks(page.read_text()):
        languages.add(language)
        if language.startswith("python"):
            code = compile("\n" * (line - 1) + text, str(page), "exec", dont_inherit=True)
        if language == "python":
            exec(code, namespace)
    return languages


def descriptors() -> int:
    """The number of open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    """The number of threads of this process, those of the network included."""
    return len(os.listdir("/proc/self/task"))


def command(*arguments: str) -> str:
    """The output of the command `freshline`; the test is skipped without it (FRESHLINE_BIN, or a folder `target`)."""
    repository = Path(__file__).resolve().parents[3]
    target = Path(os.environ.get("CARGO_TARGET_DIR", repository / "target"))
    named = [os.environ["FRESHLINE_BIN"]] if "FRESHLINE_BIN" in os.environ else []
    built = [target / profile / "freshline" for profile in ("release", "debug")]
    found = next((path for path in [*map(Path, named), *built] if path.is_file()), None)
    if found is None:
        pytest.skip("needs the command: set FRESHLINE_BIN, or build it")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, timeout=GUARD, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def one_queue(duration: str) -> str:
    """A scenario of one queue that takes a run of a few ms."""
    return f"""
title = "A queue"
duration = "{duration}"
warm_up = "500ms"

[[link]]
name = "queue"
forward = {{ rate = "8mbit", queue = "1000p" }}
reverse = {{}}

[[flow]]
name = "source"
path = ["queue"]
[flow.updates]
law = "poisson"
rate = "500/s"
payload = "1000B"
overhead = "0B"
"""
