"""Wired links: their hops, changes during a run, and models of traces."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ._part import Part, key
from .queues import Queue


@dataclass(slots=True, kw_only=True)
class CellularModel(Part):
    """Generates a trace of a cellular link, whose rate is a random walk with outages."""

    TAG: ClassVar[tuple[str, str]] = ("model", "cellular")

    seed: int | None = None
    """The seed of all draws. Default: drawn for each run."""
    stream: int | None = None
    """Which of several independent traces of the seed. Default: 0."""
    duration: str | None = None
    """After which time the trace repeats, 1 ms to 24 h. Default: 300 s."""
    mean_rate: str | None = None
    """The mean rate over a long time, above zero; `max_rate` and `noise` are scaled to it. Default: no scaling."""
    max_rate: str | None = None
    """The maximum of the rate, above zero. Default: 12 Mbit/s."""
    noise: str | None = None
    """The standard deviation of the change of the rate over 1 s, above zero. Default: 2.4 Mbit/s."""
    escape_rate: str | None = None
    """The rate at which an outage ends. Default: 1/s."""
    tick: str | None = None
    """The time between two changes of the rate, at least 1 ms. Default: 20 ms."""


@dataclass(slots=True, kw_only=True)
class LeoModel(Part):
    """Generates a trace of a path over satellites in low earth orbit."""

    TAG: ClassVar[tuple[str, str]] = ("model", "leo")

    seed: int | None = None
    """The seed of all draws. Default: drawn for each run."""
    stream: int | None = None
    """Which of several traces over the same satellites, such as one per direction. Default: 0."""
    duration: str | None = None
    """After which time the trace repeats, 1 ms to 24 h. Default: 300 s."""
    mean_rate: str | None = None
    """The mean capacity outside of outages, above zero. Default: 10 Mbit/s."""
    spread: float | None = None
    """The maximum deviation of a slot's capacity, as a fraction of `mean_rate`, 0 to below 1. Default: 0.5."""
    variation: float | None = None
    """The maximum deviation of an interval's capacity, as a fraction of the slot's, 0 to below 1. Default: 0.1."""
    slot: str | None = None
    """The time between two assignments of satellites, at least `interval`. Default: 15 s."""
    phase: str | None = None
    """When the first slot begins, below `slot`. Default: 12 s."""
    altitude: float | None = None
    """The altitude of the satellites in m, 160000 to 2000000. Default: 550000."""
    elevation: float | None = None
    """The minimum elevation of a satellite in degrees, 0 to below 90. Default: 25."""
    ground_min: str | None = None
    """The minimum one-way delay on the ground, at least `wobble`. Default: 8 ms."""
    ground_max: str | None = None
    """The maximum one-way delay on the ground, at least `ground_min`. Default: 18 ms."""
    wobble: str | None = None
    """The maximum delay variation within a slot, in either direction. Default: 0.5 ms."""
    interval: str | None = None
    """How long capacity and delay stay the same within a slot, at least 1 ms. Default: 100 ms."""
    outage_probability: float | None = None
    """The probability that a slot begins with an outage, 0 to 1. Default: 0.5."""
    outage_max: str | None = None
    """The maximum length of an outage, at most `slot`. Default: 280 ms."""


@dataclass(slots=True, kw_only=True)
class HopChange(Part):
    """A time from which on a hop has another rate or delay."""

    at: str
    """The time since the start of the run."""
    rate: str | None = None
    """The rate from then on, above zero. Default: unchanged."""
    delay: str | None = None
    """The delay from then on, at least the jitter. Default: unchanged."""


@dataclass(slots=True, kw_only=True)
class Hop(Part):
    """One direction of a link: a queue, a transmitter and a line. `Hop()` is ideal: no rate limit, no delay."""

    rate: str | None = None
    """The rate of transmission, above zero: `"6mbit"`. Default: infinite."""
    trace: str | CellularModel | LeoModel | None = None
    """A trace in place of a rate: the name of a file in the scenario's folder, or a model."""
    mtu: str | None = None
    """The maximum size of a packet, at least 68 bytes; larger packets are dropped. Default: no limit."""
    framing: str | None = None
    """The bytes of the link layer around each packet: `"ethernet"`, `"overhead 44 mpu 84 atm"`. Default: none."""
    delay: str | None = None
    """The propagation delay: `"10ms"`. Default: 0 s."""
    jitter: str | None = None
    """The delay of each packet is uniform in `delay` ± `jitter`; at most `delay`. Default: 0 s."""
    order: Literal["kept", "free"] | None = None
    """Whether jitter may reorder packets (`"free"`) or not. Default: `"kept"`."""
    loss: float | None = None
    """The probability that a packet is lost after its transmission, 0 to 1. With `to_bad`: in the good state.
    Default: 0."""
    to_bad: float | None = None
    """Loss in bursts: the probability with which a packet turns the good state bad, 0 to 1. Default: no bursts."""
    to_good: float | None = None
    """The probability with which a packet turns the bad state good, above 0 and at most 1. Needed with `to_bad`."""
    bad_loss: float | None = None
    """The probability of loss in the bad state, 0 to 1. Default: 1."""
    queue: str | Queue | None = None
    """The queue in front of the transmitter: a limit (`"100p"`, `"64kB"`), a name (`"codel"`), or a class such as
    `Codel(target="10ms")`. Default: 1000 packets, drop-tail."""
    changes: list[HopChange] = field(default_factory=list, metadata=key("change"))
    """When the hop gets another rate or delay, in ascending order."""


@dataclass(slots=True, kw_only=True)
class LinkChange(Part):
    """A time from which on a link has another rate or delay, in both directions."""

    at: str
    """The time since the start of the run."""
    rate: str | None = None
    """The rate from then on, above zero. Default: unchanged."""
    delay: str | None = None
    """The delay from then on, at least the jitter. Default: unchanged."""


@dataclass(slots=True, kw_only=True)
class Link(Part):
    """A wired link: a hop in each direction, or several links in series."""

    name: str = field(kw_only=False)
    """Its name, for paths and reports."""
    count: int | None = None
    """The number of equal links in series, at most 1000. Default: 1."""
    forward: Hop
    """The hop from the source to the monitor."""
    reverse: Hop | None = None
    """The hop from the monitor to the source. Default: like `forward`."""
    changes: list[LinkChange] = field(default_factory=list, metadata=key("change"))
    """When the link gets another rate or delay, in ascending order."""
