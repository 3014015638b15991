"""Runs the Python snippets of README.md with an interpreter that has the package.

Those of docs/python.md run in the package's own tests (crates/py/tests/test_docs.py).
"""

from __future__ import annotations

import os
import subprocess

import markdown

PAGES = ("README.md",)
TIMEOUT = 60.0


def check(pages: list[markdown.Page]) -> list[str]:
    interpreter = os.environ.get("FRESHLINE_PYTHON")
    found = [(page.path, block) for page in pages if page.path in PAGES for block in page.blocks if block.label == "python"]
    if not interpreter:
        print(f"Python snippets: {len(found)} skipped: needs the Python package ($FRESHLINE_PYTHON)")
        return []
    failures: list[str] = []
    for path, block in found:
        try:
            done = subprocess.run(
                [interpreter, "-c", "\n".join(block.lines)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=TIMEOUT, check=False,
            )
            why = f"exit code {done.returncode}: {done.stderr.strip()[-300:]}" if done.returncode else None
        except subprocess.TimeoutExpired:
            why = f"still runs after {TIMEOUT:g} s"
        if why:
            failures.append(f"{path}:{block.line}: {why}")
    print("".join(f"{failure}\n" for failure in failures), end="")
    print(f"Python snippets: {len(found) - len(failures)} passed, {len(failures)} failed")
    return failures
