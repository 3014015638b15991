"""Checks the documents: `make docs-check`, or scripts/docs-check [--verbose] [--links] [PAGE...].

It checks that links and anchors exist, that pages are in the book's summary, that diagrams are up to date
(diagrams.py), and that the commands of each page run. A page is a session (session.py): its commands run in
order in a temporary folder; as root in namespaces of their own (sandbox.py), otherwise only commands that need
no root. not-run.toml lists the commands that are not run, with the reason; sessions.toml has the requirements
of sessions, and shortened commands. Snippets of Python run in the tests of the package
(crates/py/tests/test_docs.py and test_pages.py).

FRESHLINE is the command to run; by default target/release/freshline or target/debug/freshline, which is
built if both are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import commands as commands_of
import diagrams
import links
import markdown
import rules as rules_of
import sandbox
from session import Session

ROOT = Path(__file__).resolve().parents[2]
PAGE_TIMEOUT = 150.0
STOPPED = threading.Event()
AT_ROOT = ("README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")


def all_pages() -> list[str]:
    found = [ROOT / name for name in AT_ROOT]
    found += sorted((ROOT / "crates").glob("*/README.md")) + sorted((ROOT / "docs").rglob("*.md"))
    return [str(path.relative_to(ROOT)) for path in found]


def built_command() -> Path:
    if given := os.environ.get("FRESHLINE"):
        return Path(given).resolve()
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    for profile in ("release", "debug"):
        if (target / profile / "freshline").is_file():
            return target / profile / "freshline"
    subprocess.run(["cargo", "build", "--quiet", "-p", "freshline-cli"], cwd=ROOT, check=True)
    return target / "debug/freshline"


def run_session(path: str, report: Path) -> None:
    """In the sandbox: runs a page, and writes its outcomes and the rules that it used."""
    rules = rules_of.load()
    outcomes = Session(path, ROOT, rules, built_command()).run(markdown.read(ROOT, path))
    used = {
        "not_run": [at for at, entry in enumerate(rules.not_run) if entry.is_used],
        "commands": [at for at, rule in enumerate(rules.commands) if rule.is_used],
    }
    report.write_text(json.dumps({"outcomes": outcomes, **used}), encoding="utf-8")


def run_page(path: str, freshline: Path, rules: rules_of.Rules) -> dict:
    """Starts the session of a page, and returns its report."""
    if STOPPED.is_set():
        stopped = {"line": 1, "text": "", "verdict": "failed", "detail": "the check was stopped"}
        return {"outcomes": [stopped], "not_run": [], "commands": [], "page": path, "seconds": 0.0}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="docs-check-") as folder:
        report = Path(folder, "report")
        command = ["env", f"FRESHLINE={freshline}", sys.executable, str(Path(__file__).parent)]
        command += ["--session", path, "--report", str(report)]
        code, output = sandbox.run(command, rules.pages.get(path, rules_of.PageRule()).hosts, PAGE_TIMEOUT)
        if report.exists():
            found = json.loads(report.read_text(encoding="utf-8"))
        else:
            why = "took too long" if code is None else f"exit code {code}"
            detail = f"the session ended early ({why}): {output.strip()[-500:]}"
            found = {"outcomes": [{"line": 1, "text": "", "verdict": "failed", "detail": detail}], "not_run": [], "commands": []}
    return found | {"page": path, "seconds": time.monotonic() - began}


def check_sessions(paths: list[str], is_verbose: bool, is_complete: bool) -> tuple[list[str], dict[str, int]]:
    rules = rules_of.load()
    freshline = built_command()
    counts = {"passed": 0, "failed": 0, "not run": 0, "interrupted": 0}
    failures: list[str] = []
    # Without namespaces of their own, two pages would use the same ports.
    with ThreadPoolExecutor(2 if sandbox.is_root() else 1) as pool:
        for report in pool.map(lambda path: run_page(path, freshline, rules), paths):
            for at in report["not_run"]:
                rules.not_run[at].is_used = True
            for at in report["commands"]:
                rules.commands[at].is_used = True
            if is_verbose:
                print(f"{report['page']}: {report['seconds']:.1f} s", flush=True)
            for outcome in report["outcomes"]:
                counts[outcome["verdict"]] += 1
                counts["interrupted"] += outcome.get("is_interrupted", False)
                line = f"{report['page']}:{outcome['line']}: {outcome['verdict']}: {outcome['text']}"
                line += f": {outcome['detail']}" if outcome["detail"] else ""
                if outcome["verdict"] == "failed":
                    failures.append(line)
                    print(line, flush=True)
                elif is_verbose:
                    print(line, flush=True)
    if is_complete:
        unused = [f"not-run.toml: {it.page}: `{it.command}`" for it in rules.not_run if not it.is_used]
        if sandbox.is_root():
            unused += [f"sessions.toml: {it.page}: `{it.command}`" for it in rules.commands if not it.is_used]
        unused += [f"sessions.toml: {path}" for path in rules.pages if path not in paths]
        failures += [f"tools/docs/{entry} matches no command; remove it" for entry in unused]
        print("".join(f"{failure}\n" for failure in failures[len(failures) - len(unused) :]), end="")
    return failures, counts


def stop(*_: object) -> None:
    """On SIGINT and SIGTERM: ends the sessions; the threads of the pool then end by themselves."""
    sandbox.end_all()
    STOPPED.set()


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the documents: links, anchors, and commands that run.")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="check the commands of these pages only")
    parser.add_argument("--links", action="store_true", help="check links, anchors and diagrams only")
    parser.add_argument("--verbose", action="store_true", help="print each command with its outcome")
    parser.add_argument("--session", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.session:
        run_session(arguments.session, arguments.report)
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    paths = all_pages()
    pages = [markdown.read(ROOT, path) for path in paths]
    found = links.check(ROOT, pages)
    failures = found.failures + diagrams.outdated()
    print("".join(f"{failure}\n" for failure in failures), end="")
    counts = {"passed": 0, "failed": 0, "not run": 0, "interrupted": 0}
    if not arguments.links:
        wanted = [page.path for page in pages if commands_of.of_page(page)]
        wanted = [path for path in wanted if path in arguments.pages or not arguments.pages]
        failed, counts = check_sessions(wanted, arguments.verbose, not arguments.pages)
        failures += failed
    summary = f"{found.links} links, {found.anchors} anchors, {counts['passed']} commands passed"
    if counts["interrupted"]:
        summary += f" ({counts['interrupted']} of them stopped by Ctrl-C)"
    print(f"{summary}, {counts['failed']} failed, {counts['not run']} not run")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
