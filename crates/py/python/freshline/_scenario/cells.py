"""Wi-Fi cells: an access point, and a station for each flow that begins or ends in the cell."""

from dataclasses import dataclass, field
from typing import Literal

from ._part import Part, key
from .queues import Queue


@dataclass(slots=True, kw_only=True)
class Propagation(Part):
    """How signals fade, and the minimum strength at which a frame is received."""

    power_dbm: float | None = None
    """The transmission power of all stations, in dBm. Default: 16.02."""
    reference_loss_db: float | None = None
    """The path loss at 1 m, in dB. Default: 46.68."""
    exponent: float | None = None
    """The path loss grows by this many tens of dB over ten times the distance, above 0. Default: 3."""
    shadowing_db: float | None = None
    """The standard deviation of log-normal shadowing, in dB, at least 0. Default: 0."""
    per: Literal["place", "frame"] | None = None
    """Draw the shadowing once per pair of stations, or for each frame and receiver. Default: `"place"`."""
    noise_figure_db: float | None = None
    """The noise of the receiver above thermal noise, in dB. Default: 7."""
    capture_db: float | None = None
    """A frame is received if it is this many dB above the colliding frames. Default: 5."""


@dataclass(slots=True, kw_only=True)
class Protection(Part):
    """The frames that reserve the medium before a data frame."""

    exchange: Literal["rts_cts", "cts_to_self"] | None = None
    """RTS and CTS, or the sender's own CTS. Default: `"rts_cts"`."""
    rate: str | None = None
    """Their rate, one of 802.11a's. Default: 6 Mbit/s."""
    above: str | None = None
    """Protect frames longer than this. Default: 0 bytes."""


@dataclass(slots=True, kw_only=True)
class Rules(Part):
    """The rules of contention, each of which can differ from those of DCF and EDCA."""

    countdown: Literal["after_idle_slot", "at_slot_start"]
    """Whether a slot counts once it has passed idle (DCF), or when it begins (EDCA)."""
    eifs: bool
    """Whether stations that heard an unreadable frame defer for EIFS in place of DIFS."""
    recovery: Literal["at_once", "timeout", "timeout_then_aifs"]
    """When a sender whose frame failed contends again."""
    retry_limit: int | None = None
    """The number of attempts after which a frame is dropped, at least 1. Default: no limit."""


@dataclass(slots=True, kw_only=True)
class Place(Part):
    """Where a station is."""

    x_m: float
    """To the east, in m."""
    y_m: float
    """To the north, in m."""


@dataclass(slots=True, kw_only=True)
class Radio(Part):
    """The PHY, the MAC and the channel of a cell."""

    standard: Literal["802.11a", "802.11g", "802.11n", "802.11ac"] | None = None
    """The standard. Default: `"802.11a"`."""
    slot: Literal["short", "long"] | None = None
    """9 µs, or 20 µs, which only 802.11g has. Default: `"short"`."""
    rate: str | None = None
    """`"12mbit"` for 802.11a and g, `"mcs7"` for n and ac, or `"minstrel"`. Default: `"12mbit"`."""
    width: Literal["20MHz", "40MHz", "80MHz"] | None = None
    """The width of the channel; 802.11a and g have 20 MHz only. Default: `"20MHz"`."""
    guard: Literal["long", "short"] | None = None
    """The guard interval; 802.11a and g have the long one only. Default: `"long"`."""
    streams: int | None = None
    """Spatial streams, 1 to 4; 802.11a and g have one only. Default: 1."""
    stations: int | None = None
    """Number of stations, access point included. Default: as many as the flows need."""
    max_mpdus: int | None = None
    """Maximum MPDUs in a frame, 1 (no aggregation) to 64. Default: 64."""
    max_msdus: int | None = None
    """Maximum packets in an MPDU, 1 to 32; 2 makes frames of up to 128 packets. Default: 1."""
    queue: str | Queue | None = None
    """The queue of a station in front of each access category, for each receiver. Default: 500 packets."""
    ap_queue: str | Queue | None = None
    """The same at the access point. Default: `queue`."""
    lifetime: str | None = None
    """The maximum queueing delay in a queue with a limit in packets; older packets are dropped. Default: 500 ms."""
    codel: bool | None = None
    """Let each queue with a limit in packets drop by CoDel with 20 and 100 ms, without aggregation only. Default: False."""
    delivery: Literal["frame", "mpdu"] | None = None
    """The packets of an A-MPDU arrive at the end of the frame, or each at the end of its MPDU. Default: `"frame"`."""
    access: Literal["dcf", "edca"] | None = None
    """Contention without or with access categories. Default: EDCA in 802.11n and ac, DCF in a and g."""
    rules: Rules | None = None
    """The rules of contention. Default: those of `access`."""
    protection: Protection | None = None
    """How frames are protected. Default: not at all."""
    propagation: Propagation | None = None
    """How signals fade. Default: an ideal channel."""
    side_m: float | None = None
    """With `propagation`: the side of the square of the stations, in m; the access point is in the middle."""
    places: list[Place] = field(default_factory=list)
    """With `propagation`, in place of `side_m`: where each station is, the access point first."""


@dataclass(slots=True, kw_only=True)
class Station(Part):
    """A station of a cell that differs from the others."""

    name: str = field(kw_only=False)
    """Its name, as in `Flow.station`."""
    queue: str | Queue | None = None
    """Its queue in front of each access category. Default: that of `Radio`."""


@dataclass(slots=True, kw_only=True)
class CellChange(Part):
    """A time from which on frames of a cell have another mode."""

    at: str | None = None
    """The time since the start of the run. Default: 0 s."""
    station: str | None = None
    """The station whose frames change, in both directions, by the name in `Flow.station`. Default: all stations."""
    rate: str | None = None
    """A fixed rate. Default: that of `Radio`."""
    streams: int | None = None
    """Spatial streams. Default: those of `Radio`."""


@dataclass(slots=True, kw_only=True)
class Cell(Part):
    """A Wi-Fi cell."""

    name: str = field(kw_only=False)
    """Its name, for paths and reports."""
    radio: Radio
    """PHY, MAC and channel."""
    stations: list[Station] = field(default_factory=list, metadata=key("station"))
    """Stations that differ from the others."""
    changes: list[CellChange] = field(default_factory=list, metadata=key("change"))
    """When frames get another mode."""
