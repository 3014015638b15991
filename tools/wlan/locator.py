"""Trains core::wlan's locator: where a flow's bottleneck is (Hassani, section 4.5).

Data come from the lab: frames as clients count them, with the truth, over send rates, modes and
backhauls, with and without cross traffic, sending stations, a radio that loses packets, Minstrel and
A-MSDUs. The classifier is the one in crates/core/src/wlan/bottleneck.rs: a logistic regression over the mean of
the last levels and S, a leaky sum of losses. The chosen settings have the minimum error among those with few
false alarms in each run (MOST_ALARMS); the error is the mean over runs, and is printed for modes that were left
out in turn. The thesis's own classifier, with the loss of the last p packets in place of S, is trained as well,
for Figure 4.17.

    locator.py small FRESHLINE FOLDER    a small training, with numpy's predictions for frames, for
                                         crates/cli/tests/training.rs
"""

import csv
import io
import itertools
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
# Nmax, and the level from which a frame counts as full: retransmitted packets take up to a quarter. Both
# scale with longer frames.
MOST = 64
FULL = 48
# Training frames per run and flow; more of the same do not improve the result.
SAMPLES = 300
# The inverse of the penalty, on scaled features: weights follow the data.
STRENGTH = 1e4
# The weight of a miss relative to a false alarm, in the thesis's classifier only: after a miss the backhaul is
# overloaded, while a false alarm only makes the sender slow.
MISSED = 3
# The maximum share of false alarms in each run; half of the bound for held-out modes.
MOST_ALARMS = 0.005
# The tried settings of the sum: the maximum losses of a frame that count, the drain per packet, the drain per
# retransmitted packet, and the maximum of the sum.
BURSTS = (1, 2, 4)
DRAINS = (0.003, 0.006, 0.01, 0.015)
RETRIES = (0.1, 0.15, 0.2, 0.3)
CAPS = (10.0, 16.0, 24.0)
# The threshold of S for the backhaul: this part of the maximum sum, plus the slope times the level in
# packets.
PARTS = (0.3, 0.5, 0.7)
SLOPES = (0.01, 0.02, 0.05)

FAST = '{ rate = "975mbit", queue = "1000p" }'
MIDDLE = '{ rate = "292500kbit", queue = "300p" }'
SLOW = '{ rate = "97500kbit", queue = "100p" }'
# Streams and MCS. Other modes are held out, for crates/lab/tests/bottleneck.rs: 1 stream of MCS 5, 7 and 9, 2 of
# 7, 8 and 9, 3 of 4 and 8. MCS 0 and 1 fill their frames with few packets, and (4.6) cannot distinguish them from
# a backhaul.
MODES = ((1, 4), (2, 4), (2, 5), (3, 5), (3, 7), (3, 9))
# By MCS, the distance in m at which a tenth of the packets of one stream need a retransmission in the lab's
# channel; with n streams the distance is n^(-1/3) times as long.
EDGE = {4: 22.62, 5: 15.64, 7: 13.02, 9: 8.25}
# By MCS, the PHY rate of one stream over 80 MHz in Mbit/s.
MBPS = {4: 175.5, 5: 234.0, 7: 292.5, 9: 390.0}
EDCA = 'countdown = "at_slot_start", eifs = true, recovery = "timeout_then_aifs"'


def law(rate, most=MOST):
    return f'{{ law = "fixed", rate = "{rate}mbit", downlink = {{ max_packets = "{most}p" }} }}'


def settings():
    """The runs: the mode, a scenario, Nmax, and the changed settings."""
    for number, (streams, mcs) in enumerate(MODES):
        radio = {"cell.wifi.radio.rate": f'"mcs{mcs}"', "cell.wifi.radio.streams": str(streams)}
        # The slowest mode drops half of the packets at the highest rates.
        for rate in (60, 90, 100, 102, 105, 120, 140, 180, 220, 280, 340, 400, 460, 520, 580):
            for link in (FAST, SLOW):
                # With a slow backhaul, higher rates give no other data.
                if link == SLOW and rate > 340:
                    continue
                yield number, "wlan/bottleneck-rate", MOST, radio | {
                    "link.backhaul.forward": link,
                    "flow.video.downlink.law": law(rate),
                    "duration": '"3s"',
                }
        # Slower modes are always the bottleneck.
        for rate, count in () if mcs < 7 else ((480, 1), (540, 1), (250, 2)):
            yield number, "wlan/bottleneck-moves", MOST, radio | {
                "flow.video.downlink.law": law(rate),
                "flow.video.count": str(count),
                "duration": '"5s"',
            }
        yield from ((number, "wlan/bottleneck-air", *rest) for rest in air(radio, streams, mcs))


def capacity(streams, mcs):
    """The goodput with full frames, in Mbit/s: 200 µs of overhead, and 64 packets of 1544 bytes each."""
    return MOST * 12_000 / (200 + MOST * 8 * 1544 / (streams * MBPS[mcs]))


def air(radio, streams, mcs):
    """Runs of one mode on busy air. All settings other than rates vary in turn.

    Runs with a lossy radio do not overload it: retransmissions block the block-ack window, so that frames are
    short although the queue is full, and levels cannot distinguish this from a backhaul."""
    edge = EDGE[mcs] / streams ** (1 / 3)
    most = capacity(streams, mcs)
    turn = 0
    for link in (FAST, MIDDLE, SLOW):
        for rate in (50, 80, 101, 110, 130, 160, 200, 240, 290, 302, 330, 380, 430, 480):
            # Other stations send a fifth of the time, so the middle backhaul is the bottleneck only from higher rates.
            if rate > 0.75 * most or (link == SLOW and rate > 330) or (link == MIDDLE and rate < 240):
                continue
            turn += 1
            # The client's distance, the tries per packet, and the sending stations.
            far = (0.5, 1.0, 1.03)[turn % 3] if rate < 0.6 * most else 0.5
            tries = (7, 4, 3, 4)[turn % 4]
            uploads, upload = ((0, 1), (1, 15), (2, 10), (1, 30), (3, 5))[turn % 5]
            pairs = turn % 7 == 3
            places = ", ".join(
                f"{{ x_m = {x:.2f}, y_m = {y}.0 }}"
                for x, y in [(0, 0), (edge * far, 0)] + [(-1, y + 1) for y in range(uploads)]
            )
            yield (2 * MOST if pairs else MOST), radio | {
                "link.backhaul.forward": link,
                "cell.wifi.radio.propagation": "{}",
                "cell.wifi.radio.places": f"[{places}]",
                "cell.wifi.radio.rules": f"{{ {EDCA}, retry_limit = {tries} }}",
                "cell.wifi.radio.max_msdus": "2" if pairs else "1",
                "cell.wifi.radio.stations": str(2 + uploads),
                "flow.video.downlink.law": law(rate, 2 * MOST if pairs else MOST),
                "flow.upload.count": str(uploads),
                "flow.upload.cross_traffic.rate": f'"{upload}mbit"',
                # Levels are those of the station's frames, whichever flows they carry.
                "flow.download.count": "0",
            }
    # Minstrel, with rates that this mode could carry. With one stream it falls to MCS 0, see MODES.
    if streams == 1:
        return
    for link, rate in ((FAST, 60), (FAST, most / 3), (SLOW, 130), (SLOW, 80)):
        yield MOST, radio | {
            "link.backhaul.forward": link,
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
    """The frames of each run: its mode, Nmax, and flows of (level, others, lost, retried, truth)."""
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
                names = ("level", "others", "lost", "retried", "truth")
                numbers = tuple(int(row[name]) for name in names)
                flows.setdefault((row["run"], row["flow"]), []).append(numbers)
        runs.append((mode, most, list(flows.values())))
    return runs


class Features:
    """The thesis's features of one flow: the mean of the last levels, and the loss of the last packets."""

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
    """Features, truths and modes of a random sample of each flow."""
    rng = random.Random(SEED)
    features, truths, groups = [], [], []
    for mode, most, flows in runs:
        for frames in flows:
            made = Features(levels, packets, most)
            found = []
            for level, others, lost, _, truth in frames:
                sample = made.on_frame(level, others, lost)
                if sample is not None:
                    found.append((sample, truth))
            for sample, truth in rng.sample(found, min(SAMPLES, len(found))):
                features.append(sample)
                truths.append(truth)
                groups.append(mode)
    return np.array(features), np.array(truths), np.array(groups)


def fit_window(features, truths):
    """The thesis's classifier: θ of the mean level and of the loss, and θ₀.

    A backhaul whose queue is not yet full loses no packets, and cannot be distinguished from a network with less
    load: such frames are judged, but not trained on, as they would only blur the boundary."""
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
    """The prediction of the thesis's classifier for each sample, trained without the sample's mode."""
    guesses = np.zeros_like(truths)
    for train, judged in GroupKFold(n_splits=len(MODES)).split(features, truths, groups):
        weights, intercept = fit_window(features[train], truths[train])
        guesses[judged] = features[judged] @ weights + intercept >= 0
    return guesses


class Flows:
    """All flows side by side: an array has a row for each frame and a column for each flow."""

    def __init__(self, runs):
        flows = [(mode, most, np.array(f)) for mode, most, all in runs for f in all if len(f) > LEVELS]
        shape = (max(len(f) for _, _, f in flows), len(flows))
        columns = np.zeros((5, *shape), dtype=np.int64)
        self.valid = np.zeros(shape, dtype=bool)
        for at, (_, _, frames) in enumerate(flows):
            columns[:, : len(frames), at] = frames.T
            self.valid[: len(frames), at] = True
        self.modes = np.array([mode for mode, _, _ in flows])
        level, others, lost, self.retried, truth = columns
        full = np.array([FULL * most // MOST for _, most, _ in flows])
        self.own = np.maximum(level - others, 0)
        self.lost = np.where(level < full, lost, 0)
        total = np.vstack([np.zeros((1, shape[1]), dtype=np.int64), np.cumsum(level, axis=0)])
        self.mean = np.zeros(shape)
        self.mean[LEVELS - 1 :] = (total[LEVELS:] - total[:-LEVELS]) / LEVELS
        is_known = np.cumsum(self.own + self.lost, axis=0) >= PACKETS
        is_known[: LEVELS - 1] = False
        # A backhaul without losses cannot be distinguished from a network with less load: its frames are left
        # out from each change to the first loss.
        has_lost, shown = np.zeros(shape[1], dtype=bool), np.zeros(shape, dtype=bool)
        for at in range(shape[0]):
            has_lost = (truth[at] == 1) & (has_lost | (lost[at] > 0))
            shown[at] = has_lost
        self.wireless = self.valid & is_known & (truth == 0)
        self.backhaul = self.valid & is_known & shown
        self.loss = (lost * self.wireless).sum(axis=0)

    def sums(self, burst, drain, retry, cap):
        """S after each frame."""
        steps = np.minimum(self.lost, burst) - drain * self.own - retry * self.retried
        sums, last = np.zeros(steps.shape), np.zeros(steps.shape[1])
        for at, step in enumerate(steps):
            last = np.minimum(np.maximum(last + step, 0.0), cap)
            sums[at] = last
        return sums

    def errors(self, sums, half, slope):
        """The shares of false alarms and of misses by flow; NaN without frames to judge."""
        told = sums >= half + slope * self.mean
        alarms, misses = (told & self.wireless), (~told & self.backhaul)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (
                alarms.sum(axis=0) / self.wireless.sum(axis=0),
                misses.sum(axis=0) / self.backhaul.sum(axis=0),
            )


def tried(flows):
    """The errors by flow, for all settings."""
    found = {}
    for sum_settings in itertools.product(BURSTS, DRAINS, RETRIES, CAPS):
        sums = flows.sums(*sum_settings)
        for part, slope in itertools.product(PARTS, SLOPES):
            half = part * sum_settings[-1]
            found[(*sum_settings, half, slope)] = flows.errors(sums, half, slope)
    return found


def choose(found, among):
    """The settings with the minimum mean error over these flows; false alarms beyond MOST_ALARMS cost 100 times."""

    def cost(errors):
        alarms, misses = errors[0][among], errors[1][among]
        beyond = np.nansum(np.maximum(alarms - MOST_ALARMS, 0))
        return 100 * beyond + np.nanmean(alarms) + np.nanmean(misses)

    return min(found, key=lambda settings: cost(found[settings]))


def steepness(flows, settings):
    """The slope of the probability over S, from a logistic regression with a fixed threshold."""
    *sum_settings, half, slope = settings
    margin = flows.sums(*sum_settings) - half - slope * flows.mean
    rng = np.random.default_rng(SEED)
    judged = np.flatnonzero((flows.wireless | flows.backhaul).ravel())
    judged = rng.choice(judged, min(len(judged), 50_000), replace=False)
    x = margin.ravel()[judged][:, None]
    y = flows.backhaul.ravel()[judged]
    model = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10).fit(x, y)
    return float(model.coef_[0, 0])


class Locator:
    """Core's `Locator`, frame by frame."""

    def __init__(self, weights):
        self.weights = weights
        self.levels, self.sum, self.packets = [], 0.0, 0

    def on_frame(self, level, others, lost, retried):
        weights = self.weights
        own, lost = max(level - others, 0), lost if level < FULL else 0
        falls = weights["drain"] * own + weights["retry"] * retried
        self.sum = min(max(self.sum + min(lost, weights["burst"]) - falls, 0.0), weights["cap"])
        self.levels = (self.levels + [float(level)])[-LEVELS:]
        self.packets += own + lost
        if len(self.levels) < LEVELS or self.packets < PACKETS:
            return None
        weighed = weights["level"] * sum(self.levels)
        return 1 / (1 + np.exp(-(weights["intercept"] + weighed + weights["loss"] * self.sum)))


def weights_of(settings, slope_of_sum):
    burst, drain, retry, cap, half, slope = settings
    return {
        "level": -slope_of_sum * slope / LEVELS,
        "loss": slope_of_sum,
        "intercept": -slope_of_sum * half,
        "burst": burst,
        "drain": drain,
        "retry": retry,
        "cap": cap,
    }


def example(weights):
    """Frames in the format of core's tests, with the probabilities that numpy computes."""
    rng = random.Random(SEED)
    locator = Locator(weights)
    out = io.StringIO()
    out.write("level,others,lost,retried,probability\n")
    level = 20
    for number in range(400):
        level = min(64, max(1, level + rng.randint(-4, 4)))
        # Quiet and busy phases of the same length, so that both answers occur.
        is_busy = number % 100 < 50
        lost = rng.choice((0, 1, 3, 8)) if is_busy else 0
        retried = rng.choice((0, 0, 2)) if is_busy else rng.choice((0, 5))
        others = level // 3 if number % 20 < 5 else 0
        probability = locator.on_frame(level, others, lost, retried)
        told = "" if probability is None else repr(float(probability))
        out.write(f"{level},{others},{lost},{retried},{told}\n")
    return out.getvalue()


def toml(weights, data, samples, f1):
    levels = ", ".join([repr(weights["level"])] * LEVELS)
    return f"""\
version = 2
levels = [{levels}]
loss = {weights["loss"]!r}
intercept = {weights["intercept"]!r}
packets = {PACKETS}
burst = {weights["burst"]}
drain = {weights["drain"]!r}
retry = {weights["retry"]!r}
cap = {weights["cap"]!r}
full = {FULL}
most = {MOST}

[training]
data = "{data}"
seed = {SEED}
samples = {samples}
f1 = {round(float(f1), 4)!r}
"""


def f1_of(flows, errors):
    """The F1 score over all judged frames."""
    alarms = np.nansum(errors[0] * flows.wireless.sum(axis=0))
    backhaul = flows.backhaul.sum(axis=0)
    missed = np.nansum(errors[1] * backhaul)
    hits = backhaul.sum() - missed
    return 2 * hits / (2 * hits + missed + alarms)


def fit(flows):
    """The weights, and the errors by flow of settings chosen without the flow's mode."""
    found = tried(flows)
    left_out = [np.full(len(flows.modes), np.nan) for _ in range(2)]
    for mode in np.unique(flows.modes):
        out = flows.modes == mode
        settings = choose(found, ~out)
        for into, errors in zip(left_out, found[settings]):
            into[out] = errors[out]
    settings = choose(found, np.ones(len(flows.modes), dtype=bool))
    return weights_of(settings, steepness(flows, settings)), settings, left_out


def train(freshline, work):
    runs = collect(freshline, work, settings())
    print(f"{len(runs)} runs")
    print("the thesis's classifier, F1 over modes left out in turn, over n levels and p packets (Figure 4.17):")
    print("  n \\ p " + "".join(f"{packets:>8}" for packets in (50, 100, 200, 400)))
    for levels in (1, 5, 10):
        scores = []
        for packets in (50, 100, 200, 400):
            features, truths, groups = samples(runs, levels, packets)
            scores.append(f1_score(truths, cross_validated(features, truths, groups)))
        print(f"  {levels:>5} " + "".join(f"{score:>8.4f}" for score in scores))
    flows = Flows(runs)
    weights, chosen, errors = fit(flows)
    names = ("burst", "drain", "retry", "cap", "half", "slope")
    print("chosen: " + ", ".join(f"{name} {value:g}" for name, value in zip(names, chosen)))
    quiet = flows.loss == 0
    for kind, part in (("without loss", errors[0][quiet]), ("with losses of the radio", errors[0][~quiet])):
        print(f"false alarms in runs {kind}, of modes left out: mean {np.nanmean(part):.4f}, most {np.nanmax(part):.4f}")
    print(f"misses from the first loss on: mean {np.nanmean(errors[1]):.4f}, most {np.nanmax(errors[1]):.4f}")
    judged = int((flows.wireless | flows.backhaul).sum())
    data = "the lab: wlan/bottleneck-rate, -moves and -air, as tools/wlan/locator.py sets them"
    text = toml(weights, data, judged, f1_of(flows, errors))
    return {"bottleneck.toml": text, "bottleneck.example.csv": example(weights)}


def small(freshline, folder):
    """Weights from a tenth of the settings, and numpy's predictions for other frames."""
    flows = Flows(collect(freshline, folder, list(settings())[::10]))
    weights, _, errors = fit(flows)
    judged = int((flows.wireless | flows.backhaul).sum())
    (folder / "bottleneck.toml").write_text(toml(weights, "small", judged, f1_of(flows, errors)))
    (folder / "bottleneck.csv").write_text(example(weights))


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "small":
        sys.exit(__doc__)
    small(sys.argv[2], Path(sys.argv[3]))
