"""Scenarios as dataclasses: writing, reading, and completeness, with every key of the lab."""

import inspect
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from freshline import _scenario
from freshline._errors import ScenarioError
from freshline._scenario import (
    Cell,
    CellChange,
    CellularModel,
    Codel,
    CrossTraffic,
    Dual,
    External,
    Flow,
    FqCodel,
    Hop,
    Ifc,
    Link,
    LinkChange,
    Mesh,
    Radio,
    Scenario,
    ScenarioTopic,
    SizeRange,
    Tcp,
    Topology,
    Updates,
)

REPOSITORY = Path(__file__).resolve().parents[3]
FILES = sorted((REPOSITORY / "scenarios").glob("**/*.toml"))
# Graphs of topologies and files of the path emulator.
OTHERS = {"b4", "internet2", "swan", "lte", "two-slow-one-fast"}


def is_scenario(path: Path) -> bool:
    return "title" in tomllib.loads(path.read_text())


def test_the_files_have_scenarios() -> None:
    others = {path.stem for path in FILES if not is_scenario(path)}
    assert others == OTHERS
    assert len(FILES) - len(others) > 100


@pytest.mark.parametrize("path", [path for path in FILES if is_scenario(path)], ids=lambda path: path.stem)
def test_every_scenario_file_is_read_and_written_back(path: Path) -> None:
    table = tomllib.loads(path.read_text())
    scenario = Scenario.from_dict(table)
    assert scenario.to_dict() == table
    assert Scenario.from_dict(scenario.to_dict()) == scenario
    assert Scenario.from_toml(path.read_text()) == scenario


def test_a_scenario_is_built_in_a_chain() -> None:
    scenario = (
        Scenario("Two sources and a download", duration="60s", warm_up="10s", runs=4)
        .link(
            "uplink",
            forward=Hop(rate="6mbit", delay="10ms", queue=Codel(target="10ms")),
            reverse=Hop(),
            changes=[LinkChange(at="40s", rate="2mbit")],
        )
        .cell("wifi", radio=Radio(standard="802.11n", rate="mcs7"), changes=[CellChange(streams=2)])
        .mesh("office", at=[[0.0, 0.0], [10.0, 0.0]], range=12.0)
        .flow("robot", path=["uplink"], count=2, updates=Updates(law="tenth", payload="100B"))
        .flow("download", path=["uplink"], reverse=True, tcp=Tcp(control="cubic"))
        .flow("others", path=["uplink"], cross_traffic=CrossTraffic(pattern="poisson", rate="3mbit", size="1500B"))
        .flow("arm", path=["uplink"], external=External())
        .vary("flow.robot.count", (1, 2, 4))
    )
    assert scenario.to_dict() == {
        "title": "Two sources and a download",
        "duration": "60s",
        "warm_up": "10s",
        "runs": 4,
        "link": [
            {
                "name": "uplink",
                "forward": {
                    "rate": "6mbit",
                    "delay": "10ms",
                    "queue": {"discipline": "codel", "target": "10ms"},
                },
                "reverse": {},
                "change": [{"at": "40s", "rate": "2mbit"}],
            }
        ],
        "cell": [{"name": "wifi", "radio": {"standard": "802.11n", "rate": "mcs7"}, "change": [{"streams": 2}]}],
        "mesh": [{"name": "office", "at": [[0.0, 0.0], [10.0, 0.0]], "range": 12.0}],
        "flow": [
            {"name": "robot", "count": 2, "path": ["uplink"], "updates": {"law": "tenth", "payload": "100B"}},
            {"name": "download", "path": ["uplink"], "reverse": True, "tcp": {"control": "cubic"}},
            {
                "name": "others",
                "path": ["uplink"],
                "cross_traffic": {"pattern": "poisson", "rate": "3mbit", "size": "1500B"},
            },
            {"name": "arm", "path": ["uplink"], "external": {}},
        ],
        "sweep": {"flow.robot.count": [1, 2, 4]},
    }


def test_topics_are_added_to_updates() -> None:
    updates = (
        Updates(law="tenth", max_age=["robot/cmd=300ms"])
        .topic("cmd", size="100B", period="50ms", weight=10)
        .topic("camera", size=SizeRange(min="20kB", max="50kB"), urgent=True)
    )
    table = updates.to_dict()
    assert table["topic"] == [
        {"name": "cmd", "size": "100B", "period": "50ms", "weight": 10},
        {"name": "camera", "size": {"min": "20kB", "max": "50kB"}, "urgent": True},
    ]
    read = Updates.from_dict(table)
    assert read == updates
    assert read.topics[1] == ScenarioTopic("camera", size=SizeRange(min="20kB", max="50kB"), urgent=True)


def test_an_unset_field_is_left_out_and_an_empty_part_is_kept() -> None:
    assert Hop().to_dict() == {}
    assert Link("a", forward=Hop(), reverse=Hop()).to_dict() == {"name": "a", "forward": {}, "reverse": {}}
    assert "reverse" not in Link("a", forward=Hop()).to_dict()
    assert Flow("a", count=0, each_hop=False).to_dict() == {"name": "a", "count": 0, "each_hop": False}


def test_a_queue_is_text_or_the_class_that_its_discipline_names() -> None:
    table: dict[str, Any] = {
        "discipline": "ifc",
        "aoi": "ifil",
        "drop_averse": {"discipline": "fq_codel", "limit": "1000p"},
    }
    hop = Hop.from_dict({"queue": table})
    assert hop.queue == Ifc(aoi="ifil", drop_averse=FqCodel(limit="1000p"))
    assert hop.to_dict() == {"queue": table}
    assert Hop.from_dict({"queue": "100p"}).queue == "100p"
    assert isinstance(Hop.from_dict({"queue": {"discipline": "dual"}}).queue, Dual)
    model = Hop.from_dict({"trace": {"model": "cellular", "mean_rate": "5mbit"}})
    assert model.trace == CellularModel(mean_rate="5mbit")
    assert Hop.from_dict({"trace": "lte.trace"}).trace == "lte.trace"


def test_tables_in_place_of_parts_are_written_as_they_are() -> None:
    updates: Any = {"law": "lazy", "payload": "9B"}
    assert Flow("a", updates=updates).to_dict() == {"name": "a", "updates": updates}


def test_numbers_of_numpy_are_written_as_numbers_of_python() -> None:
    numpy = pytest.importorskip("numpy")
    table = Flow("a", count=numpy.int64(3)).to_dict() | Hop(loss=numpy.float64(0.5)).to_dict()
    assert (type(table["count"]), type(table["loss"])) == (int, float)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"title": "x"}, "the key `duration` is missing; add it"),
        ({"title": "x", "duration": "1s", "links": []}, "unknown key `links`; did you mean `link`?"),
        (
            {"title": "x", "duration": "1s", "flow": [{"name": "a", "updates": {"law": "x", "payloads": "1B"}}]},
            "flow.a.updates: unknown key `payloads`; did you mean `payload`?",
        ),
        (
            {"title": "x", "duration": "1s", "link": [{"name": "a"}]},
            "link.a: the key `forward` is missing; add it",
        ),
        (
            {"title": "x", "duration": "1s", "link": [{"forward": {}}]},
            "link[0]: the key `name` is missing; add it",
        ),
        (
            {"title": "x", "duration": "1s", "link": [{"name": "a", "forward": {"queue": {"discipline": "cake"}}}]},
            "link.a.forward.queue: `discipline` is 'cake'; write `fifo`, `lifo`, `red`",
        ),
        (
            {"title": "x", "duration": "1s", "link": [{"name": "a", "forward": {"queue": {"limit": "3p"}}}]},
            "link.a.forward.queue: the key `discipline` is missing",
        ),
    ],
)
def test_a_wrong_key_is_refused_with_its_place(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(message)):
        Scenario.from_dict(table)


def test_the_message_lists_the_known_keys() -> None:
    with pytest.raises(ValueError, match=r"The keys are `at`, `rate`, `delay`$"):
        LinkChange.from_dict({"when": "1s"})


def test_a_misspelt_attribute_is_refused() -> None:
    flow: Any = Flow("a")
    with pytest.raises(AttributeError):
        flow.udpates = Updates(law="lazy")


@pytest.mark.parametrize(
    ("method", "part", "omitted"),
    [
        (Scenario.link, Link, set()),
        (Scenario.cell, Cell, set()),
        (Scenario.mesh, Mesh, set()),
        (Scenario.flow, Flow, set()),
        (Updates.topic, ScenarioTopic, set()),
    ],
)
def test_a_chained_method_takes_every_field_of_its_part(method: Any, part: Any, omitted: set[str]) -> None:
    parameters = set(inspect.signature(method).parameters) - {"self"}
    assert parameters == {field.name for field in fields(part)} - omitted


def test_every_part_is_exported_and_explains_itself() -> None:
    for name in _scenario.__all__:
        part = getattr(_scenario, name)
        assert not isinstance(part, type) or part.__doc__, name


# The struct of the lab that each part mirrors, and where it is.
STRUCTS: dict[str, dict[str, Any]] = {
    "lab/src/scenario/mod.rs": {
        "Scenario": Scenario,
        "LinkConfig": Link,
        "LinkChange": LinkChange,
        "CellsConfig": Cell,
        "CellChange": CellChange,
        "StationConfig": _scenario.Station,
        "FlowConfig": Flow,
        "UpdatesConfig": Updates,
        "TcpConfig": Tcp,
        "DownlinkConfig": _scenario.Downlink,
        "CrossTrafficConfig": CrossTraffic,
    },
    "lab/src/scenario/multipath.rs": {
        "MultipathConfig": _scenario.Multipath,
        "PageConfig": _scenario.Page,
        "VideoConfig": _scenario.Video,
    },
    "lab/src/scenario/topics.rs": {"TopicConfig": ScenarioTopic},
    "lab/src/scenario/topology.rs": {"TopologyConfig": Topology},
    "lab/src/scenario/external.rs": {"ExternalConfig": External},
    "lab/src/mesh/config.rs": {"MeshConfig": Mesh, "LinkLoss": _scenario.LinkLoss},
    "lab/src/mesh/csma.rs": {"Csma": _scenario.Csma},
    "core/src/link/config.rs": {"HopConfig": Hop},
    "core/src/link/hop.rs": {"HopChange": _scenario.HopChange},
    "core/src/link/trace_model/cellular.rs": {"CellularModel": CellularModel},
    "core/src/link/trace_model/leo.rs": {"LeoModel": _scenario.LeoModel},
    "core/src/wlan/mac/config.rs": {"CellConfig": Radio},
    "core/src/wlan/mac/channel.rs": {"Propagation": _scenario.Propagation, "Place": _scenario.Place},
    "core/src/wlan/mac/protection.rs": {"Protection": _scenario.Protection},
    "core/src/wlan/mac/rules.rs": {"Rules": _scenario.Rules},
    "core/src/router/config/dual.rs": {"DualConfig": Dual},
    "core/src/router/red.rs": {"Params": _scenario.Red},
    "core/src/router/codel/mod.rs": {"Params": Codel},
    "core/src/router/drr.rs": {"Params": _scenario.Drr},
    "core/src/router/fq_codel.rs": {"Params": FqCodel},
    "core/src/router/ifil.rs": {"Params": _scenario.Ifil},
    "core/src/router/hold.rs": {"Params": _scenario.Hold},
}


def keys_of_struct(text: str, struct: str) -> set[str]:
    """The keys under which serde reads the fields of a struct."""
    body = re.search(rf"pub struct {struct} \{{(.*?)\n\}}", text, re.DOTALL)
    assert body, struct
    keys, renamed = set(), None
    for line in body[1].splitlines():
        rename = re.search(r'rename = "(\w+)"', line)
        renamed = rename[1] if rename else "" if "serde(skip)" in line else renamed
        field = re.match(r"    (?:pub )?(\w+):", line)
        if field:
            keys.add(field[1] if renamed is None else renamed)
            renamed = None
    return keys - {""}


@pytest.mark.parametrize(
    ("path", "struct", "part"),
    [(path, struct, part) for path, structs in STRUCTS.items() for struct, part in structs.items()],
)
def test_a_part_has_the_keys_of_the_lab(path: str, struct: str, part: Any) -> None:
    source = REPOSITORY / "crates" / path
    if not source.exists():
        pytest.skip("needs the sources of the lab")
    ours = {field.metadata.get("key", field.name) for field in fields(part)}
    assert ours == keys_of_struct(source.read_text(), struct)
