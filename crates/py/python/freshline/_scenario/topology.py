"""A network of links, for flows between pairs of its nodes."""

from dataclasses import dataclass, field

from ._part import Part
from .links import Hop
from .queues import Queue


@dataclass(slots=True, kw_only=True)
class Topology(Part):
    """A network of links. Flows with `each_pair=True` go between its nodes, over the path with the fewest links."""

    file: str = field(kw_only=False)
    """The file of the graph, relative to the scenario: `"topologies/b4.toml"`."""
    hop: Hop | None = None
    """Each link in both directions; its delay is added to that of the link. Default: an ideal hop."""
    pairs: float
    """The probability of a flow from one node to another, for each ordered pair of nodes, 0 to 1."""
    legacy: str | Queue | None = None
    """The queue of links that have not adopted that of `hop`. Needed with `adoption` below 1."""
    adoption: float | None = None
    """The probability that a link has adopted the queue of `hop`, in both directions, 0 to 1. Default: 1."""
