"""The lab: the laws in virtual time, over simulated links, Wi-Fi cells, meshes and TCP.

    import freshline

    result = freshline.lab.run("wifi-sources", {"flow.source.count": 12}, runs=4)
    print(result.value("age_mean", "source"))

The same scenario, seed and changes give the same numbers, on any machine and any number of threads. With laws of your
own this needs laws without randomness of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from freshline import _scenario, _seeds
from freshline._errors import ScenarioError
from freshline._native import Ack, Prepared, Recording, Table, path_lower_bound, scenario_text, toml_of
from freshline._native import reproduce as _reproduce
from freshline._native import scenarios as _scenarios
from freshline._plain import plain_dict
from freshline._scenario import *
from freshline._sweep.progress import Progress

__all__ = ["Ack", "Law", "Recording", "Result", "reproduce", "run", "scenario_text", "scenarios", *_scenario.__all__]

AnyScenario = str | os.PathLike[str] | Mapping[str, Any] | _scenario.Scenario
"""The name of a scenario, the path of a file, a dictionary, or a `Scenario`."""


class Law:
    """A law of your own, which decides when a source sends its next update.

        class OnePerRoundTrip(freshline.lab.Law):
            def on_ack(self, now, ack):
                self.rate = 1 / max(ack.rtt, 1e-3)     # an ideal link has an RTT of 0

        freshline.lab.run("wifi-sources", laws={"source": OnePerRoundTrip})

    An update leaves a period (1 / `rate`) after the previous one, with the rate at the time when that one left. The
    first one leaves at once; without a rate (None), the next one waits for the first rate. All of these methods are
    optional; times are in s of virtual time:

    - `restart(now)`: a session was opened; forget the path.
    - `on_sent(now, seq)`: an update left.
    - `on_ack(now, ack)`: an `Ack` arrived.
    - `next_update()`: when the next update should leave, in place of the period; None while the law waits.
    - `next_timeout()`: when to call `on_timeout(now)`, or None.

    The lab calls the last two after each of the other calls. Rates are kept between 0.5 and 10,000 updates per second.

    A law must not use randomness of its own, such as `random.random()`: the function that makes it gets no seed, and
    the results would depend on the order of the threads.
    """

    rate: float | None = None
    """Updates per second; None until it is known."""

    if TYPE_CHECKING:
        # The lab checks which methods exist: at run time this class defines none.
        def restart(self, now: float) -> None: ...
        def on_sent(self, now: float, seq: int) -> None: ...
        def on_ack(self, now: float, ack: Ack) -> None: ...
        def on_timeout(self, now: float) -> None: ...
        def next_update(self) -> float | None: ...
        def next_timeout(self) -> float | None: ...


class Result:
    """The measurements of a scenario. Tables have Arrow's PyCapsule interface: `polars.DataFrame(result.metrics)`."""

    metrics: Table
    """Means over the runs: of, name, value, unit, ci95 (half the width of the 95 % interval); swept keys are in front."""
    runs: Table
    """The numbers of each run: seed, run, of, name, value, unit; swept keys are in front."""

    def __init__(
        self,
        prepared: Prepared,
        tables: tuple[Table, Table],
        laws: dict[str, Callable[[], object]] | None,
        every: float | str,
    ) -> None:
        self._prepared = prepared
        self.metrics, self.runs = tables
        self._laws = laws
        self._every = every

    @property
    def title(self) -> str:
        """The scenario's title."""
        return self._prepared.title

    @property
    def points(self) -> list[dict[str, Any]]:
        """The swept keys of each point with their values; one empty dictionary without a sweep."""
        return self._prepared.points

    def value(self, name: str, of: str, **point: object) -> float:
        """A metric's mean, such as `value("age_mean", "robot")`; `point` has values of swept keys.

        Raises LookupError if there is not exactly one, or for a key that is not swept.
        """
        swept = list(self.points[0])
        for key in point:
            if key not in swept:
                keys = f"the swept keys are {', '.join(swept)}" if swept else "the scenario has no sweep"
                raise LookupError(f"{key!r} is not a swept key; {keys}")
        rows = self.metrics.to_dict()
        chosen = [
            value
            for row, value in enumerate(rows["value"])
            if rows["name"][row] == name
            and rows["of"][row] == of
            and all(rows[key][row] == wanted for key, wanted in point.items())
        ]
        if len(chosen) == 1:
            return float(chosen[0])
        known = sorted({f"{one} of {other}" for one, other in zip(rows["name"], rows["of"], strict=True)})
        what = "there are several, one for each point of the sweep" if chosen else f"there are: {', '.join(known)}"
        raise LookupError(f"metric {name!r} of {of!r}: {what}")

    def record(
        self,
        *,
        point: int = 0,
        row: int = 0,
        every: float | str | None = 0.1,
        ages: bool = True,
        packets: bool = True,
    ) -> Recording:
        """Repeats and records one run with its warm-up: series with a line per `every` (None: no series), ages, packets.

        `point` is the index in `points`, and `row` the index of the run at that point.
        """
        seed, run = self._run(row)
        return self._prepared.record(point, seed, run, self._laws, every, ages, packets)

    def capture(self, *carriers: str, point: int = 0, row: int = 0) -> bytes:
        """Repeats one run, and returns a packet capture (pcap) of the packets that leave LINK, LINK/reverse or CELL.

        `freshline.age` measures it, and tcpdump and Wireshark read it; updates are those of a session over udp://.
        """
        if not carriers:
            raise ValueError("name at least one link or cell, such as capture(\"uplink\", \"uplink/reverse\")")
        seed, run = self._run(row)
        return self._prepared.capture(point, seed, run, carriers, self._laws)

    def _run(self, row: int) -> tuple[int, int]:
        runs = list(dict.fromkeys(zip(self.runs["seed"], self.runs["run"], strict=True)))
        if not -len(runs) <= row < len(runs):
            raise IndexError(f"row {row} of {len(runs)} runs; give 0 to {len(runs) - 1}")
        return runs[row]

    @cached_property
    def series(self) -> dict[str, Table]:
        """Time series of the first run of the first point, such as "flow-robot", "link-uplink" and "cell-home"."""
        return self.record(every=self._every, ages=False, packets=False).series

    @cached_property
    def ages(self) -> Table:
        """Each delivery of that run that made a monitor fresher: flow, number, topic, key, received_s, generated_s.

        The first line of each flow and topic is its start, at which its age is 0.
        """
        return self.record(every=None, packets=False).ages

    @cached_property
    def packets(self) -> Table:
        """Each packet of that run that left a hop or arrived over the air: time_s, carrier, flow, number, kind, bytes, delay_s."""
        return self.record(every=None, ages=False).packets

    def __repr__(self) -> str:
        return f"<freshline.lab.Result {self.title!r}, {len(self.points)} points>"


def run(
    scenario: AnyScenario,
    set: Mapping[str, Any] | None = None,
    *,
    runs: int | None = None,
    seed: int | None = None,
    seeds: int | Iterable[int] | None = None,
    laws: Mapping[str, Callable[[], object]] | None = None,
    every: float | str = 0.1,
    threads: int | None = None,
    progress: bool = False,
) -> Result:
    """Runs a scenario in virtual time, at all points of its sweep, on all processors.

    `set` changes keys, such as `{"flow.robot.updates.law": "tenth"}`. There are `runs` independent runs of one `seed`, both
    from the scenario by default, or one run for each of `seeds` (a number N: seeds 1 to N). `laws` replaces the laws of
    flows of updates by your own (`Law`): the function of a flow makes the law of each source in each run. `every` is the
    interval of `Result.series`, such as 0.1 s or "100ms". With `progress`, a bar is shown on standard error.

    The results are the same on any number of threads. With `laws` this holds only for laws without randomness of their
    own, because the functions that make them get no seed.

    Raises ScenarioError for an invalid scenario or change, and ValueError for invalid `seeds` or an invalid `every`.
    """
    _check_interval(every)
    name, text = _resolve(scenario)
    changes = dict(set or {})
    changes |= {key: value for key, value in {"runs": runs, "seed": seed}.items() if value is not None}
    prepared = Prepared(name, text, None, plain_dict(changes))
    chosen = None if seeds is None else _seeds.listed(seeds)
    if chosen is not None and (runs is not None or seed is not None):
        raise ValueError("give either `seeds`, or `runs` and `seed`")
    made = dict(laws) if laws is not None else None
    total = len(prepared.points) * (prepared.runs if chosen is None else len(chosen))
    with Progress(total, shown=progress) as bar:
        tables = prepared.run(chosen, made, threads, bar.update)
    return Result(prepared, tables, made, every)


def _check_interval(every: float | str) -> None:
    """Raises ValueError unless the interval is text or a number above zero."""
    seconds = path_lower_bound([(0.0, every)])      # it parses times as `Prepared.record` does
    if not seconds > 0:
        raise ValueError("`every` is zero; give an interval such as 0.1 s")


def _resolve(scenario: AnyScenario) -> tuple[str, str | None]:
    """Name and text; no text of a file, or of a scenario that comes with the package."""
    if isinstance(scenario, _scenario.Scenario):
        return scenario.title, toml_of(plain_dict(scenario.to_dict()))
    if isinstance(scenario, Mapping):
        return str(scenario.get("title", "scenario")), toml_of(plain_dict(scenario))
    return os.fspath(scenario), None


def reproduce(
    name: str | os.PathLike[str],
    set: Mapping[str, Any] | None = None,
    *,
    null: bool = False,
    full: bool = False,
) -> Table:
    """Runs a scenario that reproduces a figure of a paper: the paper's numbers next to ours, with verdicts.

    With `null`, each new law is replaced by its baseline: a claim that still holds proves nothing. With `full`, runs
    and durations are those of the paper.
    """
    table = _reproduce(os.fspath(name), plain_dict(set or {}), null=null, full=full)
    if not len(table):
        raise ScenarioError(f"{name}: there is no row to compare, as of a contest; `freshline lab reproduce {name}` runs it")
    return table


def scenarios() -> list[dict[str, str | None]]:
    """The scenarios that come with the package: name, title, and the figure of a paper that one reproduces."""
    return [{"name": name, "title": title, "reproduces": figure} for name, title, figure in _scenarios()]
