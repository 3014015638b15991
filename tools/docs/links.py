"""Checks that every relative link and anchor exists, and that the book's summary has every page."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from posixpath import dirname, normpath
from urllib.parse import unquote

import markdown

SUMMARY = "docs/SUMMARY.md"


@dataclass
class Found:
    links: int = 0
    anchors: int = 0
    failures: list[str] = field(default_factory=list)


def check(root: Path, pages: list[markdown.Page]) -> Found:
    found = Found()
    known = {page.path: page for page in pages}
    for page in pages:
        if page.unclosed is not None:
            found.failures.append(f"{page.path}:{page.unclosed}: this block has no closing fence")
        for link in page.links:
            if "://" in link.target or link.target.startswith("mailto:"):
                continue
            failure = check_link(root, known, page.path, link.target, found)
            if failure:
                found.failures.append(f"{page.path}:{link.line}: {link.target}: {failure}")
    found.failures.extend(missing_in_summary(known))
    return found


def check_link(root: Path, known: dict[str, markdown.Page], path: str, target: str, found: Found) -> str | None:
    """The reason why the link is broken, or None."""
    file, _, anchor = target.partition("#")
    found.links += 1
    there = normpath(f"{dirname(path)}/{unquote(file)}".lstrip("/")) if file else path
    if there.startswith("..") or not (root / there).exists():
        # The lab's page is built next to the book.
        return None if path.startswith("docs/") and file.startswith("lab/") else "no such file"
    if not anchor:
        return None
    found.anchors += 1
    if not there.endswith(".md"):
        return None
    if there not in known:
        known[there] = markdown.read(root, there)
    return None if unquote(anchor) in known[there].anchors else "no such anchor"


def missing_in_summary(known: dict[str, markdown.Page]) -> list[str]:
    if SUMMARY not in known:
        return []
    listed = {normpath(f"docs/{link.target}") for link in known[SUMMARY].links}
    return [
        f"{path}:1: {SUMMARY} does not list this page"
        for path in known
        if path.startswith("docs/") and path != SUMMARY and path not in listed
    ]
