"""The other kinds of flows: cross traffic, paced downlinks, and hosts outside of the scenario."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ._part import Part


@dataclass(slots=True, kw_only=True)
class CrossTraffic(Part):
    """Cross traffic."""

    pattern: Literal["constant", "poisson", "on-off"]
    """Constant gaps, a Poisson process, or constant gaps during the on state."""
    rate: str
    """The rate with headers while it sends: `"3mbit"`."""
    size: str
    """The size of each packet with headers: `"1500B"`."""
    on: str | None = None
    """With `"on-off"`: the mean length of the on state."""
    off: str | None = None
    """With `"on-off"`: the mean length of the off state."""


@dataclass(slots=True, kw_only=True)
class Downlink(Part):
    """Paced packets to a station of a cell, which counts packets per frame and reports them."""

    law: Literal["nonlinear", "algorithm2", "linear"] | str | Mapping[str, Any]
    """The law: a name, or a table with settings, `{"law": "fixed", "rate": "200mbit"}`."""
    server: str | None = None
    """Flows of one server share its law. Default: one server per flow of the scenario."""
    report: str | None = None
    """The size of a report with its headers. Default: 84 bytes."""
    jitter: str | None = None
    """Each packet is delayed by up to this, uniformly drawn: `"12us"`. Default: 0 s."""
    counting: Literal["mac", "threshold", "logistic", "svm"] | None = None
    """How the client counts packets per frame: by the timestamps of the network card, or by those of the kernel.
    Default: `"mac"`."""
    stamps: Literal["handset", "loopback"] | Mapping[str, Any] | None = None
    """How the client's kernel takes timestamps: a name, or a table with settings. Default: `"handset"`."""
    locate: bool | None = None
    """Let clients locate the bottleneck. Default: False."""
    guard: bool | None = None
    """Limit rates to values that clients confirm. Default: False."""


@dataclass(slots=True, kw_only=True)
class External(Part):
    """The datagrams of hosts outside of the scenario, such as those of an application under test."""

    paths: list[list[str]] | None = None
    """The links of each of several paths, in place of the flow's `path`; at most 8 paths."""
