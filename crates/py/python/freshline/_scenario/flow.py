"""A flow of a scenario, or several equal flows."""

from dataclasses import dataclass, field

from ._part import Part
from .loads import CrossTraffic, Downlink, External
from .streams import Multipath, Tcp
from .updates import Updates


@dataclass(slots=True, kw_only=True)
class Flow(Part):
    """A flow, of one of the kinds `updates`, `tcp`, `multipath`, `downlink`, `cross_traffic` and `external`."""

    name: str = field(kw_only=False)
    """Its name, for reports."""
    count: int | None = None
    """The number of equal flows, at most 10000; 0 leaves the flow out. Default: 1."""
    path: list[str] | None = None
    """The links that it crosses, by name, in order. It may begin or end with a cell, or begin with a mesh."""
    each_hop: bool | None = None
    """One flow on each hop of the path, which crosses that hop alone. Default: False."""
    each_pair: bool | None = None
    """One flow for each pair of nodes that `Topology.pairs` draws, in place of `path`. Default: False."""
    each_node: bool | None = None
    """One flow for each node of the mesh with which the path begins. Default: False."""
    node: int | None = None
    """The node of the mesh with which the path begins."""
    station: str | None = None
    """The station of the cell at which it begins or ends; flows with the same name share one. Default: one station
    per flow."""
    reverse: bool | None = None
    """Send from the end of the path to its beginning. Default: False."""
    start: str | None = None
    """When it begins. Default: 0 s."""
    start_spread: str | None = None
    """Delay the start of each equal flow by up to this, uniformly drawn. Default: 0 s."""
    start_interval: str | None = None
    """Start each equal flow this much later than the previous one. Default: 0 s."""
    stop: str | None = None
    """When it ends. Default: at the end of the run."""
    one_host: bool | None = None
    """Equal flows have one source address, as the connections of one host. Default: False."""
    dscp: int | None = None
    """The DSCP of its packets, 0 to 63. Default: 0."""
    ack_dscp: int | None = None
    """The DSCP of its acks, 0 to 63. Default: `dscp`."""
    updates: Updates | None = None
    """A source that keeps a monitor fresh."""
    tcp: Tcp | None = None
    """A TCP stream."""
    multipath: Multipath | None = None
    """A stream over several paths, which it names itself in place of `path`."""
    downlink: Downlink | None = None
    """A paced downlink to a station of a cell."""
    cross_traffic: CrossTraffic | None = None
    """Cross traffic."""
    external: External | None = None
    """The datagrams of hosts outside of the scenario."""
