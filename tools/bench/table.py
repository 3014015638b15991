"""Prints the table of `make bench`: the results of each program, compared with its baseline and its goal.

    python3 tools/bench/table.py [--only WORD] [--write docs/performance.md]

`rows.toml` has the programs and the patterns that find values in their output. A program that fails, or a pattern
that does not match, is an error: the benchmark is broken. A missed goal is not an error.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAD = "| work | before | now: min, **median**, max | compared with | ratio | goal | |\n|---|---|---|---|---:|---|---|"
MARKS = ("<!-- begin: make bench -->", "<!-- end: make bench -->")


class BenchError(Exception):
    """A broken benchmark."""


@dataclass(frozen=True)
class Goal:
    """A bound for a value, or for its ratio to the baseline."""

    text: str
    is_min: bool
    bound: float
    is_ratio: bool

    @classmethod
    def parse(cls, text: str) -> Goal:
        match = re.fullmatch(r"(<=|>=) ([0-9.]+)( x)?", text)
        if match is None:
            raise BenchError(f"rows.toml: the goal {text!r} is not like `<= 1.5` or `>= 0.9 x`")
        return cls(text, match[1] == ">=", float(match[2]), match[3] is not None)

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.is_min else value <= self.bound


@dataclass
class Row:
    """One line of the table."""

    work: str
    unit: str
    before: str
    ours: re.Pattern[str]
    goal: Goal
    compared: re.Pattern[str] | None
    baseline: str
    values: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)

    @classmethod
    def parse(cls, table: dict[str, str]) -> Row:
        known = {"work", "unit", "before", "ours", "goal", "compared", "with"}
        if unknown := table.keys() - known:
            raise BenchError(f"rows.toml: {table.get('work')}: unknown keys {sorted(unknown)}")
        compared = re.compile(table["compared"], re.MULTILINE) if "compared" in table else None
        goal = Goal.parse(table["goal"])
        if goal.is_ratio and compared is None:
            raise BenchError(f"rows.toml: {table['work']}: a ratio needs `compared`")
        ours = re.compile(table["ours"], re.MULTILINE)
        return cls(table["work"], table["unit"], table.get("before", "–"), ours, goal, compared, table.get("with", "–"))

    def read(self, output: str) -> None:
        """Takes this row's values from the output of one run."""
        self.values += found(self.work, self.ours, output)
        if self.compared is not None:
            self.beside += found(self.work, self.compared, output)

    def line(self) -> str:
        """The row as Markdown."""
        ours = statistics.median(self.values)
        now = f"**{shown(ours)}**"
        if len(self.values) > 1:
            now = f"{shown(min(self.values))}, {now}, {shown(max(self.values))}"
        now = f"{now} {self.unit}".rstrip()
        beside, ratio = self.baseline, "–"
        judged = ours
        if self.beside:
            other = statistics.median(self.beside)
            beside += f": {shown(other)} {self.unit}".rstrip()
            if other == 0:
                raise BenchError(f"{self.work}: the baseline is 0")
            ratio = shown(ours / other)
            judged = ours / other if self.goal.is_ratio else ours
        verdict = "met" if self.goal.holds(judged) else "missed"
        goal = self.goal.text.replace("<=", "≤").replace(">=", "≥").replace(" x", " ×")
        return f"| {self.work} | {self.before} | {now} | {beside} | {ratio} | {goal} | {verdict} |"


def found(work: str, pattern: re.Pattern[str], output: str) -> list[float]:
    values = [float(text.replace(",", "")) for text in pattern.findall(output)]
    if not values:
        raise BenchError(f"{work}: no line matches {pattern.pattern!r} in:\n{output[-2000:]}")
    return values


def shown(value: float) -> str:
    """A number with three digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def run(command: list[str]) -> str:
    """Runs a program to its end; its output."""
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as error:
        raise BenchError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise BenchError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def lines_of(table: dict[str, object]) -> list[str]:
    """Runs one program of rows.toml; its lines."""
    rows = [Row.parse(row) for row in table["row"]]  # type: ignore[attr-defined]
    command, repeats = [str(word) for word in table["run"]], int(table.get("repeats", 3))  # type: ignore[attr-defined,call-overload]
    for _ in range(repeats):
        output = run(command)
        if skipped := re.search(r"^(.*: )?skipped: needs .*$", output, re.MULTILINE):
            return [f"| {row.work} | {row.before} | {skipped[0]} | {row.baseline} | – | {row.goal.text} | |" for row in rows]
        for row in rows:
            row.read(output)
    return [row.line() for row in rows]


def write(path: Path, table: str) -> None:
    """Puts the table between its marks in a page."""
    text = path.read_text()
    begin, end = (text.find(mark) for mark in MARKS)
    if not 0 <= begin < end:
        raise BenchError(f"{path} has no {MARKS[0]} … {MARKS[1]}")
    path.write_text(text[: begin + len(MARKS[0])] + "\n\n" + table + "\n\n" + text[end:])


def main() -> int:
    parser = argparse.ArgumentParser(description="Benchmarks, each compared with its baseline and its goal.")
    parser.add_argument("--only", metavar="WORD", help="only programs with this word in their name")
    parser.add_argument("--write", metavar="PAGE", type=Path, help="put the table into this page")
    arguments = parser.parse_args()
    if arguments.only is not None and arguments.write is not None:
        parser.error("--write needs all rows: leave out --only")
    tables = tomllib.loads((ROOT / "tools/bench/rows.toml").read_text())["command"]
    chosen = [table for table in tables if arguments.only is None or arguments.only in table["name"]]
    print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}\n\n{HEAD}", flush=True)
    lines, failed = [], []
    for table in chosen:
        try:
            for line in lines_of(table):
                lines.append(line)
                print(line, flush=True)
        except BenchError as error:
            failed.append(f"{table['name']}: {error}")
    if arguments.write is not None and any("skipped: needs" in line for line in lines):
        failed.append("the page stays as it is: some rows were not measured")
    elif arguments.write is not None and not failed:
        write(ROOT / arguments.write, "\n".join([HEAD, *lines]))
    if not chosen:
        failed.append(f"no program has {arguments.only!r} in its name")
    for failure in failed:
        print(f"error: {failure}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
