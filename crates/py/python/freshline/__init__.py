"""Keeps the state that a receiver holds fresh, and keeps queues short.

    import freshline

    monitor = freshline.Monitor("udp://127.0.0.1:0")
    source = freshline.Source(monitor.url, name="robot-7", topics=["pose"])
    source.topic("pose").put_json({"x": 1.0, "y": 2.0})
    for state in monitor.subscribe("robot-7/*"):
        print(state.name, state.json(), state.age)

`Source` and `Monitor` run network threads; `subscribe` delivers states to a loop, to a task of asyncio, or to a
function. `freshline.lab` runs scenarios in virtual time, `freshline.plot` draws their measurements, and
`freshline.sweep` runs many of them on all processors, on Ray or on Slurm.
"""

from freshline import lab
from freshline._analysis import Capture, age
from freshline._errors import (
    CaptureError,
    ClosedError,
    Error,
    FullError,
    PutError,
    ScenarioError,
    SettingError,
    UndeliveredError,
    UnknownTopicError,
)
from freshline._live import Events, Listener, Monitor, Source, Subscription
from freshline._native import (
    AgeProcess,
    Column,
    Event,
    Queues,
    State,
    Table,
    Topic,
    TopicParams,
    __version__,
    confidence,
    jain_index,
    path_lower_bound,
)
from freshline._sweep import Failure, Slurm, Sweep, SweepError, SweepInterrupted, open_sweep, sweep

__all__ = [
    "AgeProcess",
    "Capture",
    "CaptureError",
    "ClosedError",
    "Column",
    "Error",
    "Event",
    "Events",
    "Failure",
    "FullError",
    "Listener",
    "Monitor",
    "PutError",
    "Queues",
    "ScenarioError",
    "SettingError",
    "Slurm",
    "Source",
    "State",
    "Subscription",
    "Sweep",
    "SweepError",
    "SweepInterrupted",
    "Table",
    "Topic",
    "TopicParams",
    "UndeliveredError",
    "UnknownTopicError",
    "__version__",
    "age",
    "confidence",
    "jain_index",
    "lab",
    "open_sweep",
    "path_lower_bound",
    "sweep",
]
