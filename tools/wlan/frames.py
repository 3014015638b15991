"""Trains the estimators of the first packets of Wi-Fi frames from kernel timestamps, and of levels under high load.

Hassani, MSc thesis, sections 4.4.1 and 4.4.2: a threshold (m = 1), a logistic regression over the last m = 20 gaps
and their deviation (4.3, 4.4), and support vectors over d = 5 slots of 100 ms (4.5). Data comes from
the lab, `scenarios/wlan/kernel-stamps.toml`, with the stamps of a handset, and on a slow channel with
those of the loopback, or from recordings of a real card (recordings.py).
crates/core/src/wlan/estimator evaluates the weights.

Where the thesis is silent: cross-validation leaves out one of 20 blocks of time, at all rates at once, and
samples that share gaps with a neighbouring block are in no fold; the logistic regression has almost no regularisation
(C = 1e6); the support vectors are a regression trained on rates up to full frames, with C and γ from
cross-validation by runs, over a grid that is extended until the optimum is inside it.

    frames.py small FRESHLINE FOLDER     a small training, with scikit-learn's predictions for packets and
                                         slots outside the training data, for crates/cli/tests/training.rs
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR, LinearSVC

import recordings
from recordings import Bad

SEED = 20
HELD_OUT = SEED + 1000
SCENARIO = "wlan/kernel-stamps"
WARM_UP = 0.5
PACKET_BITS = 12_000
M = 20
D = 5
MOST = 64
SLOT = 100_000_000
FOLDS = 20
TRAINED = range(100, 601, 50)
# A slow channel, on which packets arrive as over the loopback behind the path emulator.
SLOW = {
    "cell.wifi.radio.rate": '"mcs4"',
    "cell.wifi.radio.width": '"40MHz"',
    "cell.wifi.radio.streams": "1",
    "cell.wifi.radio.guard": '"long"',
    "flow.video.downlink.stamps": '"loopback"',
}
SLOW_TRAINED = (10, 20, 30, 40, 50, 60, 65)
SLOTS_TRAINED = range(100, 701, 25)
# Runs at each rate, for the slots, each with a seed of its own: these are the folds of the support vectors.
SLOT_RUNS = 5
# Modes outside the training data: streams, MCS, and rates up to nearly full frames.
HELD_OUT_MODES = ((1, 7, (60, 150, 220)), (2, 4, (100, 200, 280)), (3, 8, (200, 450, 700)))
# The minimum number of slots for support vectors from recordings.
LEAST_SLOTS = 200
SHOWN = [50, *range(100, 701, 50)]


def simulate(freshline, work, mbps, seconds, seed, settings=None):
    """Simulates `seconds` at a send rate, with changed settings of the scenario."""
    settings = [f"{key}={value}" for key, value in (settings or {}).items()]
    file = work / f"{mbps}-{seed}.csv"
    subprocess.run(
        [freshline, "lab", "packets", SCENARIO, "--out", file, "--seed", str(seed)]
        + ["--set", "sweep={}", "--set", f'flow.video.downlink.law.rate="{mbps}mbit"']
        + ["--set", f"warm_up='{WARM_UP}s'", "--set", f"duration='{WARM_UP + seconds:.3f}s'"]
        + [part for setting in settings for part in ("--set", setting)],
        check=True,
    )
    packets = recordings.read(file, M, least=0)
    file.unlink()
    return packets


def stacked(packets):
    """Features and labels of all packets with a known label, and a mask of these packets."""
    features = np.vstack([p.features for p in packets])
    labels = np.concatenate([p.labels for p in packets])
    known = np.concatenate([p.known for p in packets])
    return features[known], labels[known], known


def fit_threshold(features, labels):
    """The threshold of the gap, to half a µs, that classifies first packets with the best F1."""
    newest = features[:, M - 1]
    edges = np.arange(0.0, 1000.5, 0.5)
    first = np.histogram(newest[labels], edges)[0][::-1].cumsum()[::-1]
    other = np.histogram(newest[~labels], edges)[0][::-1].cumsum()[::-1]
    beyond = [np.count_nonzero(newest[which] > edges[-1]) for which in (labels, ~labels)]
    found, wrong = first + beyond[0], other + beyond[1]
    f1 = 2 * found / (found + wrong + np.count_nonzero(labels))
    return float(edges[np.argmax(f1)])


def fit_logistic(features, labels):
    # Newton's method converges to the last digits, so that the result does not depend on its steps.
    return make_pipeline(
        StandardScaler(),
        LogisticRegression(C=1e6, solver="newton-cholesky", tol=1e-10),
    ).fit(features, labels)


def cross_validate(features, labels, fold):
    """F1 of threshold and logistic regression in each fold."""
    scores = []
    for number in np.unique(fold[fold >= 0]):
        out, seen = fold == number, (fold != number) & (fold >= 0)
        threshold = fit_threshold(features[seen], labels[seen])
        logistic = fit_logistic(features[seen], labels[seen])
        by_gap = features[out][:, M - 1] >= threshold
        scores.append(
            [f1_score(labels[out], by_gap), f1_score(labels[out], logistic.predict(features[out]))]
        )
    return np.array(scores)


def sweep(seen, cost=1e6, folds=5, most=8_000):
    """F1 over m, by logistic and hinge loss, with and without the deviation (Figure 4.12 a)."""
    print("F1 over m gaps: logistic and hinge loss (linear SVM), with and without the deviation")
    print("   m  logistic   hinge | without deviation: logistic   hinge")
    for m in (1, 2, 5, 10, 20, 40):
        # Each m needs windows of its own length.
        runs = [recordings.Packets(p.kernel[:most], np.cumsum(p.is_first[:most]), m) for p in seen]
        x = np.vstack([run.features for run in runs])
        y = np.concatenate([run.labels for run in runs])
        fold = recordings.blocks(runs, folds)
        scores = []
        for columns in (m + 1, m):
            for model in (
                LogisticRegression(C=cost, solver="newton-cholesky", tol=1e-8),
                LinearSVC(C=1.0, dual=False, tol=1e-6),
            ):
                told = np.zeros(len(y), dtype=bool)
                for number in range(folds):
                    out, rest = fold == number, (fold != number) & (fold >= 0)
                    fitted = make_pipeline(StandardScaler(), model).fit(x[rest, :columns], y[rest])
                    told[out] = fitted.predict(x[out, :columns])
                scores.append(f1_score(y[fold >= 0], told[fold >= 0]))
        print(f"{m:>4} {scores[0]:9.4f} {scores[1]:7.4f} | {scores[2]:28.4f} {scores[3]:7.4f}")


def slots(packets, is_first, longest=MOST):
    """For each slot with frames: its number, the mean, variance and number of their levels, and the true mean.

    `is_first` is for the packets after the first M."""
    kernel = packets.kernel[M:]

    def frames(labels, most):
        """The first packets of frames, and the frames' numbers of packets; the last frame is incomplete."""
        begins = np.flatnonzero(labels)
        at, level = [], []
        for begin, end in zip(begins[:-1], begins[1:]):
            for part in range(begin, end, most):
                at.append(part)
                level.append(min(most, end - part))
        return (kernel[np.array(at, dtype=int)] - kernel[0]) // SLOT, np.array(level, dtype=float)

    told_at, told = frames(is_first, longest)
    true_at, true = frames(packets.labels, 1 << 30)
    rows = []
    # The first and the last slot are incomplete.
    for slot in range(1, int(true_at.max(initial=0))):
        mine, truth = told[told_at == slot], true[true_at == slot]
        if len(mine) and len(truth):
            rows.append((slot, mine.mean(), mine.var(), len(mine), truth.mean()))
    return rows


def level_samples(rows):
    """X of (4.5) and the true levels, from the first D consecutive slots on."""
    features, levels, plain = [], [], []
    for end in range(D - 1, len(rows)):
        last = rows[end - D + 1 : end + 1]
        if last[-1][0] - last[0][0] == D - 1:
            features.append([row[1] for row in last] + [last[-1][2], last[-1][3]])
            levels.append(last[-1][4])
            plain.append(last[-1][1])
    return np.array(features).reshape(-1, D + 2), np.array(levels), np.array(plain)


def fit_svm(features, levels, cost, gamma):
    return make_pipeline(
        StandardScaler(), SVR(C=cost, gamma=gamma, epsilon=0.5, tol=1e-6)
    ).fit(features, levels)


def rmse(told, truth):
    return float(np.sqrt(np.mean((told - truth) ** 2))) if len(truth) else float("nan")


def choose_svm(samples, runs):
    """C and γ with the minimum error in cross-validation by runs, and the predictions for the left-out runs.

    `samples` are those of (4.5), and `runs` has the run of each sample. Neighbouring slots share four of
    five features, so that folds within a run would leak."""
    features = np.vstack([x for x, _, _ in samples])
    levels = np.concatenate([y for _, y, _ in samples])
    fold = np.concatenate([np.full(len(y), run) for run, (_, y, _) in zip(runs, samples)])
    errors = {}

    def told(cost, gamma):
        guesses = np.zeros(len(levels))
        for number in np.unique(fold):
            out = fold == number
            guesses[out] = fit_svm(features[~out], levels[~out], cost, gamma).predict(features[out])
        return guesses

    costs, gammas = [10.0, 30.0, 100.0], [0.02, 0.05, 0.15]
    while True:
        for pair in ((cost, gamma) for cost in costs for gamma in gammas):
            if pair not in errors:
                errors[pair] = rmse(told(*pair), levels)
        cost, gamma = min(errors, key=errors.get)
        if cost == costs[-1] and cost < 1e5:
            costs.append(cost * 3)
        elif cost == costs[0] and cost > 0.1:
            costs.insert(0, cost / 3)
        elif gamma == gammas[0] and gamma > 1e-4:
            gammas.insert(0, gamma / 2.5)
        elif gamma == gammas[-1] and gamma < 10:
            gammas.append(gamma * 2.5)
        else:
            break
    print(f"svm: {len(errors)} pairs of C up to {costs[-1]:g} and γ from {gammas[0]:g} to {gammas[-1]:g}")
    return fit_svm(features, levels, cost, gamma), cost, gamma, told(cost, gamma), levels


def toml_numbers(numbers):
    return "[" + ", ".join(repr(float(number)) for number in numbers) + "]"


def training_table(name, data, samples, f1):
    return (
        f"\n[{name}]\ndata = \"{data}\"\nseed = {SEED}\nsamples = {samples}\n"
        f"f1 = {float(f1)!r}\n"
    )


def frames_toml(threshold, logistic, data, samples, f1):
    scaler, model = logistic[0], logistic[1]
    theta = model.coef_[0] / scaler.scale_
    intercept = model.intercept_[0] - (theta * scaler.mean_).sum()
    return (
        "# Made by `make train`. Gaps in µs, the oldest first.\nversion = 1\n"
        f"\n[threshold]\ngap = {threshold!r}\n"
        + training_table("threshold.training", data, samples, f1[0])
        + f"\n[logistic]\ngaps = {toml_numbers(theta[:M])}\ndeviation = {float(theta[M])!r}\n"
        f"intercept = {float(intercept)!r}\n"
        + training_table("logistic.training", data, samples, f1[1])
    )


def levels_toml(svm, packets, data, samples, f1, most=MOST):
    scaler, machine = svm[0], svm[1]
    root = np.sqrt(machine._gamma)
    scale = root / scaler.scale_
    vectors = root * machine.support_vectors_ + scaler.mean_ * scale
    text = (
        "# Made by `make train`. f1 is that of the logistic whose slots these were.\nversion = 1\n"
        f"most = {most}\npackets = {float(packets)!r}\nintercept = {float(machine.intercept_[0])!r}\n"
        f"scale = {toml_numbers(scale)}\nvector = [\n"
    )
    for weight, at in zip(machine.dual_coef_[0], vectors):
        text += f"    {{ weight = {float(weight)!r}, at = {toml_numbers(at)} }},\n"
    return text + "]\n" + training_table("training", data, samples, f1)


def packets_a_slot(mbps):
    return mbps * 1e6 / PACKET_BITS * SLOT / 1e9


def fit_frames(seen, fold):
    """The threshold and the logistic regression of some runs, and their mean F1 over the folds."""
    features, labels, known = stacked(seen)
    scores = cross_validate(features, labels, fold[known])
    mean, deviation = scores.mean(axis=0), scores.std(axis=0)
    for name, f1, sd in zip(("threshold", "logistic"), mean, deviation):
        print(f"{name}: F1 {f1:.4f}, deviation {sd:.4f} over {len(scores)} folds")
    threshold = fit_threshold(features, labels)
    print(f"threshold: {threshold} µs")
    return threshold, fit_logistic(features, labels), mean, len(labels)


def fit_levels(samples, runs, rates):
    """The support vectors, and the packets per slot from which they replace the logistic regression.

    `rates` are packets per slot, one per sample; samples are sorted from low to high rates."""
    svm, cost, gamma, told, levels = choose_svm(samples, runs)
    plain = np.concatenate([z for _, _, z in samples])
    print(f"svm: C = {cost:g}, gamma = {gamma:g}, {len(svm[1].support_)} vectors;", end=" ")
    print(f"in cross-validation RMSE {rmse(told, levels):.2f}, logistic {rmse(plain, levels):.2f}")
    # The rate above which the support vectors were better at all rates.
    rate = np.concatenate([np.full(len(y), rate) for rate, (_, y, _) in zip(rates, samples)])
    distinct = sorted(set(rates))
    packets = distinct[-1] * 1.05
    for before, at in reversed(list(zip([0.0, *distinct], distinct))):
        part = rate == at
        if rmse(told[part], levels[part]) >= rmse(plain[part], levels[part]):
            break
        packets = (before + at) / 2
    print(f"svm: replaces the logistic from {packets:.0f} packets a slot on")
    return svm, packets, len(levels)


def train(freshline, work, count=100_000, seconds=3.0):
    """Trains the weights; prints intermediate results."""
    print(f"packets: {count} at each of {TRAINED[0]} to {TRAINED[-1]} Mbit/s, seed {SEED}")
    seen = [simulate(freshline, work, r, count * PACKET_BITS / r / 1e6, SEED) for r in TRAINED]
    sweep(seen)
    print(f"and {seconds} s at each of {SLOW_TRAINED} Mbit/s on a slow channel, by the loopback")
    seen += [simulate(freshline, work, r, seconds, SEED, SLOW) for r in SLOW_TRAINED]
    threshold, logistic, f1, samples = fit_frames(seen, recordings.blocks(seen, FOLDS))
    data = f"{SCENARIO}, {TRAINED[0]} to {TRAINED[-1]} Mbit/s; by the loopback, 10 to 65 Mbit/s"
    files = {"frames.toml": frames_toml(threshold, logistic, data, samples, f1)}

    print(f"slots: {SLOT_RUNS} runs at each of {SLOTS_TRAINED[0]} to {SLOTS_TRAINED[-1]} Mbit/s")
    of_slots, runs, rates = [], [], []
    for rate in SLOTS_TRAINED:
        for run in range(SLOT_RUNS):
            packets = simulate(freshline, work, rate, 2.0, SEED + 1 + run)
            of_slots.append(level_samples(slots(packets, logistic.predict(packets.features))))
            runs.append(run)
            rates.append(packets_a_slot(rate))
    svm, packets, samples = fit_levels(of_slots, runs, rates)
    data = f"{SCENARIO}, {SLOTS_TRAINED[0]} to {SLOTS_TRAINED[-1]} Mbit/s"
    files["levels.toml"] = levels_toml(svm, packets, data, samples, f1[1])

    print(f"\nheld out: seed {HELD_OUT}, {seconds} s at each rate")
    print("                F1                level, 100 ms slots           RMSE, packets")
    print("Mbit/s  threshold logistic    true threshold logistic  threshold logistic    svm")
    for rate in SHOWN:
        packets = simulate(freshline, work, rate, seconds, HELD_OUT)
        show(rate, packets, threshold, logistic, svm)
    print("on the slow channel, by the loopback; the support vectors are not for it")
    for rate in SLOW_TRAINED:
        packets = simulate(freshline, work, rate, seconds, HELD_OUT, SLOW)
        show(rate, packets, threshold, logistic, svm)
    for streams, mcs, mode_rates in HELD_OUT_MODES:
        print(f"a mode that was not trained on: MCS {mcs}, {streams} streams")
        mode = {"cell.wifi.radio.rate": f'"mcs{mcs}"', "cell.wifi.radio.streams": str(streams)}
        for rate in mode_rates:
            packets = simulate(freshline, work, rate, 2.0, HELD_OUT, mode)
            show(rate, packets, threshold, logistic, svm)
    return files


def train_from(files, most=MOST):
    """The weights from recordings (`recordings.py`); without levels.toml if the data do not suffice.

    Raises Bad with the missing data."""
    runs = recordings.read_all(files, M)
    fold = recordings.folds(runs, FOLDS)
    kind = "runs" if len(runs) >= 5 else "blocks of time, as there are fewer than 5 recordings"
    print(f"{len(runs)} recordings; folds are {kind}")
    threshold, logistic, f1, samples = fit_frames(runs, fold)
    data = ", ".join(Path(file).name for file in files).replace('"', "'")
    made = {"frames.toml": frames_toml(threshold, logistic, data, samples, f1)}
    of_slots = [
        level_samples(slots(run, logistic.predict(run.features), most)) for run in runs
    ]
    count = sum(len(y) for _, y, _ in of_slots)
    if len(runs) < 5 or count < LEAST_SLOTS:
        print(
            f"levels.toml is not made: support vectors need 5 recordings and {LEAST_SLOTS} slots of "
            f"100 ms, each behind four others, and here are {len(runs)} and {count}; record at more "
            "rates, or for longer"
        )
        return made
    # From low to high rates.
    seconds = [max((run.kernel[-1] - run.kernel[0]) / SLOT, 1.0) for run in runs]
    rates = [float(len(run.kernel) / length) for run, length in zip(runs, seconds)]
    of_some = [(at, sample) for at, sample in enumerate(of_slots) if len(sample[1])]
    svm, packets, samples = fit_levels(
        [sample for _, sample in of_some],
        [at for at, _ in of_some],
        [rates[at] for at, _ in of_some],
    )
    made["levels.toml"] = levels_toml(svm, packets, data, samples, f1[1], most)
    return made


def show(rate, packets, threshold, logistic, svm):
    by_gap = packets.features[:, M - 1] >= threshold
    told = logistic.predict(packets.features)
    x, truth, plain = level_samples(slots(packets, told))
    _, gap_truth, gap_level = level_samples(slots(packets, by_gap))
    print(
        f"{rate:6} {f1_score(packets.labels, by_gap):10.3f} {f1_score(packets.labels, told):8.3f}"
        f" {truth.mean():7.2f} {gap_level.mean():9.2f} {plain.mean():8.2f}"
        f" {rmse(gap_level, gap_truth):10.2f} {rmse(plain, truth):8.2f}"
        f" {rmse(svm.predict(x), truth):6.2f}"
    )


def small(freshline, folder):
    """A training with one second of data, and scikit-learn's predictions for data outside it."""
    folder.mkdir(parents=True, exist_ok=True)
    rates = (100, 300, 500, 600)
    seen = [simulate(freshline, folder, rate, 0.5, SEED) for rate in rates]
    features, labels, _ = stacked(seen)
    threshold, logistic = fit_threshold(features, labels), fit_logistic(features, labels)
    samples = []
    for rate in rates:
        packets = simulate(freshline, folder, rate, 2.5, SEED)
        samples.append(level_samples(slots(packets, logistic.predict(packets.features))))
    features = np.vstack([x for x, _, _ in samples])
    svm = fit_svm(features, np.concatenate([y for _, y, _ in samples]), 10.0, 0.1)
    f1 = f1_score(labels, logistic.predict(np.vstack([p.features for p in seen])))
    (folder / "frames.toml").write_text(
        frames_toml(threshold, logistic, "small", len(labels), (f1, f1))
    )
    (folder / "levels.toml").write_text(levels_toml(svm, 0.0, "small", len(features), f1))
    with open(folder / "packets.csv", "w") as out:
        for rate in (200, 400, 600):
            packets = simulate(freshline, folder, rate, 0.3, HELD_OUT)
            out.write("begin,\n")
            known = logistic.predict_proba(packets.features)[:, 1]
            for stamp, p in zip(packets.kernel, [""] * M + [repr(float(p)) for p in known]):
                out.write(f"{stamp},{p}\n")
    packets = simulate(freshline, folder, 550, 2.0, HELD_OUT)
    rows = slots(packets, logistic.predict(packets.features))
    known = svm.predict(level_samples(rows)[0])
    with open(folder / "slots.csv", "w") as out:
        for row, level in zip(rows, [""] * (D - 1) + [repr(float(level)) for level in known]):
            out.write(f"{float(row[1])!r},{float(row[2])!r},{row[3]},{level}\n")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] != "small":
        sys.exit(__doc__)
    small(sys.argv[2], Path(sys.argv[3]))
