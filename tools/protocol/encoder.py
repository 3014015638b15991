"""Encodes messages of the protocol, for scripts/protocol-vectors: a Python version of docs/protocol.md alone.

A message is a dictionary with a key for each field; ENCODERS has a function for each type. Numbers without a
unit in their name are counts, bytes are text in hexadecimal digits, None is an unset field. A new kind of
frame needs a line in FRAMES.
"""

import struct

UPDATE, ACK, CHALLENGE, CLOSE, JOIN, PACKET, REPORT = range(1, 8)
REASONS = ["done", "shutting_down", "full", "bad_token", "version", "payload_too_large", "name_taken",
           "bad_name", "not_permitted"]
SESSION = "0123456789abcdef"


def u(value, size):
    return value.to_bytes(size, "big")


def varint(value, size=1):
    """RFC 9000, section 16: the shortest form, or one of `size` bytes if that is longer."""
    power = next(power for power in range(4) if size <= 1 << power and value < 1 << (8 << power) - 2)
    return u(power << (8 << power) - 2 | value, 1 << power)


def head(kind, session=SESSION, version=2):
    return b"FL" + bytes([version, kind]) + bytes.fromhex(session)


def code_point(value):
    return bytes([0 if value is None else 128 if value == "echo" else 64 + value])


def with_length(data):
    return bytes([len(data)]) + data


def opening(fields):
    if not fields:
        return b""
    return (bytes.fromhex(fields["cookie"]) + with_length(fields["name"].encode())
            + with_length(bytes.fromhex(fields["token"])))


def error_bound(code):
    """The error bound in ns of a code, 8 e + m."""
    return ((8 + code % 8) * 2 ** (code // 8) - 8) * 64


def error_code(ns):
    """The lowest code whose bound is at least `ns`."""
    return next((code for code in range(255) if ns is not None and error_bound(code) >= ns), 255)


def clock_offset(fields):
    if not fields:
        return bytes(8)
    return ((fields["offset_ns"] // 256).to_bytes(7, "big", signed=True)
            + bytes([error_code(fields["error_ns"])]))


def aged(fields, size):
    return varint(fields["behind"], size) + varint(fields["age_ns"], size)


def part(fields, size):
    lengths = ["state_length", "symbol_length", "repair_symbols", "index"]
    return (aged(fields, size) + b"".join(varint(fields[name], size) for name in lengths)
            + bytes.fromhex(fields["symbol"]))


def name(fields, size):
    written = with_length(fields["name"].encode())
    if "key" in fields:
        written += b"\1" + varint(fields["behind"], size) + bytes.fromhex(fields["key"])
    if "stream" in fields:
        written += b"\2" + bytes.fromhex(fields["stream"]) + varint(fields["first"], size)
    return written


def chunk(fields, size):
    return (varint(fields["chunk"], size) + bytes([fields["ends_record"]]) + varint(fields["age_ns"], size)
            + bytes.fromhex(fields["bytes"]))


# The fields after the topic in a frame, by the frame's kind.
FRAMES = {
    "state": (1, lambda fields, size: aged(fields, size) + bytes.fromhex(fields["state"])),
    "part": (2, part),
    "again": (3, aged),
    "name": (4, name),
    "removed": (5, aged),
    "record": (6, chunk),
    "cursor": (7, lambda fields, size: b""),
}


def raw_frame(kind, rest, size=1):
    return bytes([kind]) + varint(len(rest), size) + rest


def frame(fields, size=1):
    kind, rest = FRAMES[fields["kind"]]
    return raw_frame(kind, varint(fields["topic"], size) + rest(fields, size), size)


def raw_update(fields, carried, padded_to, flags=0):
    opened = fields["opening"]
    offset = fields["clock_offset"]
    flags |= (opened is not None) + 2 * (offset is not None) + 4 * (not fields["ack_asked"])
    flags |= 16 * fields.get("return_wanted", False) + 32 * ("rider" in fields)
    start = (head(UPDATE, fields["session"]) + bytes([flags]) + code_point(fields["ack_code_point"])
             + u(len(carried), 2) + u(fields["sequence"], 8) + u(fields["sent_at_ns"], 8))
    rider = ack(fields["rider"]).ljust(72, b"\0") if "rider" in fields else b""
    return (start + clock_offset(offset) + opening(opened) + carried).ljust(padded_to, b"\0") + rider


def is_of_parts(frames):
    return any(frame["kind"] != "state" or frame["topic"] != 0 for frame in frames)


def update(fields, size=1):
    if "bare_state" in fields:
        return raw_update(fields, bytes.fromhex(fields["bare_state"]), 56, 8)
    frames = b"".join(frame(one, size) for one in fields["frames"])
    return raw_update(fields, frames, 72 if is_of_parts(fields["frames"]) else 56)


def ack(fields):
    parts = fields["parts"]
    flags = fields["is_newest"] + (2 + 4 * parts["no_room"] if parts else 0)
    written = (head(ACK, fields["session"]) + bytes([flags]) + code_point(fields["arrived_with"])
               + code_point(fields["left_with"]) + b"\0" + u(fields["sequence"], 8)
               + u(fields["sent_at_ns"], 8) + u(fields["received_at_ns"], 8)
               + b"".join(u(fields[count], 4) for count in ("hold_us", "fresh", "stale", "missing")))
    if parts:
        whole = parts["newest_whole"]
        received = sum(1 << before - 1 for before in parts["received_before"])
        written += u(received, 8) + u(0 if whole is None else 1 + whole, 8)
    return written


def challenge(fields):
    return head(CHALLENGE, fields["session"]) + bytes.fromhex(fields["cookie"])


def close(fields):
    return head(CLOSE, fields["session"]) + bytes([REASONS.index(fields["reason"]), 0, 0, 0])


def join(fields):
    return (head(JOIN, fields["session"]) + opening(fields["opening"])).ljust(56, b"\0")


def packet(fields):
    offset = fields["clock_offset_ns"]
    return (head(PACKET, fields["session"]) + bytes([offset is not None])
            + code_point(fields["report_code_point"]) + u(fields["interval_ms"], 2)
            + u(fields["sequence"], 8) + u(fields["sent_at_ns"], 8)
            + (offset or 0).to_bytes(8, "big", signed=True) + bytes.fromhex(fields["payload"]))


def report(fields, length=100):
    frames = fields["frames"] or {"count": 0, "level": 0, "deviation": 0, "loss": 0, "rate_bit_s": 0}
    arrivals = fields["arrivals"] or {}
    counts = ("rate_kbit_s", "above_min_us", "gap_us")
    written = (head(REPORT, fields["session"]) + u(fields["number"], 4) + u(fields["newest"], 8)
               + u(fields["sent_at_ns"], 8) + u(fields["received_at_ns"], 8) + u(fields["hold_us"], 4)
               + u(fields["packets"], 4) + u(frames["count"], 4)
               + struct.pack(">fff", frames["level"], frames["deviation"], frames["loss"])
               + u(frames["rate_bit_s"], 8) + code_point(fields["arrived_with"])
               + code_point(fields["left_with"]) + bytes([fields["arrivals"] is not None, 0])
               + u(arrivals.get("bytes", 0), 8) + b"".join(u(arrivals.get(count, 0), 4) for count in counts)
               + u(fields["max_frame"] or 0, 2) + bytes(2))
    return written[:length]


ENCODERS = {"update": update, "ack": ack, "challenge": challenge, "close": close, "join": join,
            "packet": packet, "report": report}
