"""The time of a local sweep of 10,000 short runs on two cores, relative to the ideal: half of the time of one thread.

cd crates/py && python benchmarks/sweep.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import freshline
from freshline import _native

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import one_queue  # noqa: E402

KEY = "flow.source.updates.rate"
RATES = ["100/s", "200/s", "300/s", "400/s"]
SEEDS, PART = 2500, 5


def timed_batch(text: str, seeds: int, threads: int) -> float:
    jobs = [({KEY: rate}, list(range(1, seeds + 1))) for rate in RATES]
    began = time.perf_counter()
    _native.run_batch("queue", text, None, jobs, threads)
    return time.perf_counter() - began


def main() -> None:
    text = one_queue("20s")
    serial = timed_batch(text, SEEDS // PART, 1) * PART
    threads = timed_batch(text, SEEDS, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queue.toml"
        path.write_text(text)
        began = time.perf_counter()
        freshline.sweep(str(path), {KEY: RATES}, SEEDS, directory=Path(folder) / "sweep", cpus=2, progress=False)
        swept = time.perf_counter() - began
    print(f"{SEEDS * len(RATES)} runs: one thread {serial:.1f} s, two threads {threads:.1f} s, sweep {swept:.1f} s")
    print(f"sweep: {serial / 2 / swept:.3f} of ideal on two cores")


if __name__ == "__main__":
    main()
