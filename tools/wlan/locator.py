"""Trains core::wlan's locator: where a flow's bottleneck is (Hassani, section 4.5).

Data come from the lab: frames as clients count them, with the truth, over send rates, modes and
backhauls, with and without traffic beside. A sample is a frame (4.6): the levels of the last n frames
and the loss among the last p packets, without what was lost before full frames. Folds are runs:
frames of one run resemble each other, so that none is both trained on and judged by. Weights are
those of scaled features, scaled back.

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
FOLDS = 20
LEVELS = 5
PACKETS = 100
# Of 64 that a frame has at most: packets sent again take up to a quarter.
FULL = 48
# Frames of a run and flow that are trained on; more of the same teach nothing.
SAMPLES = 300
# Of the penalty's inverse: so weak that weights follow the data.
STRENGTH = 1e4

FAST = '{ rate = "975mbit", queue = "1000p" }'
SLOW = '{ rate = "97500kbit", queue = "100p" }'


def settings():
    """What is run: a scenario, and what is set in it."""
    # Streams and MCS: the slowest drops half of what it gets at the highest rates. MCS 0 and 1 fill
    # their frames at few packets, and cannot be told from a backhaul by (4.6).
    for streams, mcs in ((1, 4), (2, 4), (2, 5), (3, 5), (3, 7), (3, 9)):
        radio = {"cell.wifi.radio.rate": f'"mcs{mcs}"', "cell.wifi.radio.streams": str(streams)}
        for rate in (60, 90, 105, 120, 140, 180, 220, 280, 340, 400, 460, 520, 580):
            for link in (FAST, SLOW):
                # A slow backhaul tells the same at any rate above.
                if link == SLOW and rate > 340:
                    continue
                law = f'{{ law = "fixed", rate = "{rate}mbit" }}'
                yield "wlan/bottleneck-rate", radio | {
                    "link.backhaul.there": link,
                    "flow.video.downlink.law": law,
                    "duration": '"3s"',
                }
        # Slower ones are the bottleneck always.
        for rate, count in () if mcs < 7 else ((480, 1), (540, 1), (250, 2)):
            yield "wlan/bottleneck-moves", radio | {
                "flow.video.downlink.law": f'{{ law = "fixed", rate = "{rate}mbit" }}',
                "flow.video.count": str(count),
                "duration": '"5s"',
            }


def collect(freshline, work, what):
    """Runs of frames, each a list of (level, lost, truth)."""
    runs = []
    for number, (scenario, changes) in enumerate(what):
        out = work / f"{number}.csv"
        command = [freshline, "lab", "frames", scenario, "--seed", str(SEED + number)]
        command += ["--out", out]
        for key, value in changes.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run(command, check=True)
        flows = {}
        with open(out, newline="") as file:
            for row in csv.DictReader(file):
                frame = (int(row["level"]), int(row["lost"]), int(row["truth"]))
                flows.setdefault((row["run"], row["flow"]), []).append(frame)
        runs.append(list(flows.values()))
    return runs


class Features:
    """Features of one flow, as core's `Locator` makes them."""

    def __init__(self, levels, packets):
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

    def on_frame(self, level, lost):
        """The features; None before there are enough."""
        self.levels = self.levels[1:] + [float(level)]
        self.seen += 1
        if level < FULL:
            self.push(lost, 1)
        self.push(level, 0)
        if self.seen < len(self.levels) or self.filled < len(self.window):
            return None
        return self.levels + [sum(self.window) / len(self.window)]


def samples(runs, levels, packets):
    """Features, truths and the runs that they are of, a drawn part of each flow."""
    rng = random.Random(SEED)
    features, truths, groups = [], [], []
    for group, flows in enumerate(runs):
        for frames in flows:
            made = Features(levels, packets)
            found = []
            for level, lost, truth in frames:
                sample = made.on_frame(level, lost)
                if sample is not None:
                    found.append((sample, truth))
            for sample, truth in rng.sample(found, min(SAMPLES, len(found))):
                features.append(sample)
                truths.append(truth)
                groups.append(group)
    return np.array(features), np.array(truths), np.array(groups)


def fit(features, truths):
    """θ of each feature, and θ₀."""
    scaler = StandardScaler().fit(features)
    model = LogisticRegression(C=STRENGTH, max_iter=10_000, tol=1e-8)
    model.fit(scaler.transform(features), truths)
    weights = model.coef_[0] / scaler.scale_
    return weights, float(model.intercept_[0] - weights @ scaler.mean_)


def cross_validated(features, truths, groups):
    """The F1 score over all folds together."""
    guesses = np.zeros_like(truths)
    for train, judged in GroupKFold(n_splits=FOLDS).split(features, truths, groups):
        weights, intercept = fit(features[train], truths[train])
        guesses[judged] = features[judged] @ weights + intercept >= 0
    return f1_score(truths, guesses)


def example(weights, intercept):
    """Frames as core's tests read them, with the probability that numpy gives."""
    rng = random.Random(SEED)
    made = Features(LEVELS, PACKETS)
    out = io.StringIO()
    out.write("level,lost,probability\n")
    level = 20
    for number in range(200):
        level = min(64, max(1, level + rng.randint(-4, 4)))
        # Quiet for as long as busy, so that there are answers of both kinds.
        lost = rng.choice((0, 0, 0, 1, 3)) if number % 50 < 25 else 0
        sample = made.on_frame(level, lost)
        if sample is not None:
            probability = 1 / (1 + np.exp(-(np.array(sample) @ weights + intercept)))
            out.write(f"{level},{lost},{float(probability)!r}\n")
        else:
            out.write(f"{level},{lost},\n")
    return out.getvalue()


def toml(weights, intercept, data, samples, f1):
    levels = ", ".join(repr(float(weight)) for weight in weights[:-1])
    return f"""\
version = 1
levels = [{levels}]
loss = {float(weights[-1])!r}
intercept = {intercept!r}
packets = {PACKETS}
full = {FULL}

[training]
data = "{data}"
seed = {SEED}
samples = {samples}
f1 = {round(float(f1), 4)!r}
"""


def train(freshline, work):
    runs = collect(freshline, work, settings())
    print("F1 in 20-fold cross-validation, over n levels and p packets (Figure 4.17):")
    print("  n \\ p " + "".join(f"{packets:>8}" for packets in (50, 100, 200, 400)))
    for levels in (1, 3, 5, 10):
        scores = [cross_validated(*samples(runs, levels, p)) for p in (50, 100, 200, 400)]
        print(f"  {levels:>5} " + "".join(f"{score:>8.4f}" for score in scores))
    features, truths, groups = samples(runs, LEVELS, PACKETS)
    score = cross_validated(features, truths, groups)
    weights, intercept = fit(features, truths)
    data = "the lab: wlan/bottleneck-rate and wlan/bottleneck-moves, as tools/wlan/locator.py sets them"
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
