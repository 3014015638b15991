"""Ages in packet captures."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from freshline import _native


@dataclass(frozen=True)
class Capture:
    """The ages in a packet capture. The keys of the dictionaries are those of `freshline age --json`."""

    duration_s: float
    """From the earliest frame to the latest."""
    packets: dict[str, int]
    """Number of frames per outcome."""
    flows: list[dict[str, Any]]
    """Every direction of a TCP flow in which payload was sent."""
    sessions: list[dict[str, Any]]
    """Every session of Freshline over UDP."""
    error: str | None
    """Reason why reading ended before the end of the file, if it did; earlier frames were measured."""


def age(capture: str | os.PathLike[str] | bytes, *, max_flows: int = 1000) -> Capture:
    """Measures age in a packet capture (pcap or pcapng): a file, or its contents.

    For each direction of a TCP flow: the age at the receiver if each segment held fresh information when it was sent, so
    capture at the sender. A session over udp:// has its age at the source, if captured there, and at the monitor. Further
    flows than `max_flows` are counted and not measured. Raises CaptureError if it is no capture.
    """
    return Capture(**_native.age_of_capture(capture, max_flows=max_flows))
