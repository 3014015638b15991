"""Recordings of kernel stamps with the true frames: the training data of the estimators of frames.

A file is a run: a header, then one line per packet in the order of the socket. Two writers:

    freshline lab packets                                      kernel_ns, frame_ns
    freshline wlan receive --capture IFACE --packet-log FILE      kernel_ns, frame

`kernel_ns` is the kernel's stamp. Packets of one frame have the same number in the other column, which is
empty if the capture does not contain the packet.
"""

from pathlib import Path

import numpy as np

# Neighbouring samples share gaps: samples this close to another block are in no fold.
LONGEST_GAP = 400_000
# The minimum number of packets with a known frame in a recording.
LEAST = 2_000
# The maximum share of packets without a frame.
FRAMELESS = 0.05
HOW = "record with `freshline wlan receive udp://… --capture IFACE --packet-log FILE`"


class Bad(Exception):
    """A recording that cannot be trained from."""


class Packets:
    """The packets that a client received in one run, in order of arrival.

    `is_known` marks packets for which it is known whether they are the first of a frame: all except packets
    without a frame, and the packets after them."""

    def __init__(self, kernel, frame, m, has_frame=None):
        self.kernel = kernel
        self.m = m
        self.is_first = np.r_[True, frame[1:] != frame[:-1]]
        has_frame = np.ones(len(frame), dtype=bool) if has_frame is None else has_frame
        self.is_known = has_frame & np.r_[True, has_frame[:-1]]
        self.features = features(kernel, m)
        # The first packet with m gaps before it is the one after them.
        self.labels = self.is_first[m:]
        self.known = self.is_known[m:]


def features(kernel, m):
    """The last m gaps in µs, the oldest first, and their deviation, for each packet after the first m."""
    gaps = np.clip(np.diff(kernel), 0, LONGEST_GAP) / 1e3
    window = np.lib.stride_tricks.sliding_window_view(gaps, m)
    return np.column_stack([window, window.std(axis=1)])


def read(file, m, least=LEAST):
    """Reads a recording.

    Raises Bad with the missing data and a remedy."""
    file = Path(file)
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Bad(f"cannot read {file}: {error}") from error
    head = lines[0].split(",") if lines else []
    frames = next((name for name in ("frame", "frame_ns") if name in head), None)
    for name, found in (("kernel_ns", "kernel_ns" in head), ("frame", frames)):
        if not found:
            raise Bad(f"{file} has no column `{name}`: {HOW}")
    at = [head.index("kernel_ns"), head.index(frames)]
    kernel, frame = [], []
    for number, line in enumerate(lines[1:], 2):
        fields = line.split(",")
        try:
            if len(fields) != len(head):
                raise ValueError(f"{len(fields)} columns for {len(head)}")
            kernel.append(int(fields[at[0]]))
            frame.append(int(fields[at[1]]) if fields[at[1]] else None)
        except ValueError as error:
            raise Bad(f"{file}, line {number}: {error}; the file is cut or damaged") from error
    has_frame = np.array([one is not None for one in frame], dtype=bool)
    if np.count_nonzero(has_frame) < least:
        found = np.count_nonzero(has_frame)
        raise Bad(f"{file} has {found} packets with a frame, and {least} are needed: record for longer")
    if 1 - has_frame.mean() > FRAMELESS:
        raise Bad(
            f"{file}: {1 - has_frame.mean():.1%} of the packets are in no frame of the capture, and "
            f"{FRAMELESS:.0%} may be: bring the monitor nearer, or let it have the whole channel"
        )
    # An unknown frame counts as the previous one; such packets are not trained on.
    number, numbers = 0, {}
    for at, one in enumerate(frame):
        if one is not None:
            number = numbers.setdefault(one, len(numbers) + 1)
        frame[at] = number
    packets = Packets(
        np.array(kernel, dtype=np.int64), np.array(frame, dtype=np.int64), m, has_frame
    )
    return packets


def read_all(files, m, least=LEAST):
    """Reads recordings of one card, at several rates."""
    runs = [read(file, m, least) for file in files]
    firsts = sum(np.count_nonzero(run.labels & run.known) for run in runs)
    others = sum(np.count_nonzero(~run.labels & run.known) for run in runs)
    if firsts < 100 or others < 100:
        what = "frames have one packet" if others < 100 else "packets are of one frame"
        raise Bad(
            f"nearly all {what}: {firsts} packets are the first of a frame, {others} are not, and 100 of "
            "each are needed: record at several send rates"
        )
    return runs


def folds(runs, count):
    """The fold of each sample, -1 for none.

    A fold is one run or several; with fewer than five runs it is one of `count` blocks of time of each run.
    Samples that share gaps with another block are in no fold."""
    if len(runs) >= 5:
        return np.concatenate(
            [np.full(len(run.labels), at % count) for at, run in enumerate(runs)]
        )
    return blocks(runs, count)


def blocks(runs, count):
    """The block of time of each sample, of `count` blocks; -1 next to another block."""
    found = []
    for run in runs:
        size = len(run.labels)
        block = np.arange(size) * count // size
        ends = np.flatnonzero(np.diff(block)) + 1
        for end in ends:
            block[end : end + run.m] = -1
        found.append(block)
    return np.concatenate(found)
