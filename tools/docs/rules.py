"""Reads not-run.toml (commands that the check does not run) and sessions.toml (requirements of sessions)."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass
class NotRun:
    """A command that is not run: its page, its first words, and the reason."""

    page: str
    command: str
    reason: str
    checked: bool = False
    is_used: bool = False


@dataclass
class CommandRule:
    """Applies to commands that start with `command`, on one page or, without `page`, on all.

    replace     regular expressions, and their replacements in the command
    exit        the expected exit code, if it is not 0
    interrupt   seconds until Ctrl-C; the exit code is then not a failure
    inside      the network namespace, made by the page's preparation
    before      shell commands that run first
    background  whether the next command starts while it runs
    """

    command: str
    page: str | None = None
    replace: dict[str, str] = field(default_factory=dict)
    exit: int = 0
    interrupt: float | None = None
    inside: str | None = None
    before: str = ""
    background: bool | None = None
    is_used: bool = False


@dataclass
class PageRule:
    """The preparation of a page's session before its first command."""

    hosts: dict[str, str] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    prepare: str = ""
    root: bool = False
    is_used: bool = False


@dataclass
class Rules:
    not_run: list[NotRun]
    commands: list[CommandRule]
    pages: dict[str, PageRule]
    optional: list[str]

    def reason_not_to_run(self, page: str, text: str) -> NotRun | None:
        for entry in self.not_run:
            if entry.page in ("*", page) and starts_with(text, entry.command):
                entry.is_used = True
                return entry
        return None

    def of_command(self, page: str, text: str) -> list[CommandRule]:
        """The rules of a command; rules for all pages come first."""
        found = [
            rule
            for rule in sorted(self.commands, key=lambda rule: rule.page is not None)
            if rule.page in (None, page) and starts_with(text, rule.command)
        ]
        for rule in found:
            rule.is_used = True
        return found

    def of_page(self, page: str) -> PageRule:
        rule = self.pages.setdefault(page, PageRule())
        rule.is_used = True
        return rule


def starts_with(text: str, first_words: str) -> bool:
    """Whether a command starts with these words; `sudo` is ignored."""
    return f"{text.removeprefix('sudo ')} ".startswith(f"{first_words} ")


def load() -> Rules:
    with open(HERE / "not-run.toml", "rb") as file:
        not_run = [NotRun(**entry) for entry in tomllib.load(file)["command"]]
    with open(HERE / "sessions.toml", "rb") as file:
        sessions: dict[str, Any] = tomllib.load(file)
    commands = [CommandRule(**entry) for entry in sessions.get("command", [])]
    pages = {path: PageRule(**entry) for path, entry in sessions.get("page", {}).items()}
    return Rules(not_run, commands, pages, sessions.get("optional", []))


def changed(text: str, rules: list[CommandRule]) -> str:
    for rule in rules:
        for pattern, replacement in rule.replace.items():
            text = re.sub(pattern, replacement, text)
    return text
