"""Meshes of low-power nodes: IEEE 802.15.4 at 250 kbit/s with 6LoWPAN, and a tree to the border router."""

from dataclasses import dataclass, field
from typing import Literal

from ._part import Part


@dataclass(slots=True, kw_only=True)
class LinkLoss(Part):
    """The loss of a link of a mesh, in both directions."""

    between: list[int]
    """The two nodes."""
    loss: float
    """The fraction of frames and acks that it loses, 0 to 1; with 1 the nodes do not hear each other."""


@dataclass(slots=True, kw_only=True)
class Csma(Part):
    """Parameters of CSMA/CA."""

    backoff: Literal["standard", "cc2420"] | None = None
    """The backoff of the standard, or that of TinyOS's driver of the CC2420. Default: `"standard"`."""
    min_be: int | None = None
    """Minimum backoff exponent. Default: 3."""
    max_be: int | None = None
    """Maximum backoff exponent, up to 8. Default: 5."""
    max_backoffs: int | None = None
    """Maximum number of backoffs after a busy channel; 255 is no limit. Default: 4."""
    max_retries: int | None = None
    """Maximum number of retries of a frame. Default: 3."""
    retry_delay: str | None = None
    """The time before a frame is sent again. Default: 0 s."""
    ack_wait: str | None = None
    """How long a node waits for an ack. Default: that of the standard, 864 µs."""
    second_look: str | None = None
    """The time after which a node checks an idle channel again. Default: no second check."""


@dataclass(slots=True, kw_only=True)
class Mesh(Part):
    """A mesh of low-power nodes."""

    name: str = field(kw_only=False)
    """Its name, for paths and reports."""
    at: list[list[float]]
    """The places of the nodes as [x, y] in m: the border router first, then nodes 1, 2, …; 2 to 2000 places."""
    range: float
    """The distance up to which nodes hear each other, in m."""
    interference_range: float | None = None
    """The distance up to which nodes disturb a reception, in m, at least `range`. Default: `range`."""
    carrier_sense_range: float | None = None
    """The distance up to which a node senses the channel as busy, in m, at least `range`. Default: `range`."""
    capture: float | None = None
    """A frame survives another one whose sender is this many times as far from the receiver, above 1.
    Default: no frame survives."""
    loss: float | None = None
    """The fraction of frames and acks that each link loses to noise, 0 to below 1. Default: 0."""
    losses: list[LinkLoss] = field(default_factory=list)
    """Links with another loss."""
    parents: list[int] | None = None
    """The parents of nodes 1, 2, …. Default: those with the lowest ETX."""
    queue: str | None = None
    """The queue of a node, in packets. Default: 15 packets."""
    queue_frames: int | None = None
    """The queue of a node, in frames. Default: no limit."""
    header: str | None = None
    """The IPv6 header after compression, 2 to 41 bytes. Default: 22 bytes."""
    csma: Csma | None = None
    """Parameters of CSMA/CA. Default: those of the standard."""
