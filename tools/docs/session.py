"""Runs the commands of one page, in order, in one folder.

A block that the page asks to save ("Save this as `NAME`") is a file in that folder.

Placeholders in commands:
    sha256:…        the fingerprint that the last server of the page printed
    sha256:99b05f…  the fingerprint that was printed in place of this one
    LAW             a law of sources, acp+d

Servers, and clients that run until they are stopped, run in the background; the next command starts when such a
process has printed a line. It is ended when a later block has a server on the same port, or at the end of the page,
and must then still be running or have exited with code 0.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import commands as commands_of
import markdown
import rules as rules_of
import targets
from commands import Command

SERVERS = re.compile(
    r"\bfreshline (?:monitor|relay|wlan serve|emulate udp|router run|bond server)\b|\bpython3 -m http\.server\b"
)
CLIENTS = re.compile(r"\bfreshline (?:source|wlan receive|bond client)\b")
PORT = re.compile(r"(?:(?:udp|quic)://[\w.*-]+|\d+\.\d+\.\d+\.\d+)(?::(\d+))?")
NEEDS_ROOT = re.compile(
    r"^sudo |\.example\b|example\.org|freshline (?:emulate run|receiver|uplink|mesh|router)\b|\b(?:wlan|wwan|eth|wan)\d"
)
DURATION = re.compile(r"(--duration[ =])(\d+(?:\.\d+)?)(s|min|h)\b")
MAX_DURATION = 2.0
FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
PLACEHOLDER = re.compile(r"sha256:([0-9a-f]*)…")
TIMEOUT = 30.0
# The time limit for a client in the background to reach its server.
GRACE = 1.5


@dataclass
class Outcome:
    line: int
    text: str
    # passed, failed, or not run
    verdict: str
    detail: str = ""
    is_interrupted: bool = False


@dataclass
class Started:
    """A process in the background."""

    command: Command
    process: subprocess.Popen
    log: Path
    began: float
    exit: int
    ports: set[str] = field(default_factory=set)
    is_ended: bool = False

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def last_lines(text: str, count: int = 4) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-count:])


def shortened(text: str) -> str:
    """The command with shortened durations."""

    def cut(found: re.Match[str]) -> str:
        seconds = float(found[2]) * {"s": 1, "min": 60, "h": 3600}[found[3]]
        return f"{found[1]}{min(seconds, MAX_DURATION):g}s"

    return DURATION.sub(cut, text)


def ports(text: str) -> set[str]:
    """The port of a server: the first in its command."""
    return {port or "3774" for port in PORT.findall(text)[:1]}


def has_opened(command: Command, output: str) -> bool:
    """Whether a source has reached its monitor; true for other commands."""
    return "freshline source" not in command.text or "session" in output and " is open" in output


class Session:
    def __init__(self, page: str, root: Path, rules: rules_of.Rules, freshline: Path) -> None:
        self.page, self.root, self.rules = page, root, rules
        self.page_rule = rules.of_page(page)
        self.freshline = freshline
        self.started: list[Started] = []
        self.outcomes: list[Outcome] = []
        self.last_fingerprint: str | None = None
        self.fingerprints: dict[str, str] = {}
        self.folder = self.cwd = Path()

    def run(self, page: markdown.Page) -> list[dict]:
        with tempfile.TemporaryDirectory(prefix="docs-check-") as folder:
            self.folder = Path(folder, "work")
            self.prepare(Path(folder, "bin"))
            try:
                for block in page.blocks:
                    self.run_block(block)
                self.end_all()
            finally:
                for started in self.started:
                    if started.process.poll() is None:
                        os.killpg(started.process.pid, signal.SIGKILL)
                        started.process.wait()
        return [asdict(outcome) for outcome in sorted(self.outcomes, key=lambda outcome: outcome.line)]

    def run_block(self, block: markdown.Block) -> None:
        if block.file:
            (self.folder / block.file).write_text("\n".join(block.lines) + "\n", encoding="utf-8")
            (self.folder / block.file).chmod(0o755)
        for command in commands_of.of_block(block):
            if SERVERS.search(command.text):
                self.end_those_on(ports(command.text), command.block)
            self.outcome(command)

    def prepare(self, programs: Path) -> None:
        self.folder.mkdir()
        self.cwd = self.folder
        programs.mkdir()
        (programs / "freshline").symlink_to(self.freshline)
        shims = dict(self.page_rule.programs)
        if os.geteuid() == 0:
            shims["sudo"] = 'exec "$@"'
        for name, script in shims.items():
            (programs / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            (programs / name).chmod(0o755)
        (self.folder / "scenarios").symlink_to(self.root / "scenarios")
        home = Path.home()
        self.environment = {
            "CARGO_HOME": str(home / ".cargo"),
            "RUSTUP_HOME": str(home / ".rustup"),
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "USER": "root" if os.geteuid() == 0 else os.environ.get("USER", ""),
            "ROOT": str(self.root),
            "NO_COLOR": "1",
        }
        if self.page_rule.prepare and (os.geteuid() == 0 or not self.page_rule.root):
            # No pipe: background processes of the command may outlive it, and would keep the pipe open.
            log = self.folder.parent / "prepare"
            with open(log, "wb") as output:
                code = subprocess.run(
                    ["bash", "-ec", f". {self.root}/tools/docs/prelude.sh\n{self.page_rule.prepare}"], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=subprocess.STDOUT, check=False, timeout=TIMEOUT,
                ).returncode
            self.last_fingerprint = next(iter(FINGERPRINT.findall(log.read_text())), None)
            if code:
                detail = f"the preparation in sessions.toml failed: {last_lines(log.read_text())}"
                self.outcomes.append(Outcome(1, "", "failed", detail))

    def outcome(self, command: Command) -> None:
        if entry := self.rules.reason_not_to_run(self.page, command.text):
            missing = targets.missing(self.root, command.text) if entry.checked else None
            verdict = "failed" if missing else "not run"
            self.outcomes.append(Outcome(command.line, command.text, verdict, missing or entry.reason))
            return
        if reason := self.unavailable(command.text):
            self.outcomes.append(Outcome(command.line, command.text, "not run", reason))
            return
        if job := re.fullmatch(r"kill %(\d+)", command.text):
            self.end(self.started[-int(job[1])], signal.SIGTERM)
            return
        applied = self.rules.of_command(self.page, command.text)
        text = self.filled(shortened(rules_of.changed(command.text, applied)))
        for rule in applied:
            if rule.before:
                subprocess.run(["bash", "-ec", rule.before], cwd=self.folder, env=self.environment, check=True)
        code = next((rule.exit for rule in reversed(applied) if rule.exit), 0)
        where = next((rule.inside for rule in reversed(applied) if rule.inside), None)
        interrupt = next((rule.interrupt for rule in reversed(applied) if rule.interrupt), None)
        if text.startswith("cd ") or " cd " in text:
            text += f"; pwd >{self.folder.parent}/cwd"
        shell = ["ip", "netns", "exec", where] if where else []
        shell += ["bash", "-o", "pipefail", "-c"]
        in_background = text.endswith("&") or bool(SERVERS.search(text))
        in_background |= bool(CLIENTS.search(text)) and "--duration" not in text
        chosen = next((rule.background for rule in reversed(applied) if rule.background is not None), None)
        if chosen if chosen is not None else in_background:
            self.start(command, [*shell, text.rstrip("& ")], code, bool(SERVERS.search(text)))
        else:
            self.wait_for(command, [*shell, text], code, interrupt)

    def unavailable(self, text: str) -> str | None:
        if os.geteuid() != 0 and (self.page_rule.root or NEEDS_ROOT.search(text)):
            return "needs root"
        program = next(word for word in text.removeprefix("sudo ").split() if "=" not in word)
        if program in self.rules.optional and not shutil.which(program, path=self.environment["PATH"]):
            return f"needs {program}"
        return None

    def filled(self, text: str) -> str:
        """The command with its placeholders replaced."""
        text = re.sub(r"\bLAW\b", "acp+d", text)

        def fingerprint(found: re.Match[str]) -> str:
            known = self.fingerprints.get(found[1]) if found[1] else self.last_fingerprint
            return known or self.last_fingerprint or found[0]

        return PLACEHOLDER.sub(fingerprint, text)

    def learn(self, command: Command, output: str) -> None:
        printed = FINGERPRINT.findall(output)
        if printed:
            self.last_fingerprint = printed[-1]
        self.fingerprints.update(zip(PLACEHOLDER.findall(command.shown), printed))

    def log(self) -> Path:
        return self.folder.parent / f"log-{time.monotonic_ns()}"

    def spawn(self, shell: list[str], log: Path) -> subprocess.Popen:
        with open(log, "wb") as output:
            return subprocess.Popen(
                shell, cwd=self.cwd, env=self.environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )

    def wait_for(self, command: Command, shell: list[str], expected: int, interrupt: float | None) -> None:
        log = self.log()
        process = self.spawn(shell, log)
        is_interrupted = False
        try:
            code = process.wait(interrupt or TIMEOUT)
        except subprocess.TimeoutExpired:
            is_interrupted = interrupt is not None
            os.killpg(process.pid, signal.SIGINT if is_interrupted else signal.SIGKILL)
            try:
                code = process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
        output = log.read_text(encoding="utf-8", errors="replace")
        self.learn(command, output)
        is_fine = code == expected or is_interrupted and code in (130, -signal.SIGINT)
        is_fine = is_fine and has_opened(command, output)
        self.record(command, is_fine, code, output, is_interrupted)
        if (moved := self.log().parent / "cwd").exists():
            self.cwd = Path(moved.read_text(encoding="utf-8").strip())

    def record(self, command: Command, is_fine: bool, code: int, output: str, is_interrupted: bool = False) -> None:
        detail = "" if is_fine else f"exit code {code}: {last_lines(output)}"
        verdict = "passed" if is_fine else "failed"
        self.outcomes.append(Outcome(command.line, command.text, verdict, detail, is_interrupted))

    def start(self, command: Command, shell: list[str], expected: int, is_server: bool) -> None:
        log = self.log()
        process = self.spawn(shell, log)
        started = Started(command, process, log, time.monotonic(), expected, ports(command.text) if is_server else set())
        self.started.append(started)
        patience = 5.0 if is_server else 0.3
        while process.poll() is None and time.monotonic() - started.began < patience and not log.stat().st_size:
            time.sleep(0.02)
        time.sleep(0.1)
        self.learn(command, started.output())

    def end_those_on(self, wanted: set[str], block: int) -> None:
        earlier = [it for it in self.started if it.command.block != block and not it.is_ended]
        if any(started.ports & wanted for started in earlier):
            self.rest(earlier)
            for started in reversed(earlier):
                self.end(started)

    def rest(self, those: list[Started]) -> None:
        """Waits until the youngest of them has run for a while."""
        youngest = max((started.began for started in those), default=0.0)
        time.sleep(max(0.0, youngest + GRACE - time.monotonic()))

    def end_all(self) -> None:
        running = [started for started in self.started if not started.is_ended]
        self.rest(running)
        for started in reversed(running):
            self.end(started)

    def end(self, started: Started, how: signal.Signals = signal.SIGINT) -> None:
        started.is_ended = True
        has_limit = "--duration" in started.command.text
        code = started.process.poll()
        if code is None and has_limit:
            try:
                code = started.process.wait(MAX_DURATION + 5)
            except subprocess.TimeoutExpired:
                pass
        is_stopped = code is None
        if is_stopped:
            os.killpg(started.process.pid, how)
            try:
                code = started.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(started.process.pid, signal.SIGKILL)
                started.process.wait()
                code = -signal.SIGKILL
        assert code is not None
        stopped = (0, 128 + how, -how, started.exit) if is_stopped else (started.exit,)
        output = started.output()
        self.record(started.command, code in stopped and has_opened(started.command, output), code, output)
