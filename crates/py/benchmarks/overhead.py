"""The overhead of Python: for a run of the lab, from `put` to a monitor's callback, of a law, and for reading a table.

    cd crates/py && python benchmarks/overhead.py --law --table --lab "../../target/release/freshline lab" \
        --put "cargo bench -q -p freshline --bench put"

Each figure is a ratio or a difference of two programs that ran in turn on this machine.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import struct
import subprocess
import threading
import time

import freshline

SCENARIO = "wifi-sources"
STATES = 2_000
PAUSE = 0.001


def lab(command: str, repeat: int) -> None:
    """The time of `lab.run` over that of the command."""
    for runs in (8, 64):
        ours, theirs = [], []
        for _ in range(repeat):
            theirs.append(timed([*shlex.split(command), "run", SCENARIO, "--runs", str(runs), "--json"]))
            start = time.perf_counter()
            freshline.lab.run(SCENARIO, runs=runs)
            ours.append(time.perf_counter() - start)
        ratio = statistics.median(ours) / statistics.median(theirs)
        print(
            f"lab.run of {SCENARIO}, {runs} runs: {statistics.median(ours):.3f} s, "
            f"command {statistics.median(theirs):.3f} s, ratio {ratio:.3f}"
        )


def timed(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def put_to_callback() -> tuple[float, float]:
    """Microseconds from `put` to the call of a function, median and 99th percentile."""
    arrived = threading.Event()
    came = 0.0

    def note(state: freshline.State) -> None:
        nonlocal came
        came = time.perf_counter()
        arrived.set()

    spans = []
    law = {"law": "fixed", "params": {"rate": "10000/s"}}
    with freshline.Monitor("udp://127.0.0.1:0") as monitor, monitor.listen("robot", note):
        with freshline.Source(monitor.url, name="robot", law=law) as source:
            source.put(struct.pack(">Q", 0))
            arrived.wait(5.0)
            time.sleep(50 * PAUSE)
            for number in range(1, STATES + 1):
                time.sleep(PAUSE)
                arrived.clear()
                began = time.perf_counter()
                source.put(struct.pack(">Q", number))
                if not arrived.wait(1.0):
                    raise SystemExit("a state did not arrive within 1 s")
                spans.append((came - began) * 1e6)
    spans.sort()
    return spans[len(spans) // 2], spans[len(spans) * 99 // 100]


def put(command: str) -> None:
    out = subprocess.run(shlex.split(command), check=True, capture_output=True, text=True).stdout
    row = next(line for line in out.splitlines() if line.startswith("freshline, by a monitor's subscription"))
    rust = [float(number) for number in row.split()[-2:]]
    ours = put_to_callback()
    for name, here, there in zip(("p50", "p99"), ours, rust, strict=True):
        print(f"put to callback, {name}: {here:.1f} us, in Rust {there:.1f} us, {here - there:+.1f} us")


class Lazy(freshline.lab.Law):
    """One update per smoothed round trip."""

    srtt: float | None = None

    def on_ack(self, now: float, ack: freshline.lab.Ack) -> None:
        self.srtt = ack.rtt if self.srtt is None else 0.8 * self.srtt + 0.2 * ack.rtt
        self.rate = 1 / max(self.srtt, 1e-4)


def law(repeat: int) -> None:
    """The time of runs with a law in Python over that of runs with the lab's own."""
    lazy = {"flow.source.updates.law": "lazy"}
    for count in (1, 12, 48):
        changes = {**lazy, "flow.source.count": count, "duration": "15s"}
        ours = statistics.median(run_time(changes, {"source": Lazy}) for _ in range(repeat))
        theirs = statistics.median(run_time(changes, None) for _ in range(repeat))
        print(f"a law in Python, {count} sources: {ours:.2f} s, the lab's own {theirs:.2f} s, ratio {ours / theirs:.1f}")


def run_time(changes: dict[str, object], laws: dict[str, type[Lazy]] | None) -> float:
    start = time.perf_counter()
    freshline.lab.run(SCENARIO, changes, runs=4, laws=laws)
    return time.perf_counter() - start


def table(repeat: int) -> None:
    """The time in which polars reads a table of 10^6 lines."""
    import polars

    times = [float(number) for number in range(1, 500_002)]
    lines = freshline.AgeProcess(times, [at - 0.5 for at in times]).sawtooth()
    spans = []
    for _ in range(repeat):
        start = time.perf_counter()
        frame = polars.DataFrame(lines)
        spans.append(time.perf_counter() - start)
    print(f"polars reads {len(frame)} lines in {statistics.median(spans) * 1e3:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", help="the command `freshline lab`, built with --release")
    parser.add_argument("--put", help="the benchmark of the crate freshline")
    parser.add_argument("--law", action="store_true", help="compare a law in Python with the lab's own")
    parser.add_argument("--table", action="store_true", help="read a table by polars")
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    if arguments.lab:
        lab(arguments.lab, arguments.repeat)
    if arguments.law:
        law(arguments.repeat)
    if arguments.table:
        table(arguments.repeat)
    if arguments.put:
        put(arguments.put)


if __name__ == "__main__":
    main()
