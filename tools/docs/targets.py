"""Checks that a command's make targets, packages, tests and scripts exist, without running it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

KINDS = {"--test": "tests", "--example": "examples", "--bench": "benches"}


def missing(root: Path, text: str) -> str | None:
    """The target, package, test or script of the command that does not exist, or None."""
    words = text.split("#")[0].split()
    if script := next((word for word in words if re.match(r"(?:scripts|crates)/", word)), None):
        return None if (root / script).is_file() else f"{script}: no such file"
    if words[0] == "make":
        known = re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        wanted = [word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)]
        return next((f"no target {word} in the Makefile" for word in wanted if word not in known), None)
    if "cargo" in words:
        return missing_in_package(root, words)
    return None


def missing_in_package(root: Path, words: list[str]) -> str | None:
    values = dict(zip(words, words[1:]))
    if "-p" not in values:
        return None
    packages = {}
    for manifest in (root / "crates").glob("*/Cargo.toml"):
        with open(manifest, "rb") as file:
            packages[tomllib.load(file)["package"]["name"]] = manifest.parent
    folder = packages.get(values["-p"])
    if folder is None:
        return f"no package {values['-p']}"
    for flag, kind in KINDS.items():
        if name := values.get(flag):
            paths = [folder / kind / f"{name}.rs", folder / kind / name / "main.rs"]
            if not any(path.is_file() for path in paths):
                return f"{values['-p']} has no {name} in {kind}/"
    return None
