"""The age process of deliveries, as points between which the age grows by 1 s per second."""

from dataclasses import dataclass

import numpy as np

from ._data import Floats, Table, numbers


@dataclass(frozen=True)
class Process:
    """Points of the age over time, in s. A delivery has two at its time: the age before it, and after it."""

    times: Floats
    ages: Floats

    @classmethod
    def of_points(cls, sawtooth: Table) -> "Process":
        """From the table that `AgeProcess.sawtooth` gives."""
        return cls(numbers(sawtooth, "time_s"), numbers(sawtooth, "age_s"))

    @classmethod
    def of_deliveries(cls, received: Floats, generated: Floats) -> "Process":
        """From deliveries in any order. A delivery that does not lower the age is ignored.

        Raises ValueError without a delivery.
        """
        is_known = np.isfinite(received) & np.isfinite(generated)
        order = np.argsort(received[is_known], kind="stable")
        received, generated = received[is_known][order], generated[is_known][order]
        if not len(received):
            raise ValueError("there is no delivery; draw a flow that delivered an update")
        newest = np.concatenate([[-np.inf], np.maximum.accumulate(generated)[:-1]])
        is_fresh = generated > newest
        received, generated = received[is_fresh], generated[is_fresh]
        ages = np.empty(2 * len(received) - 1)
        ages[0::2] = received - generated
        ages[1::2] = received[1:] - generated[:-1]
        return cls(np.repeat(received, 2)[1:], ages)

    def between(self, start: float | None, end: float | None) -> "Process":
        """The process from `start` to `end`, in s; after the last delivery the age grows on.

        It begins with the first delivery at the earliest. Raises ValueError if nothing is left.
        """
        times, ages = self.times, self.ages
        first = times[0] if start is None else max(start, float(times[0]))
        last = float(times[-1]) if end is None else end
        if not first < last:
            raise ValueError(
                f"nothing is left between {first:g} s and {last:g} s; the ages are known from {times[0]:g} s on, "
                "so give another `start` or `end`"
            )
        if start is not None and start > times[0]:
            begin = int(np.searchsorted(times, first, side="right")) - 1
            head = ages[begin] + first - times[begin]
            times = np.concatenate([[first], times[begin + 1 :]])
            ages = np.concatenate([[head], ages[begin + 1 :]])
        if end is not None:
            stop = int(np.searchsorted(times, last, side="left"))
            tail = ages[stop - 1] + last - times[stop - 1]
            times = np.concatenate([times[:stop], [last]])
            ages = np.concatenate([ages[:stop], [tail]])
        return Process(times, ages)

    def cdf(self) -> tuple[Floats, Floats]:
        """Ages in s, and the fraction of time with at most this age, exact and linear between the points.

        Each rise of the age is uniform between its ends.
        """
        spans = np.diff(self.times)
        lows = self.ages[:-1][spans > 0]
        highs = lows + spans[spans > 0]
        ends = np.concatenate([lows, highs])
        steps = np.concatenate([np.ones_like(lows), -np.ones_like(highs)])
        order = np.argsort(ends, kind="stable")
        ends = ends[order]
        rising = np.cumsum(steps[order])[:-1]
        fraction = np.concatenate([[0.0], np.cumsum(rising * np.diff(ends))])
        return ends, fraction / fraction[-1]
