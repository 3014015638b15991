"""Streams: TCP over one path, and over several."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ._part import Part
from .updates import Scheduler

CongestionControl: TypeAlias = (
    Literal["reno", "cubic", "htcp", "westwood", "vegas", "yeah", "dctcp", "bbr", "dtpa"] | str
)
"""The name of a congestion control."""

WindowLaw: TypeAlias = Literal["autotune", "rtac", "drwa"] | str
"""The name of a law of the receive window."""


@dataclass(slots=True, kw_only=True)
class Tcp(Part):
    """A TCP stream with its application; a bulk transfer without end by default."""

    control: CongestionControl
    """The congestion control."""
    ecn: bool | None = None
    """Take part in ECN (RFC 3168); DCTCP always does. Default: False."""
    segment: str | None = None
    """The payload of a full segment. Default: 1448 bytes."""
    gso_max_size: str | None = None
    """Hand packets of several segments to the queue, up to this size: `"64KiB"`. Default: a packet per segment."""
    pacing_shift: int | None = None
    """TCP small queues: limit the host's own queue to the pacing rate over two to the power of this. Default: no
    limit."""
    min_rto_margin: str | None = None
    """The minimum of a retransmission timeout above the round-trip time. Default: 200 ms."""
    min_rto: str | None = None
    """The minimum of a retransmission timeout. Default: 0 s; RFC 6298 has 1 s."""
    repair: Literal["linux", "blip"] | None = None
    """How losses are detected and repaired. Default: `"linux"`."""
    initial_window: str | None = None
    """The initial window in segments. Default: 10 packets."""
    dtpa: Mapping[str, Any] | None = None
    """With `control="dtpa"`: settings that differ from its defaults, `{"law": {"max_window": 8}}`."""
    receiver: WindowLaw | Mapping[str, Any] | None = None
    """The law of the receive window: a name or a table with settings. Default: `"autotune"`."""
    host: Literal["single", "sorpc"] | Mapping[str, Any] | None = None
    """The law of the bands in the host at which the flow begins. Default: `"single"`."""
    receive_buffer: list[str] | None = None
    """The receive buffer at first, and its maximum: `["131072B", "6291456B"]`. Default: Linux's."""
    send_buffer: list[str] | None = None
    """The send buffer at first, and its maximum. Default: Linux's."""
    rate: str | None = None
    """Write blocks at this rate: `"200kbit"`. Default: a bulk transfer."""
    updates: bool | None = None
    """With `rate`: each block is an update, whose age counts from its writing. Default: False."""
    newest: bool | None = None
    """Write an update of `block` bytes as soon as the previous one has left. Default: False."""
    block: str | None = None
    """With `rate` or `newest`: the size of a block. Default: a full segment."""
    file: str | None = None
    """Send this much, and close: `"10MB"`. Default: a bulk transfer."""
    request: str | None = None
    """Send requests of this size, and wait for each response. Default: a bulk transfer."""
    response: str | None = None
    """With `request`: the size of a response."""
    think: str | None = None
    """With `request`: the time from the end of a response to the next request. Default: 0 s."""


@dataclass(slots=True, kw_only=True)
class Page(Part):
    """A web page."""

    objects: int
    """The number of its objects."""
    size: str
    """The size of all objects together."""


@dataclass(slots=True, kw_only=True)
class Video(Part):
    """A video, fetched in segments whose bitrate BOLA chooses."""

    rates: list[str]
    """The available bitrates, rising."""
    length: str
    """How long it plays: whole segments."""
    segment: str
    """The length of a segment."""
    buffer: str
    """The playback buffer, longer than a segment."""
    request: str | None = None
    """The time that a request takes to the server. Default: 0 s."""


@dataclass(slots=True, kw_only=True)
class Multipath(Part):
    """A stream over several paths with its application; a bulk transfer without end by default."""

    paths: list[list[str]]
    """The links of each path, 1 to 8 paths."""
    scheduler: Scheduler | Mapping[str, Any]
    """Which path takes the next segment: a name, or a table with settings."""
    control: CongestionControl
    """The congestion control: that of a TCP stream, of each subflow for itself, or `"lia"` or `"olia"`, which couple
    the subflows."""
    handler: bool | None = None
    """Opportunistic retransmission with penalties, and reinjection after timeouts. Default: True."""
    segment: str | None = None
    """The payload of a full segment. Default: 1428 bytes."""
    pacing_shift: int | None = None
    """TCP small queues: limit each subflow's queue in its device to the pacing rate over two to the power of this.
    Default: no limit."""
    min_rto_margin: str | None = None
    """The minimum of a retransmission timeout above the round-trip time. Default: 200 ms."""
    min_rto: str | None = None
    """The minimum of a retransmission timeout. Default: no minimum."""
    initial_window: str | None = None
    """The initial window of each subflow, in segments. Default: 10 packets."""
    receiver: WindowLaw | Mapping[str, Any] | None = None
    """The law of the receive window over all paths: a name or a table with settings. Default: `"autotune"`."""
    receive_buffer: list[str] | None = None
    """The receive buffer over all paths at first, and its maximum. Default: Linux's."""
    send_buffer: list[str] | None = None
    """The send buffer over all paths at first, and its maximum. Default: Linux's."""
    rate: str | None = None
    """Write blocks at this rate: `"12mbit"`. Default: a bulk transfer."""
    drop: bool | None = None
    """With `rate`: lose a block that the send buffer does not take whole. Default: False."""
    independent: bool | None = None
    """With `rate` and `drop`: a TCP stream per path, each with its own buffers. Default: False."""
    block: str | None = None
    """With `rate` or `pages`: the size of a block. Default: a full segment."""
    file: str | None = None
    """Send this much, and close: `"10MB"`. Default: a bulk transfer."""
    pages: list[Page] = field(default_factory=list)
    """Load these pages in sequence, and close. Needs `rates`."""
    rates: list[str] | None = None
    """With `pages`: the minimum and the maximum of the rate of an object, uniformly drawn."""
    video: Video | None = None
    """Fetch and play this video, and close."""
