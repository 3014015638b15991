"""How many sources can share 2 Mbit/s? A sweep over laws, numbers of sources and seeds; call it again to resume.

python lab_sweep.py DIRECTORY [SEEDS]
"""

import sys

import polars as pl

import freshline
from freshline.lab import Hop, Scenario, Updates


def main(directory: str, seeds: int) -> None:
    scenario = (
        Scenario("A crowd on one link", duration="30s", warm_up="10s")
        .link("link", forward=Hop(rate="2mbit", delay="10ms", queue="50p"), reverse=Hop(rate="20mbit", delay="10ms"))
        .flow("source", path=["link"], start_spread="1s", updates=Updates(law="tenth", payload="500B"))
    )
    grid = {"flow.source.updates.law": ["acp+d", "tenth", "lazy"], "flow.source.count": [1, 8, 32]}
    sweep = freshline.sweep(scenario, grid, seeds, directory=directory)
    print(f"{sweep.done} of {sweep.total} runs")
    ages = (
        sweep.polars()
        .filter(pl.col("name") == "age_mean", pl.col("of") == "source")
        .group_by("flow.source.updates.law", "flow.source.count")
        .agg((1e3 * pl.col("value").mean()).round(1).alias("age_ms"))
        .sort("flow.source.updates.law", "flow.source.count")
        .collect()
    )
    for law, count, age in ages.iter_rows():
        print(f"{law:<6} {count:>3} sources: {age:6.1f} ms")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4)
