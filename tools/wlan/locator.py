"""Trains core::wlan's locator: where a flow's bottleneck is (Hassani, section 4.5).

Data come from the lab: frames as clients count them, with the truth, over send rates, modes and
backhauls, with and without traffic beside, stations that send, a radio that loses packets, Minstrel and
A-MSDUs. A sample is a frame (4.6): the levels of the last n frames and
the loss among the flow's last p packets, without what was lost before full frames. All levels have one
weight: they count by their mean. Folds are whole modes: frames of one mode resemble each other, so that
none is both trained on and judged by. Weights are those of scaled features, scaled back.

    locator.py small FRESHLINE FOLDER    a small training, with what numpy says of frames, for
                                         crates/cli/tests/training.rs
"""

import csv
import io
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GroupKFold
from sklearn.preprocessing import StandardScaler

SEED = 29
LEVELS = 5
PACKETS = 100
# Nmax, and from where on a frame is full: packets sent again take up to a quarter. In proportion where
# frames are longer.
MOST = 64
FULL = 48
# Frames of a run and flow that are trained on; more of the same teach nothing.
SAMPLES = 300
# Of the penalty's inverse, on scaled features: weights follow the data.
STRENGTH = 1e4
# A backhaul that is missed is overloaded, a Wi-Fi that is not believed only makes the sender slow: so many
# times as much a miss weighs.
MISSED = 3

FAST = '{ rate = "975mbit", queue = "1000p" }'
MIDDLE = '{ rate = "292500kbit", queue = "300p" }'
SLOW = '{ rate = "97500kbit", queue = "100p" }'
# Streams and MCS. Others are held out, for crates/lab/tests/bottleneck.rs: 1 stream of MCS 5, 7 and 9, 2 of
# 7, 8 and 9, 3 of 4 and 8. MCS 0 and 1 fill their frames at few packets, and cannot be told from a backhaul
# by (4.6).
MODES = ((1, 4), (2, 4), (2, 5), (3, 5), (3, 7), (3, 9))
# By MCS, the distance in m at which a tenth of the packets of one stream need another try, as the lab's
# channel has it; of n streams it is n^(-1/3) times as far.
EDGE = {4: 22.62, 5: 15.64, 7: 13.02, 9: 8.25}
# By MCS, Mbit/s of one stream over 80 MHz.
MBPS = {4: 175.5, 5: 234.0, 7: 292.5, 9: 390.0}
EDCA = 'countdown = "at_slot_start", eifs = true, recovery = "timeout_then_aifs"'


def law(rate, most=MOST):
    return f'{{ law = "fixed", rate = "{rate}mbit", downlink = {{ most = "{most}p" }} }}'


def settings():
    """What is run: the mode, a scenario, Nmax, and what is set in it."""
    for number, (streams, mcs) in enumerate(MODES):
        radio = {"cell.wifi.radio.rate": f'"mcs{mcs}"', "cell.wifi.radio.streams": str(streams)}
        # The slowest mode drops half of what it gets at the highest rates.
        for rate in (60, 90, 105, 120, 140, 180, 220, 280, 340, 400, 460, 520, 580):
            for link in (FAST, SLOW):
                # A slow backhaul tells the same at any rate above.
                if link == SLOW and rate > 340:
                    continue
                yield number, "wlan/bottleneck-rate", MOST, radio | {
                    "link.backhaul.there": link,
                    "flow.video.downlink.law": law(rate),
                    "duration": '"3s"',
                }
        # Slower ones are the bottleneck always.
        for rate, count in () if mcs < 7 else ((480, 1), (540, 1), (250, 2)):
            yield number, "wlan/bottleneck-moves", MOST, radio | {
                "flow.video.downlink.law": law(rate),
                "flow.video.count": str(count),
                "duration": '"5s"',
            }
        yield from ((number, "wlan/bottleneck-air", *rest) for rest in air(radio, streams, mcs))


def capacity(streams, mcs):
    """Mbit/s of packets with full frames: 200 µs and 64 packets of 1544 bytes each."""
    return MOST * 12_000 / (200 + MOST * 8 * 1544 / (streams * MBPS[mcs]))


def air(radio, streams, mcs):
    """Runs of one mode on busy air: what is varied beside rates goes round.

    Where the radio loses packets it is not overloaded: packets sent again hold up a frame's window, so that
    frames are short although the queue is full, and no level tells that from a backhaul."""
    edge = EDGE[mcs] / streams ** (1 / 3)
    most = capacity(streams, mcs)
    turn = 0
    for link in (FAST, MIDDLE, SLOW):
        for rate in (50, 80, 110, 130, 160, 200, 240, 290, 330, 380, 430, 480):
            # Others send a fifth of the time; a middling backhaul is slower than nothing else sooner.
            if rate > 0.75 * most or (link == SLOW and rate > 330) or (link == MIDDLE and rate < 240):
                continue
            turn += 1
            # The client's distance, tries of a packet, and the stations that send.
            far = (0.5, 1.0, 1.03)[turn % 3] if rate < 0.6 * most else 0.5
            tries = (7, 4, 3, 4)[turn % 4]
            uploads, upload = ((0, 1), (1, 15), (2, 10), (1, 30), (3, 5))[turn % 5]
            pairs = turn % 7 == 3
            places = ", ".join(
                f"{{ x_m = {x:.2f}, y_m = {y}.0 }}"
                for x, y in [(0, 0), (edge * far, 0)] + [(-1, y + 1) for y in range(uploads)]
            )
            yield (2 * MOST if pairs else MOST), radio | {
                "link.backhaul.there": link,
                "cell.wifi.radio.propagation": "{}",
                "cell.wifi.radio.places": f"[{places}]",
                "cell.wifi.radio.rules": f"{{ {EDCA}, retry_limit = {tries} }}",
                "cell.wifi.radio.max_msdus": "2" if pairs else "1",
                "cell.wifi.radio.stations": str(2 + uploads),
                "flow.video.downlink.law": law(rate, 2 * MOST if pairs else MOST),
                "flow.upload.count": str(uploads),
                "flow.upload.load.rate": f'"{upload}mbit"',
                # Levels are those of the station's frames, whatever flows they are of.
                "flow.download.count": "0",
            }
    # Minstrel, where the mode of this one would do. Of one stream it comes down to MCS 0, see MODES.
    if streams == 1:
        return
    for link, rate in ((FAST, 60), (FAST, most / 3), (SLOW, 130), (SLOW, 80)):
        yield MOST, radio | {
            "link.backhaul.there": link,
            "cell.wifi.radio.rate": '"minstrel"',
            "cell.wifi.radio.propagation": "{}",
            "cell.wifi.radio.places": (
                f"[{{ x_m = 0.0, y_m = 0.0 }}, {{ x_m = {0.7 * edge:.2f}, y_m = 0.0 }}, "
                "{ x_m = -1.0, y_m = 1.0 }]"
            ),
            "flow.video.downlink.law": law(round(rate)),
            "flow.download.count": "0",
        }


def collect(freshline, work, what):
    """Runs of frames, each its mode, Nmax, and flows of (level, others, lost, truth)."""
    runs = []
    for number, (mode, scenario, most, changes) in enumerate(what):
        out = work / f"{number}.csv"
        command = [freshline, "lab", "frames", scenario, "--seed", str(SEED + number)]
        command += ["--out", out]
        for key, value in changes.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run(command, check=True)
        flows = {}
        with open(out, newline="") as file:
            for row in csv.DictReader(file):
                numbers = tuple(int(row[name]) for name in ("level", "others", "lost", "truth"))
                flows.setdefault((row["run"], row["flow"]), []).append(numbers)
        runs.append((mode, most, list(flows.values())))
    return runs


class Features:
    """Features of one flow, as core's `Locator` makes them."""

    def __init__(self, levels, packets, most=MOST):
        self.full = FULL * most // MOST
        self.levels = [0.0] * levels
        self.seen = 0
        self.window = [0] * packets
        self.next = 0
        self.filled = 0

    def push(self, packets, is_lost):
        for _ in range(min(packets, len(self.window))):
            self.window[self.next] = is_lost
            self.next = (self.next + 1) % len(self.window)
            self.filled = min(self.filled + 1, len(self.window))

    def on_frame(self, level, others, lost):
        """The mean of the last levels and the loss; None before there are enough frames and packets."""
        self.levels = self.levels[1:] + [float(level)]
        self.seen += 1
        if level < self.full:
            self.push(lost, 1)
        self.push(level - others, 0)
        if self.seen < len(self.levels) or self.filled < len(self.window):
            return None
        return [sum(self.levels) / len(self.levels), sum(self.window) / len(self.window)]


def samples(runs, levels, packets):
    """Features, truths and the modes that they are of, a drawn part of each flow."""
    rng = random.Random(SEED)
    features, truths, groups = [], [], []
    for mode, most, flows in runs:
        for frames in flows:
            made = Features(levels, packets, most)
            found = []
            for level, others, lost, truth in frames:
                sample = made.on_frame(level, others, lost)
                if sample is not None:
                    found.append((sample, truth))
            for sample, truth in rng.sample(found, min(SAMPLES, len(found))):
                features.append(sample)
                truths.append(truth)
                groups.append(mode)
    return np.array(features), np.array(truths), np.array(groups)


def fit(features, truths):
    """θ of the mean level and of the loss, and θ₀.

    A backhaul whose queue is not full yet has lost nothing, and nothing tells it from a network with less
    to carry: such frames are judged, but not trained on, as they would only blur the line."""
    telling = (truths == 0) | (features[:, 1] > 0)
    features, truths = features[telling], truths[telling]
    scaler = StandardScaler().fit(features)
    model = LogisticRegression(
        C=STRENGTH, max_iter=10_000, tol=1e-8, class_weight={0: 1, 1: MISSED}
    )
    model.fit(scaler.transform(features), truths)
    weights = model.coef_[0] / scaler.scale_
    return weights, float(model.intercept_[0] - weights @ scaler.mean_)


def cross_validated(features, truths, groups):
    """What is said of each sample by weights that have not seen its mode."""
    guesses = np.zeros_like(truths)
    for train, judged in GroupKFold(n_splits=len(MODES)).split(features, truths, groups):
        weights, intercept = fit(features[train], truths[train])
        guesses[judged] = features[judged] @ weights + intercept >= 0
    return guesses


def example(weights, intercept):
    """Frames as core's tests read them, with the probability that numpy gives."""
    rng = random.Random(SEED)
    made = Features(LEVELS, PACKETS)
    out = io.StringIO()
    out.write("level,others,lost,probability\n")
    level = 20
    for number in range(200):
        level = min(64, max(1, level + rng.randint(-4, 4)))
        # Quiet for as long as busy, so that there are answers of both kinds.
        lost = rng.choice((0, 0, 0, 1, 3)) if number % 50 < 25 else 0
        others = level // 3 if number % 20 < 5 else 0
        sample = made.on_frame(level, others, lost)
        if sample is not None:
            probability = 1 / (1 + np.exp(-(np.array(sample) @ weights + intercept)))
            out.write(f"{level},{others},{lost},{float(probability)!r}\n")
        else:
            out.write(f"{level},{others},{lost},\n")
    return out.getvalue()


def toml(weights, intercept, data, samples, f1):
    levels = ", ".join([repr(float(weights[0]) / LEVELS)] * LEVELS)
    return f"""\
version = 1
levels = [{levels}]
loss = {float(weights[1])!r}
intercept = {intercept!r}
packets = {PACKETS}
full = {FULL}
most = {MOST}

[training]
data = "{data}"
seed = {SEED}
samples = {samples}
f1 = {round(float(f1), 4)!r}
"""


def train(freshline, work):
    runs = collect(freshline, work, settings())
    print(f"{len(runs)} runs")
    print("F1 over modes left out in turn, over n levels and p packets (Figure 4.17):")
    print("  n \\ p " + "".join(f"{packets:>8}" for packets in (50, 100, 200, 400)))
    for levels in (1, 3, 5, 10):
        scores = []
        for packets in (50, 100, 200, 400):
            features, truths, groups = samples(runs, levels, packets)
            scores.append(f1_score(truths, cross_validated(features, truths, groups)))
        print(f"  {levels:>5} " + "".join(f"{score:>8.4f}" for score in scores))
    features, truths, groups = samples(runs, LEVELS, PACKETS)
    guesses = cross_validated(features, truths, groups)
    score = f1_score(truths, guesses)
    quiet = (features[:, 1] == 0) & (truths == 0)
    alarms = guesses[quiet].mean()
    print(f"right {(guesses == truths).mean():.4f}, of {quiet.sum()} Wi-Fi frames without loss {alarms:.4f}")
    weights, intercept = fit(features, truths)
    if not weights[0] < 0 < weights[1] or intercept + weights[0] >= 0:
        sys.exit(f"no locator: levels {weights[0]}, loss {weights[1]}, intercept {intercept}")
    data = "the lab: wlan/bottleneck-rate, -moves and -air, as tools/wlan/locator.py sets them"
    text = toml(weights, intercept, data, len(truths), score)
    return {"bottleneck.toml": text, "bottleneck.example.csv": example(weights, intercept)}


def small(freshline, folder):
    """Weights from a tenth of the settings, and what numpy says of frames that were not in it."""
    runs = collect(freshline, folder, list(settings())[::10])
    features, truths, _ = samples(runs, LEVELS, PACKETS)
    weights, intercept = fit(features, truths)
    guesses = features @ weights + intercept >= 0
    text = toml(weights, intercept, "small", len(truths), f1_score(truths, guesses))
    (folder / "bottleneck.toml").write_text(text)
    (folder / "bottleneck.csv").write_text(example(weights, intercept))


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "small":
        sys.exit(__doc__)
    small(sys.argv[2], Path(sys.argv[3]))
