"""Scenarios of the lab as dataclasses: the tables and keys of a scenario file, with completion.

`docs/lab.md` describes every key. Times, rates and sizes are text with a unit, as in the file: `"20ms"`, `"5mbit"`,
`"700/s"`, `"100B"`, `"100p"` (packets). A field with None is left out, and the lab's default applies.
"""

from .cells import Cell, CellChange, Place, Propagation, Protection, Radio, Rules, Station
from .flow import Flow
from .links import CellularModel, Hop, HopChange, LeoModel, Link, LinkChange
from .loads import CrossTraffic, Downlink, External
from .meshes import Csma, LinkLoss, Mesh
from .queues import Codel, Drr, Dual, Fifo, FqCodel, Hold, Ifc, Ifil, Lifo, Queue, Red
from .scenario import Scenario
from .streams import CongestionControl, Multipath, Page, Tcp, Video, WindowLaw
from .topology import Topology
from .updates import Scheduler, ScenarioTopic, SizeRange, UpdateLaw, Updates

__all__ = [
    "Cell",
    "CellChange",
    "CellularModel",
    "Codel",
    "CongestionControl",
    "CrossTraffic",
    "Csma",
    "Downlink",
    "Drr",
    "Dual",
    "External",
    "Fifo",
    "Flow",
    "FqCodel",
    "Hold",
    "Hop",
    "HopChange",
    "Ifc",
    "Ifil",
    "LeoModel",
    "Lifo",
    "Link",
    "LinkChange",
    "LinkLoss",
    "Mesh",
    "Multipath",
    "Page",
    "Place",
    "Propagation",
    "Protection",
    "Queue",
    "Radio",
    "Red",
    "Rules",
    "Scenario",
    "ScenarioTopic",
    "Scheduler",
    "SizeRange",
    "Station",
    "Tcp",
    "Topology",
    "UpdateLaw",
    "Updates",
    "Video",
    "WindowLaw",
]
