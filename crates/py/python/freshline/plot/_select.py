"""Which deliveries of a table of ages are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ._data import Table, column_names, listed, numbers, texts
from ._process import Process

Ages: TypeAlias = Any
"""A table with the columns `received_s` and `generated_s`, or a `freshline.AgeProcess`."""


@dataclass(frozen=True)
class Choice:
    """One process of a table: a flow, its number among equal flows, and its topic. None: the only one."""

    flow: str | None
    number: int
    topic: str


def process(ages: Ages, choice: Choice) -> tuple[str, Process]:
    """The process and its label. Raises ValueError if the choice names no process, or more than one."""
    if hasattr(ages, "sawtooth"):
        return choice.flow or "", Process.of_points(ages.sawtooth())
    is_chosen, label = _chosen(ages, choice)
    received, generated = numbers(ages, "received_s"), numbers(ages, "generated_s")
    return label, Process.of_deliveries(received[is_chosen], generated[is_chosen])


def processes(ages: Ages, choice: Choice) -> dict[str, Process]:
    """Processes by label: of a mapping from labels to ages, or of each flow and topic of one table."""
    if isinstance(ages, Mapping) and "received_s" not in ages:
        if not ages:
            raise ValueError("there are no ages; give a table, or a dict from labels to tables")
        return {str(label): process(each, choice)[1] for label, each in ages.items()}
    is_whole = choice.flow is None and not hasattr(ages, "sawtooth") and "flow" in column_names(ages)
    if not is_whole:
        label, only = process(ages, choice)
        return {label: only}
    topics = texts(ages, "topic") if "topic" in column_names(ages) else [""] * len(texts(ages, "flow"))
    found = dict.fromkeys(zip(texts(ages, "flow"), topics, strict=True))
    if not found:
        raise ValueError("the table of ages is empty; draw a run in which a flow delivered an update")
    return dict(process(ages, Choice(flow, choice.number, topic)) for flow, topic in found)


def _chosen(ages: Table, choice: Choice) -> tuple[npt.NDArray[np.bool_], str]:
    """Which rows belong to the process, and its label."""
    names = column_names(ages)
    is_chosen = np.ones(len(numbers(ages, "received_s")), dtype=np.bool_)
    label = ""
    if "flow" in names:
        flows = np.asarray(texts(ages, "flow"), dtype=object)
        label = _only("flow", choice.flow, flows)
        is_chosen &= flows == label
    if "number" in names:
        of_flow = numbers(ages, "number")
        count = int(of_flow[is_chosen].max()) + 1 if is_chosen.any() else 0
        is_chosen &= of_flow == choice.number
        if not is_chosen.any():
            raise ValueError(f"number is {choice.number}; `{label}` has the numbers 0 to {count - 1}")
    if "topic" in names:
        topics = np.asarray(texts(ages, "topic"), dtype=object)
        topic = _only("topic", choice.topic or None, topics[is_chosen])
        is_chosen &= topics == topic
        label = f"{label}/{topic}" if topic else label
    return is_chosen, label


def _only(what: str, chosen: str | None, known: npt.NDArray[np.object_]) -> str:
    """The chosen name, or the only one."""
    names = list(dict.fromkeys(known.tolist()))
    if chosen is None and len(names) == 1:
        return str(names[0])
    if chosen is None:
        raise ValueError(f"the ages are of several {what}s; give `{what}`, one of {listed(names)}")
    if chosen not in names:
        raise ValueError(f"there is no {what} `{chosen}`; the {what}s are {listed(names)}")
    return chosen
