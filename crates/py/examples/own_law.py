"""A custom law in the lab, compared with those of Freshline over a cellular path.

python own_law.py [RUNS]
"""

import sys

import freshline
from freshline import lab


class TwoInFlight(lab.Law):
    """Keeps two updates in flight: a period of half a smoothed round trip."""

    def __init__(self) -> None:
        self.srtt: float | None = None

    def on_ack(self, now: float, ack: lab.Ack) -> None:
        self.srtt = ack.rtt if self.srtt is None else 0.8 * self.srtt + 0.2 * ack.rtt
        self.rate = 2 / max(self.srtt, 1e-3)


def main(runs: int) -> None:
    results = {"TwoInFlight": lab.run("fresher/cellular", runs=runs, laws={"source": TwoInFlight})}
    for law in ("lazy", "acp+d", "tenth"):
        results[law] = lab.run("fresher/cellular", {"flow.source.updates.law": law}, runs=runs)
    for law, result in sorted(results.items(), key=lambda each: each[1].value("age_mean", "source")):
        ages = [
            1e3 * value
            for name, of, value in zip(result.runs["name"], result.runs["of"], result.runs["value"], strict=True)
            if (name, of) == ("age_mean", "source")
        ]
        half = freshline.confidence(ages)
        interval = f" ± {half:.0f}" if half is not None else ""
        print(f"{law:<12} mean age {sum(ages) / len(ages):4.0f}{interval} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
