"""An experiment for the lab, built in Python."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from freshline import _native
from freshline._plain import plain_dict

from ._part import Part, key
from .cells import Cell, CellChange, Radio, Station
from .flow import Flow
from .links import Hop, Link, LinkChange
from .loads import CrossTraffic, Downlink, External
from .meshes import Csma, LinkLoss, Mesh
from .streams import Multipath, Tcp
from .topology import Topology
from .updates import Updates


@dataclass(slots=True, kw_only=True)
class Scenario(Part):
    """An experiment.

    >>> scenario = (
    ...     Scenario("One source over a narrow link", duration="60s", warm_up="10s", runs=4)
    ...     .link("uplink", forward=Hop(rate="6mbit", delay="10ms", queue="100p"))
    ...     .flow("robot", path=["uplink"], updates=Updates(law="tenth", payload="100B"))
    ...     .vary("flow.robot.count", [1, 2, 4])
    ... )
    >>> scenario.to_dict()["link"]
    [{'name': 'uplink', 'forward': {'rate': '6mbit', 'delay': '10ms', 'queue': '100p'}}]
    """

    title: str = field(kw_only=False)
    """The purpose of the scenario, in one line."""
    duration: str
    """The length of a run: `"60s"`."""
    warm_up: str | None = None
    """The time at the start of a run that is not measured. Default: 0 s."""
    runs: int | None = None
    """Independent runs, for confidence intervals, at least 1. Default: 1."""
    seed: int | None = None
    """The seed of all randomness. Default: 1."""
    links: list[Link] = field(default_factory=list, metadata=key("link"))
    """Wired links."""
    topology: Topology | None = None
    """A network of links, for flows between pairs of its nodes."""
    cells: list[Cell] = field(default_factory=list, metadata=key("cell"))
    """Wi-Fi cells."""
    meshes: list[Mesh] = field(default_factory=list, metadata=key("mesh"))
    """Meshes of low-power nodes."""
    flows: list[Flow] = field(default_factory=list, metadata=key("flow"))
    """The flows; a scenario needs at least one."""
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    """Keys such as `"flow.robot.count"` with their values; all combinations are run."""
    reproduce: Mapping[str, Any] | None = None
    """The figure of a paper that it reproduces: the table `[reproduce]` of the file."""
    journey: Mapping[str, Any] | None = None
    """Laws of several stops that can be switched on: the table `[journey]` of the file."""

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Reads the text of a scenario file.

        Raises tomllib.TOMLDecodeError if the text is not TOML, and ScenarioError for an unknown or a missing key.
        """
        return cls.from_dict(tomllib.loads(text))

    def to_toml(self) -> str:
        """The text of a scenario file, for `freshline lab run FILE`."""
        return _native.toml_of(plain_dict(self.to_dict()))

    def link(
        self,
        name: str,
        *,
        forward: Hop,
        reverse: Hop | None = None,
        count: int | None = None,
        changes: Iterable[LinkChange] = (),
    ) -> Self:
        """Adds a `Link` with these fields, and returns the scenario."""
        self.links.append(Link(name, forward=forward, reverse=reverse, count=count, changes=list(changes)))
        return self

    def cell(
        self,
        name: str,
        *,
        radio: Radio,
        stations: Iterable[Station] = (),
        changes: Iterable[CellChange] = (),
    ) -> Self:
        """Adds a `Cell` with these fields, and returns the scenario."""
        self.cells.append(Cell(name, radio=radio, stations=list(stations), changes=list(changes)))
        return self

    def mesh(
        self,
        name: str,
        *,
        at: list[list[float]],
        range: float,
        interference_range: float | None = None,
        carrier_sense_range: float | None = None,
        capture: float | None = None,
        loss: float | None = None,
        losses: Iterable[LinkLoss] = (),
        parents: list[int] | None = None,
        queue: str | None = None,
        queue_frames: int | None = None,
        header: str | None = None,
        csma: Csma | None = None,
    ) -> Self:
        """Adds a `Mesh` with these fields, and returns the scenario."""
        mesh = Mesh(
            name,
            at=at,
            range=range,
            interference_range=interference_range,
            carrier_sense_range=carrier_sense_range,
            capture=capture,
            loss=loss,
            losses=list(losses),
            parents=parents,
            queue=queue,
            queue_frames=queue_frames,
            header=header,
            csma=csma,
        )
        self.meshes.append(mesh)
        return self

    def flow(
        self,
        name: str,
        *,
        path: list[str] | None = None,
        updates: Updates | None = None,
        tcp: Tcp | None = None,
        multipath: Multipath | None = None,
        downlink: Downlink | None = None,
        cross_traffic: CrossTraffic | None = None,
        external: External | None = None,
        count: int | None = None,
        reverse: bool | None = None,
        start: str | None = None,
        start_spread: str | None = None,
        start_interval: str | None = None,
        stop: str | None = None,
        dscp: int | None = None,
        ack_dscp: int | None = None,
        station: str | None = None,
        node: int | None = None,
        each_hop: bool | None = None,
        each_pair: bool | None = None,
        each_node: bool | None = None,
        one_host: bool | None = None,
    ) -> Self:
        """Adds a `Flow` with these fields, and returns the scenario."""
        flow = Flow(
            name,
            count=count,
            path=path,
            each_hop=each_hop,
            each_pair=each_pair,
            each_node=each_node,
            node=node,
            station=station,
            reverse=reverse,
            start=start,
            start_spread=start_spread,
            start_interval=start_interval,
            stop=stop,
            one_host=one_host,
            dscp=dscp,
            ack_dscp=ack_dscp,
            updates=updates,
            tcp=tcp,
            multipath=multipath,
            downlink=downlink,
            cross_traffic=cross_traffic,
            external=external,
        )
        self.flows.append(flow)
        return self

    def vary(self, key: str, values: Iterable[Any]) -> Self:
        """Sweeps a key, such as `"flow.robot.updates.law"`, over these values, and returns the scenario."""
        self.sweep[key] = list(values)
        return self
