"""Reads Markdown: fenced blocks, headings with their anchors, and links."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*([^\s`]*)[^`]*$")
LIST_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
INLINE_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)")
LINK_DEFINITION = re.compile(r"^\[[^\]]+\]:\s+(\S+)")
HTML_TARGET = re.compile(r"<(?:img|a|source)\b[^>]*?\s(?:src|href|srcset)=\"([^\"]+)\"")
HTML_ANCHOR = re.compile(r"<a\s+(?:name|id)=\"([^\"]+)\"")


@dataclass(frozen=True)
class Block:
    """A block of code: its first line, which may be a fence, its label, and the lines inside."""

    line: int
    label: str
    lines: tuple[str, ...]
    is_indented: bool = False
    # The file name under which the page asks to save it.
    file: str | None = None

    def number_of(self, at: int) -> int:
        """The number in the page of a line inside."""
        return self.line + at + (not self.is_indented)


@dataclass(frozen=True)
class Link:
    line: int
    target: str


@dataclass
class Page:
    """A page, parsed. `path` is relative to the root of the repository."""

    path: str
    blocks: list[Block] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    unclosed: int | None = None


def slug(heading: str) -> str:
    """The anchor of a heading, as mdBook and GitHub make it."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"<[^>]+>", "", text)
    kept = (letter for letter in text.lower() if letter.isalnum() or letter in "_- ")
    return "".join(kept).replace(" ", "-")


def saved_as(before: str) -> str | None:
    """The name of a file in the line before a block: "Save this as `NAME` …:", or "… `NAME`:" at its end."""
    found = re.search(r"[Ss]ave this as `([\w.-]+)`", before) or re.search(r"`([\w-]+\.(?:toml|py|yaml|sh))`:$", before)
    return found[1] if found else None


def without_code(line: str) -> str:
    """A line of prose with its code spans blanked."""
    return re.sub(r"(`+)(?:(?!\1).)+?\1(?!`)", lambda span: " " * len(span.group(0)), line)


def parse(path: str, text: str) -> Page:
    page = Page(path)
    seen: dict[str, int] = {}
    fence: re.Match[str] | None = None
    start, inside = 0, []
    lines = text.splitlines()
    indented = in_list = False
    before = ""
    for number, line in enumerate(lines, 1):
        if fence is not None:
            if line.strip().startswith(fence.group(2)) and not line.strip().strip(fence.group(2)[0]):
                page.blocks.append(Block(start, fence.group(3).split(",")[0], tuple(inside), file=saved_as(before)))
                fence = None
            else:
                inside.append(line.removeprefix(fence.group(1)))
            continue
        if fence := FENCE.match(line):
            start, inside = number, []
            before = next((it for it in reversed(lines[: number - 1]) if it.strip()), "")
            continue
        if line.startswith("    ") and (indented or not lines[number - 2].strip()) and not in_list:
            if not indented:
                start, inside = number, []
            indented = True
            inside.append(line.removeprefix("    "))
            continue
        if indented and line.strip():
            page.blocks.append(Block(start, "", tuple(inside), is_indented=True))
        indented = indented and not line.strip()
        if line[:1].strip():
            in_list = bool(LIST_ITEM.match(line))
        if heading := HEADING.match(line):
            name = slug(heading.group(1))
            count = seen.get(name, 0)
            seen[name] = count + 1
            page.anchors.add(f"{name}-{count}" if count else name)
        page.anchors.update(HTML_ANCHOR.findall(line))
        prose = without_code(line)
        targets = INLINE_LINK.findall(prose) + LINK_DEFINITION.findall(prose) + HTML_TARGET.findall(prose)
        # The text of a link may be a picture, which has a target of its own.
        targets += re.findall(r"!\[[^\]]*\]\(([^()\s]+)\)(?=\])", prose)
        page.links.extend(Link(number, target) for target in targets)
    if indented:
        page.blocks.append(Block(start, "", tuple(inside), is_indented=True))
    page.unclosed = start if fence is not None else None
    return page


def read(root: Path, path: str) -> Page:
    return parse(path, (root / path).read_text(encoding="utf-8"))
