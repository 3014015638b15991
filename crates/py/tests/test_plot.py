"""Figures: the contents of the axes, in numbers that can be checked by hand."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

np = pytest.importorskip("numpy")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

from freshline import plot  # noqa: E402

# Four deliveries, of which the third is out of order: the age is 1 s after the first, rises to 2.5 s, falls to 0.5 s,
# and rises to 2.0 s at 4.0 s, where it falls to 1.0 s.
AGES: dict[str, list[Any]] = {
    "flow": ["robot"] * 4,
    "number": [0] * 4,
    "topic": [""] * 4,
    "received_s": [1.0, 2.5, 3.0, 4.0],
    "generated_s": [0.0, 2.0, 1.0, 3.0],
}
# Two keys in one topic, with deliveries in turn, and a topic without keys.
KEYED: dict[str, list[Any]] = {
    "flow": ["robot"] * 5,
    "number": [0] * 5,
    "topic": ["sensor"] * 4 + ["pose"],
    "key": [0, 1, 0, 1, None],
    "received_s": [1.0, 2.0, 3.0, 4.0, 5.0],
    "generated_s": [0.0, 1.0, 2.0, 3.0, 4.0],
}
# The deliveries of AGES, by two equal flows.
EQUAL: dict[str, list[Any]] = {name: [*column, *column] for name, column in AGES.items()}
EQUAL["number"] = [0] * 4 + [1] * 4
TIMES = [1.0, 2.5, 2.5, 4.0, 4.0]
HEIGHTS = [1.0, 2.5, 0.5, 2.0, 1.0]


def arrow(table: dict[str, Any]) -> Any:
    return pytest.importorskip("pyarrow").table(table)


def polars(table: dict[str, Any]) -> Any:
    return pytest.importorskip("polars").DataFrame(table)


def pandas(table: dict[str, Any]) -> Any:
    return pytest.importorskip("pandas").DataFrame(table)


class FakeColumn:
    """A column of `freshline.Table`: a sequence without methods of other libraries."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> Any:
        return self.items[row]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


class FakeTable:
    """`freshline.Table`, as far as figures read it."""

    def __init__(self, table: dict[str, list[Any]]) -> None:
        self.table = table
        self.column_names = list(table)

    def __getitem__(self, name: str) -> FakeColumn:
        return FakeColumn(self.table[name])


@pytest.fixture(params=[dict, FakeTable, arrow, polars, pandas], ids=["dict", "freshline", "arrow", "polars", "pandas"])
def table_of(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], Any]:
    """Makes a table of each library."""
    make: Callable[[dict[str, Any]], Any] = request.param
    return make


@pytest.fixture(autouse=True)
def _no_figure_is_left() -> Iterator[None]:
    before = dict(matplotlib.rcParams)
    yield
    plt.close("all")
    assert dict(matplotlib.rcParams) == before, "a function leaves settings of matplotlib changed"


def data(ax: Axes, line: int = 0) -> tuple[list[float], list[float]]:
    drawn = ax.get_lines()[line]
    return np.asarray(drawn.get_xdata()).tolist(), np.asarray(drawn.get_ydata()).tolist()


def figure_of(ax: Axes) -> Any:
    return ax.figure


def intervals(ax: Axes, number: int = 0) -> Any:
    """Points and intervals of errorbars."""
    return ax.containers[number]


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def legend(ax: Axes) -> list[str]:
    found = ax.get_legend()
    return [text.get_text() for text in found.get_texts()] if found else []


class TestSawtooth:
    def test_the_age_falls_with_fresh_deliveries_alone(self, table_of: Callable[[Any], Any]) -> None:
        ax = plot.sawtooth(table_of(AGES))
        assert len(ax.get_lines()) == 1
        assert data(ax) == (TIMES, HEIGHTS)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("Time (s)", "Age (s)")
        assert ax.get_ylim()[0] == 0
        assert legend(ax) == []

    def test_start_and_end_bound_the_time_and_the_age_grows_on(self) -> None:
        assert data(plot.sawtooth(AGES, start=2.0, end=5.0)) == (
            [2.0, 2.5, 2.5, 4.0, 4.0, 5.0],
            [2.0, 2.5, 0.5, 2.0, 1.0, 2.0],
        )
        assert data(plot.sawtooth(AGES, start=2.5, end=3.0)) == ([2.5, 3.0], [0.5, 1.0])
        assert data(plot.sawtooth(AGES, start=0.0, end=2.0)) == ([1.0, 2.0], [1.0, 2.0])
        with pytest.raises(ValueError, match="nothing is left between 5 s and 4 s; the ages are known from 1 s on"):
            plot.sawtooth(AGES, start=5.0)

    def test_short_ages_are_in_ms_and_the_axis_keeps_its_unit(self) -> None:
        short = {"received_s": [1.0, 1.01], "generated_s": [0.99, 1.0]}
        ax = plot.sawtooth(short, label="short")
        assert ax.get_ylabel() == "Age (ms)"
        assert data(ax)[1] == pytest.approx([10.0, 20.0, 10.0])
        assert plot.sawtooth(AGES, ax=ax) is ax
        assert data(ax, 1)[1] == [1000 * height for height in HEIGHTS]
        assert ax.get_ylim()[1] > 2500
        assert legend(ax) == ["short", "robot"]
        one, two = ax.get_lines()
        assert one.get_color() != two.get_color()

    def test_a_unit_can_be_chosen(self) -> None:
        ax = plot.sawtooth(AGES, unit="ms")
        assert ax.get_ylabel() == "Age (ms)"
        wrong: Any = "h"
        with pytest.raises(ValueError, match="unit is 'h'; give 's', 'ms' or 'us'"):
            plot.sawtooth(AGES, unit=wrong)

    def test_a_native_process_is_drawn_by_its_points(self) -> None:
        points = FakeTable({"time_s": TIMES, "age_s": HEIGHTS})
        ax = plot.sawtooth(SimpleNamespace(sawtooth=lambda: points), end=4.5)
        assert data(ax) == ([*TIMES, 4.5], [*HEIGHTS, 1.5])

    def test_flow_number_and_topic_choose_a_process(self) -> None:
        ages = {
            "flow": ["a", "a", "b", "b"],
            "number": [0, 1, 0, 0],
            "topic": ["", "", "pose", "map"],
            "received_s": [1.0, 2.0, 3.0, 4.0],
            "generated_s": [0.0, 0.0, 0.0, 0.0],
        }
        assert data(plot.sawtooth(ages, flow="a", number=1, end=3.0)) == ([2.0, 3.0], [2.0, 3.0])
        assert data(plot.sawtooth(ages, flow="b", topic="map", end=5.0)) == ([4.0, 5.0], [4.0, 5.0])
        for choice, message in [
            ({}, "the ages are of several flows; give `flow`, one of `a`, `b`"),
            ({"flow": "c"}, "there is no flow `c`; the flows are `a`, `b`"),
            ({"flow": "a", "number": 2}, "number is 2; `a` has the numbers 0 to 1"),
            ({"flow": "b"}, "the ages are of several topics; give `topic`, one of `pose`, `map`"),
            ({"flow": "b", "topic": "x"}, "there is no topic `x`; the topics are `pose`, `map`"),
        ]:
            settings: Any = choice
            with pytest.raises(ValueError, match=message):
                plot.sawtooth(ages, **settings)

    def test_a_keyed_topic_has_an_age_per_key(self, table_of: Callable[[Any], Any]) -> None:
        ages = table_of(KEYED)
        assert data(plot.sawtooth(ages, topic="sensor", key=0)) == ([1.0, 3.0, 3.0], [1.0, 3.0, 1.0])
        ax = plot.sawtooth(ages, topic="sensor", key=1)
        plot.sawtooth(ages, topic="pose", end=6.0, ax=ax)
        assert data(ax) == ([2.0, 4.0, 4.0], [1.0, 3.0, 1.0])
        assert legend(ax) == ["robot/sensor, key 1", "robot/pose"]
        for choice, message in [
            ({"topic": "sensor"}, "the ages are of several keys; give `key`, one of `0`, `1`"),
            ({"topic": "sensor", "key": 2}, "there is no key `2`; the keys are `0`, `1`"),
            ({"topic": "pose", "key": 0}, "there is no key `0`; the keys are none"),
        ]:
            settings: Any = choice
            with pytest.raises(ValueError, match=message):
                plot.sawtooth(ages, **settings)
        alone = {name: column[:1] + column[2:3] for name, column in KEYED.items()}
        assert data(plot.sawtooth(alone)) == ([1.0, 3.0, 3.0], [1.0, 3.0, 1.0])

    def test_a_missing_key_is_no_key(self, table_of: Callable[[Any], Any]) -> None:
        assert data(plot.sawtooth(table_of({**AGES, "key": [None] * 4}))) == (TIMES, HEIGHTS)

    def test_the_label_has_the_number_of_several_equal_flows(self) -> None:
        ax = plot.sawtooth(EQUAL)
        plot.sawtooth(EQUAL, number=1, ax=ax)
        assert legend(ax) == ["robot, number 0", "robot, number 1"]

    def test_a_table_without_the_columns_is_refused(self, table_of: Callable[[Any], Any]) -> None:
        with pytest.raises(ValueError, match="no column `received_s`; its columns are `time_s`"):
            plot.sawtooth(table_of({"time_s": [1.0]}))
        with pytest.raises(ValueError, match="int is not a table; give a freshline.Table"):
            plot.sawtooth(3)
        with pytest.raises(ValueError, match="there is no delivery"):
            plot.sawtooth({"received_s": [], "generated_s": []})


class TestCdf:
    def test_it_is_weighted_by_time(self) -> None:
        # From 1 s to 4 s: ages 1.0 to 2.5 s and 0.5 to 2.0 s, each 1.5 s long.
        points, fraction = data(plot.age_cdf(AGES))
        assert points == [0.5, 1.0, 2.0, 2.5]
        assert fraction == pytest.approx([0.0, 0.5 / 3, 2.5 / 3, 1.0])

    def test_it_agrees_with_a_count_of_times(self) -> None:
        draws = np.random.default_rng(7)
        generated = np.cumsum(draws.exponential(0.1, 300))
        ages = {"received_s": generated + draws.exponential(0.2, 300), "generated_s": generated}
        times, heights = map(np.asarray, data(plot.sawtooth(ages, start=5.0, end=20.0, unit="s")))
        points, fraction = data(plot.age_cdf(ages, start=5.0, end=20.0, unit="s"))
        at = np.linspace(5.0, 20.0, 200_001)[1:-1]
        index = np.searchsorted(times, at, side="right") - 1
        age = heights[index] + at - times[index]
        for probability in (0.1, 0.5, 0.9, 0.99):
            quantile = np.interp(probability, fraction, points)
            assert (age <= quantile).mean() == pytest.approx(probability, abs=1e-3)

    def test_a_mapping_has_a_line_per_label(self) -> None:
        ax = plot.age_cdf({"one": AGES, "two": arrow(AGES)})
        assert legend(ax) == ["one", "two"]
        assert data(ax, 0) == data(ax, 1)
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("Age (s)", "P(age ≤ x)")
        one, two = ax.get_lines()
        assert one.get_color() != two.get_color()
        assert one.get_linestyle() != two.get_linestyle()

    def test_a_table_has_a_line_per_flow_and_topic(self) -> None:
        rows = 2 * len(AGES["flow"])
        ages = {name: [*column, *column] for name, column in AGES.items()}
        ages["flow"] = ["a"] * (rows // 2) + ["b"] * (rows // 2)
        ages["topic"] = [""] * (rows // 2) + ["pose"] * (rows // 2)
        assert legend(plot.age_cdf(ages)) == ["a", "b/pose"]
        assert len(plot.age_cdf(ages, flow="a").get_lines()) == 1

    def test_a_table_has_a_line_per_number_and_key(self) -> None:
        assert legend(plot.age_cdf(EQUAL)) == ["robot, number 0", "robot, number 1"]
        assert len(plot.age_cdf(EQUAL, number=1).get_lines()) == 1
        ax = plot.age_cdf(KEYED, end=6.0)
        assert legend(ax) == ["robot/sensor, key 0", "robot/sensor, key 1", "robot/pose"]
        # Key 0: from 1 s to 3 s ages 1 to 3 s, from 3 s to 6 s ages 1 to 4 s.
        assert data(ax, 0)[0] == [1.0, 1.0, 3.0, 4.0]
        assert data(ax, 0)[1] == pytest.approx([0.0, 0.0, 0.8, 1.0])
        assert len(plot.age_cdf(KEYED, topic="sensor").get_lines()) == 2
        assert len(plot.age_cdf(KEYED, topic="sensor", key=1).get_lines()) == 1
        labelled = plot.age_cdf({"one": AGES, "two": EQUAL})
        assert legend(labelled) == ["one", "two, robot, number 0", "two, robot, number 1"]
        with pytest.raises(ValueError, match="there is no key `7`; the keys are `0`, `1`"):
            plot.age_cdf(KEYED, key=7)
        with pytest.raises(ValueError, match="number is 7; the table has the numbers 0 to 1"):
            plot.age_cdf(EQUAL, number=7)

    def test_axes_can_be_logarithmic_and_show_the_tail(self) -> None:
        ax = plot.age_cdf(AGES, log=True)
        assert ax.get_xscale() == "log"
        points, fraction = data(ax)
        assert np.interp(1.5, points, fraction) == pytest.approx(0.5, abs=1e-9)
        tail = plot.age_cdf(AGES, complementary=True)
        assert (tail.get_yscale(), tail.get_ylabel()) == ("log", "P(age > x)")
        assert data(tail)[1][:3] == pytest.approx([1.0, 2.5 / 3, 0.5 / 3])

    def test_a_long_run_is_drawn_by_some_of_its_points(self) -> None:
        generated = np.arange(100_000) * 0.01
        ages = {"received_s": generated + 0.02 + 0.001 * (np.arange(100_000) % 7), "generated_s": generated}
        points, fraction = data(plot.age_cdf(ages))
        assert len(points) == 10_000
        assert (fraction[0], fraction[-1]) == pytest.approx((0, 1))

    def test_no_ages_and_no_time_are_refused(self) -> None:
        with pytest.raises(ValueError, match="there are no ages; give a table, or a dict"):
            plot.age_cdf({})
        with pytest.raises(ValueError, match="nothing is left between 1 s and 1 s"):
            plot.age_cdf({"received_s": [1.0], "generated_s": [0.0]})


class Queue:
    """`freshline.Queues`, with an age that is easy to check: 1 s over the spare capacity."""

    capacity = 1000.0

    def mean_age(self, rate: float) -> float | None:
        return None if rate >= self.capacity else 1 / (self.capacity - rate)


def swept(rates: list[Any], ages: list[float], **others: list[Any]) -> dict[str, list[Any]]:
    count = len(rates)
    return {
        **others,
        "flow.source.updates.rate": rates,
        "of": ["source"] * count,
        "name": ["age_mean"] * count,
        "value": ages,
        "unit": ["s"] * count,
        "ci95": [0.001] * count,
    }


class TestRate:
    def test_points_have_intervals_and_rates_rise(self, table_of: Callable[[Any], Any]) -> None:
        ax = plot.age_over_rate(table_of(swept(["700/s", "300/s", "500/s"], [0.02, 0.03, 0.01])))
        assert len(ax.containers) == 1
        points = intervals(ax).lines[0]
        assert np.asarray(points.get_xdata()).tolist() == [300, 500, 700]
        assert np.asarray(points.get_ydata()).tolist() == pytest.approx([30, 10, 20])
        segments = intervals(ax).lines[2][0].get_segments()
        assert np.asarray(segments[1]).tolist() == pytest.approx(np.asarray([[500, 9], [500, 11]]))
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("Update rate (1/s)", "Mean age (ms)")

    def test_theory_and_the_lower_bound_are_lines(self) -> None:
        ax = plot.age_over_rate(
            swept(["200/s", "600/s"], [0.002, 0.003]),
            theory={"queue": Queue(), "twice": lambda rate: 2 / (1000 - rate)},
            lower_bound=0.001,
        )
        lines = {str(line.get_label()): line for line in ax.get_lines()}
        rates, ages = np.asarray(lines["queue"].get_xdata()), np.asarray(lines["queue"].get_ydata())
        assert (rates[0], rates[-1]) == (200, 600)
        assert ages == pytest.approx(1000 / (1000 - rates))
        assert np.asarray(lines["twice"].get_ydata()) == pytest.approx(2 * ages)
        assert np.asarray(lines["lower bound"].get_ydata()).tolist() == pytest.approx([1, 1])
        assert legend(ax) == ["source", "queue", "twice", "lower bound"]
        assert intervals(ax).lines[0].get_linestyle() == "None"

    def test_theory_alone_goes_up_to_the_capacity(self) -> None:
        ax = plot.age_over_rate(theory={"queue": Queue()}, log=True)
        rates = np.asarray(ax.get_lines()[0].get_xdata())
        assert (rates[0], rates[-1]) == pytest.approx((20, 980))
        assert ax.get_xscale() == "log"

    def test_other_swept_keys_make_lines(self) -> None:
        table = swept(["1mbit", "2mbit"] * 2, [0.1, 0.2, 0.3, 0.4], law=["lazy", "lazy", "tenth", "tenth"])
        ax = plot.age_over_rate(table)
        assert legend(ax) == ["lazy", "tenth"]
        assert np.asarray(intervals(ax, 1).lines[0].get_xdata()).tolist() == [1, 2]
        assert ax.get_xlabel() == "Rate (Mbit/s)"

    def test_a_swept_number_is_named_by_its_key(self) -> None:
        table = swept([1, 2], [0.1, 0.2])
        table["flow.source.count"] = table.pop("flow.source.updates.rate")
        assert plot.age_over_rate(table).get_xlabel() == "flow.source.count"

    def test_what_cannot_be_drawn_is_refused(self) -> None:
        table = swept(["300/s", "many"], [0.1, 0.2])
        for settings, message in [
            ({"metrics": table}, "`flow.source.updates.rate` is 'many', which is not a rate"),
            ({"metrics": table, "rate": "law"}, "`law` is not swept; the swept keys are `flow.source.updates.rate`"),
            ({"metrics": table, "flow": "x"}, "there is no flow or link `x`; the table has `source`"),
            ({"metrics": table, "metric": "rtt"}, "there is no metric `rtt`; the metrics are `age_mean`"),
            ({"metrics": swept(["1/s", "1mbit"], [1, 1])}, "have different units"),
            ({"metrics": swept(["1mbit"], [1]), "theory": {"q": Queue()}}, "theory is the mean age in s over updates"),
            ({}, "there are no rates to draw"),
        ]:
            given: Any = settings
            with pytest.raises(ValueError, match=message):
                plot.age_over_rate(**given)


SERIES: dict[str, dict[str, list[Any]]] = {
    "link-a": {"time_s": [0.1, 0.2], "queue_packets": [3, 4], "reverse_queue_packets": [1, 0]},
    "link-b": {"time_s": [0.1, 0.2], "queue_packets": [5, 6], "reverse_queue_packets": [0, 0]},
    "flow-robot": {
        "time_s": [0.1, 0.1, 0.2, 0.2],
        "number": [0, 1, 0, 1],
        "age_s": [0.01, 0.02, None, 0.04],
        "goodput_bps": [1e6, 2e6, 3e6, 4e6],
        "place": ["wireless"] * 4,
    },
}


class TestSeries:
    def test_each_link_is_a_line(self, table_of: Callable[[Any], Any]) -> None:
        ax = plot.queues({name: table_of(table) for name, table in SERIES.items()})
        assert [data(ax, 0), data(ax, 1)] == [([0.1, 0.2], [3, 4]), ([0.1, 0.2], [5, 6])]
        assert legend(ax) == ["a", "b"]
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("Time (s)", "Queue length (packets)")
        assert ax.get_ylim()[0] == 0

    def test_links_and_directions_are_chosen(self) -> None:
        ax = plot.queues(SERIES, links=["a"], reverse=True)
        assert legend(ax) == ["a", "a, reverse"]
        there, back = ax.get_lines()
        assert np.asarray(back.get_ydata()).tolist() == [1, 0]
        assert there.get_color() == back.get_color()
        assert there.get_linestyle() != back.get_linestyle()
        assert len(plot.queues(SERIES["link-b"]).get_lines()) == 1
        with pytest.raises(ValueError, match="there is no link `c`; the links are `a`, `b`"):
            plot.queues(SERIES, links=["c"])
        with pytest.raises(ValueError, match="there is no link; draw the series of a scenario with wired links"):
            plot.queues({"flow-robot": SERIES["flow-robot"]})

    def test_a_column_is_a_line_per_flow_in_its_unit(self, table_of: Callable[[Any], Any]) -> None:
        ax = plot.series(table_of(SERIES["flow-robot"]), "age_s")
        assert legend(ax) == ["number 0", "number 1"]
        assert ax.get_ylabel() == "Age (ms)"
        assert data(ax, 1)[1] == pytest.approx([20, 40])
        assert np.isnan(data(ax, 0)[1][1]), "an unknown value is a gap"

    def test_number_time_and_label_are_chosen(self) -> None:
        ax = plot.series(SERIES["flow-robot"], "goodput_bps", number=1, start=0.15, label="robot")
        assert data(ax) == ([0.2], [4.0])
        assert ax.get_ylabel() == "Goodput (Mbit/s)"
        assert ax.get_lines()[0].get_label() == "robot"
        for settings, message in [
            ({"column": "age_s", "number": 7}, "there is no number 7; the numbers are `0`, `1`"),
            ({"column": "age"}, "no column `age`; its columns are `time_s`, `number`, `age_s`"),
            ({"column": "place"}, "the column `place` does not have numbers"),
            ({"column": "age_s", "start": 9.0}, "no value is between 9 s and inf s; the series is from 0.1 s to 0.2 s"),
        ]:
            given: Any = settings
            with pytest.raises(ValueError, match=message):
                plot.series(SERIES["flow-robot"], **given)

    def test_two_quantities_do_not_share_an_axis(self) -> None:
        ax = plot.queues(SERIES)
        with pytest.raises(ValueError, match="the y axis is in packets, not in s; draw on other axes"):
            plot.series(SERIES["flow-robot"], "age_s", ax=ax)

    def test_shared_axes_have_one_unit(self) -> None:
        _, (one, two) = plt.subplots(2, sharey=True)
        plot.sawtooth(AGES, ax=one)
        plot.series(SERIES["flow-robot"], "age_s", ax=two)
        assert two.get_ylabel() == "Age (s)"


def law(value: float, half: float = float("nan"), unit: str = "s") -> dict[str, list[Any]]:
    return {"of": ["source"], "name": ["age_mean"], "value": [value], "unit": [unit], "ci95": [half]}


class TestLaws:
    def test_laws_are_sorted_with_their_intervals_and_numbers(self, table_of: Callable[[Any], Any]) -> None:
        laws = {"lazy": law(0.04, 0.002), "none": law(float("nan")), "tenth": law(0.02, 0.001)}
        ax = plot.compare_laws({name: table_of(table) for name, table in laws.items()})
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["tenth", "lazy", "none"]
        points = intervals(ax).lines[0]
        assert np.asarray(points.get_xdata())[:2].tolist() == pytest.approx([20, 40])
        assert np.asarray(points.get_ydata()).tolist() == [0, 1, 2]
        segments = intervals(ax).lines[2][0].get_segments()
        assert np.asarray(segments[1]).tolist() == pytest.approx(np.asarray([[38, 1], [42, 1]]))
        assert texts(ax) == ["20 ± 1 ms", "40 ± 2 ms", "unknown"]
        assert ax.get_xlabel() == "Mean age (ms)"
        bottom, top = ax.get_ylim()
        assert bottom > top, "the first law is at the top"

    def test_the_order_can_be_kept(self) -> None:
        ax = plot.compare_laws({"lazy": law(0.04), "tenth": law(0.02)}, sort=False)
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["lazy", "tenth"]

    def test_a_swept_law_is_compared(self) -> None:
        table = swept(["tenth", "lazy"], [0.2, 0.1])
        ax = plot.compare_laws(table)
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["lazy", "tenth"]
        with pytest.raises(ValueError, match="the metrics of `a` have 2 points of a sweep"):
            plot.compare_laws({"a": table})

    def test_units_must_agree_and_flows_be_clear(self) -> None:
        with pytest.raises(ValueError, match="`age_mean` is in `packets`, `s`; compare metrics in one unit"):
            plot.compare_laws({"a": law(1), "b": law(1, unit="packets")})
        with pytest.raises(ValueError, match="there is no law"):
            plot.compare_laws({})
        two = {name: [*column, *column] for name, column in law(1).items()} | {"of": ["x", "y"]}
        with pytest.raises(ValueError, match="several flows have the metric `age_mean`; give `flow`, one of `x`, `y`"):
            plot.compare_laws({"a": two})
        assert texts(plot.compare_laws({"a": two}, flow="y")) == ["1.00 s"]


NAN = float("nan")
COMPARED: dict[str, list[Any]] = {
    "kind": ["number", "number", "number", "trend", "number", "number"],
    "what": ["mean age", "gain", "goodput", "a bowl", "retries", "far off"],
    "source": ["paper", "paper", "paper", "ours", "ours", "model"],
    "unit": ["s", "1", "bit/s", "1", "1", "s"],
    "expected": [0.1, 1.4, NAN, NAN, NAN, 0.5],
    "ours": [0.11, 1.3, 2e6, NAN, 0.3, 50.0],
    "ci95": [0.01, NAN, 1e5, NAN, NAN, NAN],
    "tolerance": [0.2, 0.5, NAN, NAN, NAN, 0.1],
    "base": [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    "at_least": [NAN, NAN, 1e6, NAN, NAN, NAN],
    "at_most": [NAN] * 6,
    "verdict": ["holds", "undecided", "holds", "broken", "not judged", "broken"],
}


class TestPaper:
    def test_numbers_are_over_those_of_the_paper(self, table_of: Callable[[Any], Any]) -> None:
        ax = plot.paper(table_of(COMPARED))
        labels = [tick.get_text() for tick in ax.get_yticklabels()]
        assert labels == ["mean age", "gain", "goodput", "retries", "far off", "a bowl"]
        marks = {str(line.get_gid()): line for line in ax.get_lines() if line.get_gid()}
        assert np.asarray(marks["verdict-undecided"].get_xdata()).tolist() == pytest.approx([1.3 / 1.4])
        held = [np.asarray(line.get_xdata())[0] for line in ax.get_lines() if line.get_gid() == "verdict-holds"]
        assert held == pytest.approx([1.1, 2.0])
        shown = texts(ax)
        assert [text for text in shown if text in ("paper", "ours")] == ["paper", "ours"]
        assert ["100 ms", "110 ± 10 ms"] == [text for text in shown if "ms" in text]
        assert "≥ 1.00 Mbit/s" in shown
        assert "0.500 s (model)" in shown
        assert "× 100" in shown, "an arrow at the edge"

    def test_the_band_is_the_claim(self) -> None:
        ax = plot.paper({name: column[:2] for name, column in COMPARED.items()})
        flat = [patch for patch in rectangles(ax) if patch.get_height() < 1]
        bands = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in flat]
        # 0.1 ± 20 %, and a gain of 1.4 whose distance from 1 may be off by half.
        assert bands == [pytest.approx((0.8, 1.2)), pytest.approx((1.2 / 1.4, 1.6 / 1.4))]

    def test_broken_rows_stand_out_without_colour(self) -> None:
        ax = plot.paper(COMPARED)
        bold = [tick.get_text() for tick in ax.get_yticklabels() if tick.get_fontweight() == "bold"]
        assert bold == ["far off", "a bowl"]
        (frame,) = figure_of(ax).legends
        handles: list[Any] = frame.legend_handles
        names = [text.get_text() for text in frame.get_texts()]
        assert names == ["holds (2)", "broken (2)", "undecided (1)", "not judged (1)", "paper", "meets the claim"]
        looks = {(handle.get_marker(), handle.get_fillstyle()) for handle in handles[:4]}
        assert len(looks) == 4, "each verdict has a marker of its own"

    def test_verdicts_choose_rows(self) -> None:
        ax = plot.paper(COMPARED, verdicts=["broken"])
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["far off", "a bowl"]
        with pytest.raises(ValueError, match="there is no verdict `wrong`; the verdicts are `holds`, `broken`"):
            plot.paper(COMPARED, verdicts=["wrong"])
        with pytest.raises(ValueError, match="no row is left to draw"):
            plot.paper({name: [] for name in COMPARED})

    def test_the_legend_is_on_given_axes(self) -> None:
        figure, ax = plt.subplots()
        assert plot.paper(COMPARED, ax=ax, title="Figure 1") is ax
        assert (len(figure.legends), len(legend(ax)), ax.get_title()) == (0, 6, "Figure 1")


def rectangles(ax: Axes) -> list[Any]:
    return [patch for patch in ax.patches if hasattr(patch, "get_width")]


class TestStyle:
    def test_sizes_are_those_of_columns(self) -> None:
        assert plot.figsize() == pytest.approx((3.5, 2.17))
        assert plot.figsize("double", 0.5) == pytest.approx((7.16, 3.58))
        wrong: Any = "triple"
        with pytest.raises(ValueError, match="column is 'triple'; give 'single' or 'double'"):
            plot.figsize(wrong)
        with pytest.raises(ValueError, match="ratio is 0; give height over width, above 0"):
            plot.figsize(ratio=0)

    def test_a_function_uses_it_by_itself(self) -> None:
        ax = plot.sawtooth(AGES)
        assert tuple(figure_of(ax).get_size_inches()) == pytest.approx((3.5, 2.17))
        assert not ax.spines["top"].get_visible()

    def test_settings_of_the_user_win(self) -> None:
        with plot.style("double"):
            assert ax_size(plot.sawtooth(AGES)) == pytest.approx((7.16, 7.16 * 0.62))
        with matplotlib.rc_context({"axes.spines.top": True, "font.size": 14, "figure.figsize": (5, 5)}):
            ax = plot.sawtooth(AGES)
        assert ax_size(ax) == pytest.approx((5, 5))

    def test_given_axes_keep_their_frame(self) -> None:
        _, ax = plt.subplots()
        ax.set_ylabel("mine")
        assert plot.sawtooth(AGES, ax=ax) is ax
        assert (ax.get_ylabel(), ax.get_xlabel()) == ("mine", "Time (s)")
        assert ax.spines["top"].get_visible()

    def test_fonts_are_fonts_in_pdf_and_text_in_svg(self, tmp_path: Path) -> None:
        with plot.style():
            figure = figure_of(plot.sawtooth(AGES))
            figure.savefig(tmp_path / "age.pdf")
            figure.savefig(tmp_path / "age.svg")
        pdf = (tmp_path / "age.pdf").read_bytes()
        assert b"/CIDFontType2" in pdf
        assert b"/Type3" not in pdf
        assert "Age (s)</text>" in (tmp_path / "age.svg").read_text()

    def test_colours_and_lines_differ(self) -> None:
        assert len(set(plot.PALETTE)) == len(plot.PALETTE) == 7
        ax = plot.age_cdf({str(number): AGES for number in range(6)})
        looks = {(line.get_color(), str(line.get_linestyle()), str(line.is_dashed())) for line in ax.get_lines()}
        assert len(looks) == 6


def ax_size(ax: Axes) -> tuple[float, float]:
    width, height = figure_of(ax).get_size_inches()
    return float(width), float(height)


def test_without_matplotlib_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "try:\n    import freshline.plot\n"
        "except ImportError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install freshline[plot]" in result.stdout


def test_settings_of_others_survive_a_figure() -> None:
    """Loading a backend turns on `interactive`, in whichever figure is the first: Jupyter needs it afterwards."""
    before = matplotlib.rcParams["interactive"]
    try:
        with plot.style("double"):
            assert plt.rcParams["figure.dpi"] == plot.rc()["figure.dpi"]
            matplotlib.rcParams["interactive"] = not before
        assert matplotlib.rcParams["interactive"] is not before
        assert plt.rcParams["figure.dpi"] == matplotlib.rcParamsDefault["figure.dpi"]
    finally:
        matplotlib.rcParams["interactive"] = before
