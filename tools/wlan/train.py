"""Trains the estimators of core::wlan: `make train`.

Each set of weights has a module of the same name, with a function

    train(freshline, work) -> files    the files of its weights, name -> text

where `freshline` is the built command that generates the data, and `work` a folder for intermediate
files. `train` prints its progress to standard output. The same commit gives the same bytes: this
command reports whether the result is equal to the shipped weights, and otherwise replaces them.

    train.py [NAME ...] [--check]      --check writes nothing; 1 if a file came out differently
    train.py --from FILE ...           the estimators of frames, from recordings of a real card
                                       (recordings.py), into a folder of their own
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

# Modules in this folder, imported after the number of threads is set.
MODULES = ("frames", "locator")
ROOT = Path(__file__).resolve().parent.parent.parent
WEIGHTS = ROOT / "crates/core/src/wlan/weights"
WORK = ROOT / "target/train"


def build():
    """The command, in the profile of the tests, in which laws and lab are optimised, too."""
    subprocess.run(["cargo", "build", "--quiet", "-p", "freshline"], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "debug/freshline"


def from_recordings(files, to, max_packets):
    """Trains from recordings of a real card; the shipped weights are not changed."""
    import frames

    try:
        made = frames.train_from(files, max_packets)
    except frames.Bad as error:
        sys.exit(f"error: {error}")
    try:
        to.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (to / name).write_text(text)
    except OSError as error:
        sys.exit(f"error: cannot write to {to}: {error}; give another folder by --to")
    words = f"--weights {to / 'frames.toml'}"
    if "levels.toml" in made:
        words += f" --counting svm --level-weights {to / 'levels.toml'}"
    if max_packets != frames.MOST:
        words += f" --max-packets {max_packets}"
    print(f"written; use them with: freshline wlan receive {words} …")


def main():
    parser = argparse.ArgumentParser(description="Trains the estimators of core::wlan.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all by default")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on differences")
    parser.add_argument(
        "--from",
        dest="recorded",
        nargs="+",
        metavar="FILE",
        help="train from recordings of `freshline wlan receive --capture … --packet-log FILE`",
    )
    parser.add_argument(
        "--to",
        type=Path,
        default=WORK / "recorded",
        metavar="FOLDER",
        help="where weights from recordings go; target/train/recorded by default",
    )
    parser.add_argument(
        "--max-packets",
        type=int,
        default=64,
        metavar="N",
        help="the most packets of a frame in the recordings; 64 by default, 128 with A-MSDUs",
    )
    args = parser.parse_args()
    if args.recorded:
        if args.names or args.check:
            parser.error("--from trains the estimators of frames, and takes neither NAME nor --check")
        if not 1 <= args.max_packets <= 1024:
            parser.error("--max-packets: give 1 to 1024")
        return from_recordings(args.recorded, args.to, args.max_packets)
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
                print(f"{file}: identical to the shipped file")
                continue
            differs = True
            print(f"{file}: differs from the shipped file")
            if not args.check:
                WEIGHTS.mkdir(parents=True, exist_ok=True)
                shipped.write_text(text)
                print(f"{file}: written to {shipped.relative_to(ROOT)}")
    sys.exit(1 if differs and args.check else 0)


if __name__ == "__main__":
    main()
