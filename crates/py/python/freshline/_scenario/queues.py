"""The queue in front of a link.

Wherever a queue is given, text works too: a limit such as `"100p"` or `"64kB"` is a drop-tail queue of that length,
and a name such as `"codel"` is a discipline with its defaults. A class sets parameters.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from ._part import Part


@dataclass(slots=True, kw_only=True)
class Fifo(Part):
    """A drop-tail queue."""

    TAG: ClassVar[tuple[str, str]] = ("discipline", "fifo")

    limit: str | None = None
    """Its length in packets or bytes: `"100p"`, `"64kB"`. Default: 1000 packets."""


@dataclass(slots=True, kw_only=True)
class Lifo(Part):
    """A queue that sends the newest packet first."""

    TAG: ClassVar[tuple[str, str]] = ("discipline", "lifo")

    limit: str | None = None
    """Its length in packets or bytes. Default: 1000 packets."""


@dataclass(slots=True, kw_only=True)
class Red(Part):
    """Random early detection."""

    TAG: ClassVar[tuple[str, str]] = ("discipline", "red")

    limit: str | None = None
    """Its length in bytes. Default: 400 kB, from which `min`, `max` and `burst` follow."""
    min: str | None = None
    """The mean queue length in bytes below which no packet is dropped. Default: 33 kB."""
    max: str | None = None
    """The mean queue length in bytes at which `max_probability` is reached. Default: 100 kB."""
    max_probability: float | None = None
    """The probability of a drop at `max`, above 0 and at most 1. Default: 0.02."""
    burst: str | None = None
    """The burst in packets that the queue takes before it drops. Default: 55 packets."""
    average_packet: str | None = None
    """The mean size of a packet. Default: 1000 bytes."""
    bandwidth: str | None = None
    """The rate of the link, for the decay of the mean while the queue is empty. Default: measured."""
    gentle: bool | None = None
    """Let the probability rise from `max` to twice that, in place of a step to 1. Default: False."""
    ecn: bool | None = None
    """Mark packets whose senders take part in ECN. Default: False."""
    hard_drop: bool | None = None
    """Drop packets that would be marked where the probability is 1. Default: False."""


@dataclass(slots=True, kw_only=True)
class Codel(Part):
    """CoDel (RFC 8289)."""

    TAG: ClassVar[tuple[str, str]] = ("discipline", "codel")

    limit: str | None = None
    """Its length in packets or bytes. Default: 1000 packets."""
    target: str | None = None
    """The sojourn time that is acceptable in the long run. Default: 5 ms."""
    interval: str | None = None
    """How long the sojourn time may exceed the target, at least `target`. Default: 100 ms."""
    max_packet: str | None = None
    """A queue of at most this many bytes drops no packet. Default: 1514 bytes."""
    ecn: bool | None = None
    """Mark packets whose senders take part in ECN. Default: False."""


@dataclass(slots=True, kw_only=True)
class Drr(Part):
    """A drop-tail queue for each flow, served by deficit round robin."""

    TAG: ClassVar[tuple[str, str]] = ("discipline", "drr")

    limit: str | None = None
    """The length of the queue of a flow, in packets or bytes. Default: 1000 packets."""
    memory: str | None = None
    """The length of all queues together, in bytes. Default: 32 MiB."""
    packets: str | None = None
    """The length of all queues together, in packets. Default: no limit."""
    queues: int | None = None
    """The number of queues, 1 to 65536. Default: 1024."""
    quantum: str | None = None
    """The bytes that a queue sends in a round, at least 256. Default: 1514 bytes."""


@dataclass(slots=True, kw_only=True)
class FqCodel(Part):
    """FQ-CoDel (RFC 8290)."""

    TAG: ClassVar[tuple[str, str]] = ("discipline", "fq_codel")

    limit: str | None = None
    """The length of all queues together, in packets. Default: 10240 packets."""
    memory: str | None = None
    """The length of all queues together, in bytes. Default: 32 MiB."""
    queues: int | None = None
    """The number of queues, 1 to 65536. Default: 1024."""
    quantum: str | None = None
    """The bytes that a queue sends in a round, at least 256. Default: 1514 bytes."""
    target: str | None = None
    """The sojourn time that is acceptable in the long run. Default: 5 ms."""
    interval: str | None = None
    """How long the sojourn time may exceed the target, at least `target`. Default: 100 ms."""
    max_packet: str | None = None
    """A queue of at most this many bytes drops no packet. Default: 1514 bytes."""
    ecn: bool | None = None
    """Mark packets whose senders take part in ECN. Default: True."""


@dataclass(slots=True, kw_only=True)
class Hold(Part):
    """Lets `Ifil` hold an update if waiting for the next update lowers the age."""

    update_period: str
    """The time from one update to the next, above zero."""
    output_period: str
    """The minimum time from one service to the next: an update's size with headers over the rate of the link."""


@dataclass(slots=True, kw_only=True)
class Ifil(Part):
    """Keeps the newest update of each flow, and serves the flows in turn."""

    TAG: ClassVar[tuple[str, str]] = ("discipline", "ifil")

    limit: str | None = None
    """The maximum number of flows with a queued update, 1 to 262144. Default: 2000 packets."""
    isolate: Literal["host", "flow"] | None = None
    """The units that are served in turn: source hosts, or flows. Default: `"host"`."""
    hold: Hold | None = None
    """When to hold an update. Default: an update leaves as soon as the link is free."""


@dataclass(slots=True, kw_only=True)
class Ifc(Part):
    """Freshness control: updates in a class of their own, which shares the link with the other packets."""

    TAG: ClassVar[tuple[str, str]] = ("discipline", "ifc")

    scheduler: Literal["sdm", "tdm"] | None = None
    """How the two classes share the link: by bytes (`"sdm"`) or by time (`"tdm"`). Default: `"sdm"`."""
    aoi_share: float | None = None
    """The share of the link that the class of updates has while both classes have packets, 0 to 1. Default: 0.5."""
    credit: str | None = None
    """With `"sdm"`: the bytes that a class may send ahead of its share after it was idle. Default: 64 KiB."""
    frame: str | None = None
    """With `"tdm"`: the length of a frame of the scheduler, a time."""
    classifier: str | list[str] | None = None
    """Which packets are updates: rules such as `"dscp=46"` or `"udp force"`."""
    aoi: "str | Queue | None" = None
    """The queue of the updates. Default: `"ifil"`."""
    drop_averse: "str | Queue | None" = None
    """The queue of the other packets. Default: FQ-CoDel with 1000 packets."""


@dataclass(slots=True, kw_only=True)
class Dual(Part):
    """The two transmit queues of a host: an urgent band before a bulk band."""

    TAG: ClassVar[tuple[str, str]] = ("discipline", "dual")

    urgent: "str | Queue | None" = None
    """The queue of the urgent band. Default: a drop-tail queue of 1000 packets."""
    bulk: "str | Queue | None" = None
    """The queue of the bulk band. Default: FQ-CoDel with a target of 100 ms and an interval of 1 s."""
    ring: str | None = None
    """The length of the device's ring below the bands, in packets. Default: 0 packets."""


Queue: TypeAlias = Fifo | Lifo | Red | Codel | Drr | FqCodel | Ifil | Ifc | Dual
"""A queueing discipline with its parameters."""
