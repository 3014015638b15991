"""Finds the shell commands of a page's blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass

import markdown

SHELL = ("sh", "bash", "shell")
PLAIN = ("", "text", "console")
# In a block without a label whose first line starts with one of these, each line is a command.
PROGRAMS = re.compile(r"(?:freshline|cargo|make|sudo|ip|mkfifo|python3|pip|time|scripts/\S+)\s|.*\| freshline\s")


@dataclass(frozen=True)
class Command:
    """A command, its lines joined, and the output that the page shows below it."""

    line: int
    block: int
    text: str
    shown: str = ""


def of_page(page: markdown.Page) -> list[Command]:
    return [command for block in page.blocks for command in of_block(block)]


def of_block(block: markdown.Block) -> list[Command]:
    if block.file:
        return []
    has_prompts = any(line.startswith("$ ") for line in block.lines)
    if block.label in SHELL or block.label in PLAIN:
        if has_prompts:
            return after_prompts(block)
        if block.label in SHELL or PROGRAMS.match(f"{first(block)} "):
            return each_line(block)
    return []


def joined(lines: list[str]) -> str:
    """The lines of a command that continues after a backslash."""
    return " ".join(line.removesuffix("\\").strip() for line in lines)


def first(block: markdown.Block) -> str:
    return next((command.text for command in each_line(block)), "")


def after_prompts(block: markdown.Block) -> list[Command]:
    found: list[Command] = []
    lines = list(block.lines)
    at = 0
    while at < len(lines):
        if not lines[at].startswith("$ "):
            at += 1
            continue
        start = at
        while lines[at].endswith("\\") and at + 1 < len(lines):
            at += 1
        at += 1
        shown = at
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        text = joined([lines[start].removeprefix("$ "), *lines[start + 1 : shown]])
        found.append(Command(block.number_of(start), block.line, text, "\n".join(lines[shown:at])))
    return found


def each_line(block: markdown.Block) -> list[Command]:
    found: list[Command] = []
    parts: list[str] = []
    for number, line in enumerate(block.lines, block.number_of(0)):
        if not parts and (not line.strip() or line.lstrip().startswith("#")):
            continue
        parts.append(line)
        if line.endswith("\\"):
            continue
        found.append(Command(number - len(parts) + 1, block.line, joined(parts)))
        parts = []
    return found
