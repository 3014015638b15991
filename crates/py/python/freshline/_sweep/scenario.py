"""The scenario of a sweep: its text, and the files that it reads."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from freshline._plain import plain_dict

from . import native
from .errors import SweepError

FILE_KEYS = ("trace", "file")
"""Keys of a scenario whose value is the name of a file: traces of hops, and topologies."""


@runtime_checkable
class HasDict(Protocol):
    """A scenario built in Python."""

    def to_dict(self) -> dict[str, object]:
        """The scenario as nested dicts and lists, with the keys of the TOML file."""
        ...


@dataclass(frozen=True)
class Source:
    """A scenario as text."""

    name: str
    """Name of a bundled scenario, path of a file, or title."""
    text: str
    """TOML."""
    folder: str | None
    """Absolute path of the folder to which file names are relative; None: bundled files."""
    files: dict[str, str]
    """SHA-256 of each file that the scenario or the grid names; not for bundled scenarios."""

    def identity(self) -> dict[str, object]:
        """Everything that decides the results. The path is not part of it."""
        bundled = self.name if self.folder is None else None
        return {"text": self.text, "files": self.files, "bundled": bundled}

    def check_files(self) -> None:
        """Raise `SweepError` if a file differs from the one that was planned."""
        for name, expected in self.files.items():
            if _digest(self.folder, name) != expected:
                raise SweepError(
                    f"the file {name}, relative to {self.folder}, changed since the sweep was "
                    "planned; restore it, or use another directory for the sweep"
                )


def resolve(scenario: object, combinations: list[dict[str, object]]) -> Source:
    """Find the scenario: a file, a bundled name, a dict, or an object with `to_dict()`."""
    if isinstance(scenario, HasDict):
        scenario = scenario.to_dict()
    folder: str | None = os.getcwd()
    if isinstance(scenario, Mapping):
        name = str(scenario.get("title", "scenario"))
        text = native.toml_of(plain_dict(scenario))
    elif isinstance(scenario, str | os.PathLike):
        name = os.fspath(scenario)
        path = Path(name)
        if path.is_file():
            text, folder = _read(path), str(path.resolve().parent)
        elif isinstance(scenario, str):
            text, folder = _bundled(name), None
        else:
            raise SweepError(f"cannot read the scenario {name}: there is no such file")
    else:
        raise SweepError(
            f"a scenario is a name, a path, a dict or an object with to_dict(), not {scenario!r}"
        )
    parsed = _parsed(name, text)
    _check_own_sweep(name, parsed, combinations)
    names = set() if folder is None else {*_named(parsed), *_named(combinations)}
    digests = {file: _digest(folder, file) for file in sorted(names)}
    return Source(name, text, folder, {file: d for file, d in digests.items() if d is not None})


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SweepError(f"the scenario {path} is not valid UTF-8: {error}") from error


def _bundled(name: str) -> str:
    try:
        return native.scenario_text(name)
    except Exception as error:
        raise SweepError(
            f"there is no file and no bundled scenario called {name!r}; "
            "freshline.lab.scenarios() lists the bundled ones"
        ) from error


def _check_own_sweep(
    name: str, parsed: dict[str, object], combinations: list[dict[str, object]]
) -> None:
    """Raise if the scenario has a `[sweep]` with a key that the grid lacks."""
    own = parsed.get("sweep")
    for key, values in own.items() if isinstance(own, dict) else ():
        if any(key not in changes for changes in combinations):
            raise SweepError(
                f"the scenario {name} sweeps `{key}` itself; list its values in the grid, such as "
                f"{{{key!r}: {values!r}}}"
            )


def _parsed(name: str, text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SweepError(f"the scenario {name} is not valid TOML: {error}") from error
    except RecursionError as error:
        raise SweepError(f"the scenario {name} has too many nested lists and tables") from error


def _named(value: object) -> Iterator[str]:
    """Names of files in a scenario or in changes, whose keys are paths such as `link.up.trace`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, str) and str(key).rpartition(".")[2] in FILE_KEYS:
                yield inner
            yield from _named(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner)


def _digest(folder: str | None, name: str) -> str | None:
    """SHA-256 of a file; None if it cannot be read: the native module reports that."""
    try:
        with open(Path(folder or "") / name, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
