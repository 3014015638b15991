"""Trains the estimators of core::wlan: `make train`.

One module a set of weights, which have its name. Each has

    train(freshline, work) -> files    the files of its weights, name -> text

where `freshline` is the built command, from which data comes, and `work` a folder of its own for
what is made on the way. What `train` says goes to standard output. The same commit gives the same
bytes; so this tells whether the weights that are shipped came out, and else writes those that did.

    train.py [NAME ...] [--check]      --check writes nothing; 1 if a file came out differently
"""

import argparse
import importlib
import os
import subprocess
import sys
from pathlib import Path

# One thread: sums keep their order, and so their last bits.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

# Beside this file; imported once the number of threads is set.
MODULES = ("frames", "locator")
ROOT = Path(__file__).resolve().parent.parent.parent
WEIGHTS = ROOT / "crates/core/src/wlan/weights"
WORK = ROOT / "target/train"


def build():
    """The command as the tests have built it; laws and lab are optimised there too."""
    subprocess.run(["cargo", "build", "--quiet", "-p", "freshline"], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "debug/freshline"


def main():
    parser = argparse.ArgumentParser(description="Trains the estimators of core::wlan.")
    parser.add_argument("names", nargs="*", help="which; all unless said")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    args = parser.parse_args()
    known = {name: importlib.import_module(name) for name in MODULES}
    for name in args.names:
        if name not in known:
            parser.error(f"`{name}` trains nothing; there is: {', '.join(known)}")
    freshline = build()
    differs = False
    for name in args.names or known:
        work = WORK / name
        work.mkdir(parents=True, exist_ok=True)
        for file, text in known[name].train(freshline, work).items():
            shipped = WEIGHTS / file
            before = shipped.read_text() if shipped.exists() else None
            if before == text:
                print(f"{file}: to the byte what is shipped")
                continue
            differs = True
            print(f"{file}: differs from what is shipped")
            if not args.check:
                WEIGHTS.mkdir(parents=True, exist_ok=True)
                shipped.write_text(text)
                print(f"{file}: written to {shipped.relative_to(ROOT)}")
    sys.exit(1 if differs and args.check else 0)


if __name__ == "__main__":
    main()
