"""Flows of updates: a source that keeps a monitor fresh, and the topics of such a flow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

from ._part import Part, key

UpdateLaw: TypeAlias = Literal["acp+d", "acp+", "acp", "tenth", "lazy", "fixed", "poisson"] | str
"""The name of a law of the source."""

Scheduler: TypeAlias = (
    Literal[
        "freshest", "earliest", "qaware", "min_srtt", "round_robin", "redundant", "ecf", "blest", "daps", "linger"
    ]
    | str
)
"""The name of a scheduler over several paths."""


@dataclass(slots=True, kw_only=True)
class SizeRange(Part):
    """Sizes that are uniformly drawn for each state."""

    min: str
    """The minimum: `"20kB"`."""
    max: str
    """The maximum, at least `min`."""


@dataclass(slots=True, kw_only=True)
class ScenarioTopic(Part):
    """A topic of a flow of updates."""

    name: str = field(kw_only=False)
    """Its name, different from those of the flow's other topics."""
    kind: Literal["latest", "keyed", "every"] | None = None
    """Which states count: the newest one, the newest one of each key, or every one (records). Default: `"latest"`."""
    keys: int | None = None
    """With `kind="keyed"`: the number of keys, 1 to 4096."""
    buffer: str | None = None
    """With `kind="every"`: the maximum size of the records that the source holds, 1 KiB to 4 GB. Default: 1 MiB."""
    size: str | list[str] | SizeRange
    """The size of a state; a list is of the keys (or states) in turn, a `SizeRange` is drawn for each state."""
    period: str | list[str] | None = None
    """The time between two states; a list is of the keys in turn. Default: a state is sampled as an update leaves."""
    pattern: Literal["constant", "poisson"] | None = None
    """With `period`: constant gaps, or a Poisson process with the period as its mean. Default: `"constant"`."""
    jitter: str | None = None
    """With `period`: each state is delayed by up to this, uniformly drawn; below `period`. Default: 0 s."""
    weight: float | None = None
    """The weight of its age, above zero. Default: 1."""
    deadline: str | None = None
    """The age from which on a state is not sent. Default: no deadline."""
    max_rate: str | None = None
    """The maximum rate of its states: `"50/s"`. Default: no maximum."""
    min_rate: str | None = None
    """The rate below which its states go first: `"1/s"`. Default: no minimum."""
    urgent: bool | None = None
    """Send its states before all others. Default: False."""


@dataclass(slots=True, kw_only=True)
class Updates(Part):
    """A source and its monitor. A flow of updates has either a `payload` or `topics`."""

    law: UpdateLaw
    """When to send: `"tenth"`, `"acp+d"`, `"acp+"`, `"acp"`, `"lazy"`, `"fixed"` or `"poisson"`."""
    rate: str | None = None
    """With `"fixed"` and `"poisson"`: the rate, `"700/s"`."""
    params: Mapping[str, Any] | None = None
    """Parameters of the law that differ from their defaults: `{"estimator": {"estimates": "departure"}}`."""
    max_rate: str | None = None
    """Maximum rate of updates. Default: no maximum."""
    min_age_gain: str | None = None
    """The improvement of the mean age that justifies a higher rate: a time, or `"default"`. Default: any."""
    max_bandwidth: str | None = None
    """Maximum mean bandwidth with headers: `"2mbit"`. Default: no maximum."""
    payload: str | None = None
    """The size of the state in each update: `"500B"`."""
    state: str | None = None
    """The size of a whole state; one larger than `payload` takes several updates. Default: `payload`."""
    overhead: str | None = None
    """The headers around an update. Default: those of our protocol over UDP and IPv4."""
    ack: str | None = None
    """The size of an ack with its headers; with `"0B"` the monitor sends none, which `"fixed"` and `"poisson"` can do
    without. Default: that of our protocol."""
    sizes: Literal["constant", "exponential", "exponential-each-hop"] | None = None
    """How the size of an update on the wire is drawn: always the same, once per update, or again on each hop.
    Default: `"constant"`."""
    paths: list[list[str]] | None = None
    """The links of each of several paths, in place of the flow's `path`; at most 8 paths."""
    scheduler: Scheduler | Mapping[str, Any] | None = None
    """With `paths`: which path an update takes, a name or a table with settings. Default: `"freshest"`."""
    topics: list[ScenarioTopic] = field(default_factory=list, metadata=key("topic"))
    """Its topics, in place of `payload`."""
    max_age: list[str] | None = None
    """With topics: their maximum ages at the monitor, `["robot/cmd=300ms"]`; the first rule that matches counts."""
    rules: Literal["declared", "none"] | None = None
    """With topics: whether the endpoints know weights, deadlines, rates, urgency and maximum ages.
    Default: `"declared"`."""
    max_datagram: str | None = None
    """With topics: the maximum size of a datagram. Default: QUIC's."""

    def topic(
        self,
        name: str,
        *,
        size: str | list[str] | SizeRange,
        kind: Literal["latest", "keyed", "every"] | None = None,
        keys: int | None = None,
        buffer: str | None = None,
        period: str | list[str] | None = None,
        pattern: Literal["constant", "poisson"] | None = None,
        jitter: str | None = None,
        weight: float | None = None,
        deadline: str | None = None,
        max_rate: str | None = None,
        min_rate: str | None = None,
        urgent: bool | None = None,
    ) -> Self:
        """Adds a `ScenarioTopic` with these fields, and returns the flow's updates."""
        topic = ScenarioTopic(
            name,
            kind=kind,
            keys=keys,
            buffer=buffer,
            size=size,
            period=period,
            pattern=pattern,
            jitter=jitter,
            weight=weight,
            deadline=deadline,
            max_rate=max_rate,
            min_rate=min_rate,
            urgent=urgent,
        )
        self.topics.append(topic)
        return self
