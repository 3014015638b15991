"""Prints the ages in a packet capture, such as of `tcpdump -i any -s 128 -w capture.pcap`.

python capture_age.py FILE
"""

import sys
from typing import Any

import freshline


def shown(what: str, age: dict[str, Any] | None) -> str:
    """The mean and the 95 % quantile of an age of the report; empty where it is unknown."""
    if not age or age["mean_ms"] is None:
        return ""
    return f"; {what}: mean {age['mean_ms']:.1f} ms, 95 % of the time below {age['p95_ms']:.1f} ms"


def main(path: str) -> None:
    capture = freshline.age(path)
    print(f"{capture.packets['read']} packets in {capture.duration_s:.1f} s")
    for session in capture.sessions:
        ages = shown("age at the source", session["age_at_source"]) + shown("at the monitor", session["age_at_monitor"])
        print(f"session {session['name']}: {session['updates']} updates{ages}")
    for flow in capture.flows:
        print(f"TCP {flow['from']} to {flow['to']}{shown('age', flow.get('age'))}")
    if capture.error is not None:
        sys.exit(f"{path}: {capture.error}")


if __name__ == "__main__":
    main(sys.argv[1])
