#!/usr/bin/env python3
"""Counts phrases in the prose of this repository that plain technical English avoids.

    tools/prose/count.py [--max RATE] [--worst N] [--only documents|comments|scenarios] [FILE ...]

Without files it reads the documents (`*.md` at the root, in `docs/` and in `crates/`), the comments and the
messages of Rust (`///`, `//!` and `//`, and string literals of four words or more), and the
titles and descriptions of scenarios. It prints one line per file (count, words, count per 1,000 words) and the
lines with most findings. With `--max` it exits with 1 if the rate of the total, or of a file of more than 300
words, is above RATE. Files in `tools/prose/allow.txt` are counted, but do not fail and are not part of the
total.

Not read: code blocks and code spans, link targets and URLs, HTML comments, block quotes, and text in
double quotes (titles and quotations of papers).

Headless relative clauses are:

* `what` that heads a noun phrase ("what waits is dropped"), `whoever`, `those that`, `those who`, and
  `who` or `whom` after anything but a word for people ("a user who").
* Not counted are questions and indirect questions: `what` directly after a verb of asking, finding out,
  knowing or showing ("shows what the law does"), or after "no matter", and `what` before an infinitive
  ("what to do") or the reader ("what you have").
* "What waits" and its like (`ALWAYS`) count in indirect questions, too.

Headings and lists of links are not read: other pages link to them.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(__file__).resolve().parent / "allow.txt"
DOCUMENTS = ("README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
GLOBS = {
    "documents": ("docs/**/*.md", "crates/**/*.md"),
    "comments": ("crates/*/src/**/*.rs", "crates/*/tests/**/*.rs", "crates/*/benches/**/*.rs", "crates/*/examples/**/*.rs", "fuzz/fuzz_targets/*.rs"),
    "scenarios": ("scenarios/**/*.toml",),
}
SKIPPED = {"target", "node_modules"}
SMALL_PAGE = 300

# After these words, `what` introduces a question.
ASKING = (
    r"ask(?:s|ed|ing)?|find(?:s|ing)? out|found out|know(?:s|n|ing)?|knew|unknown|learn(?:s|ed)?|"
    r"show(?:s|n|ed|ing)?|explain(?:s|ed)?|describe(?:s|d)?|decide(?:s|d)?|determine(?:s|d)?|"
    r"see(?:s|n)?|say(?:s|ing)?|said|state(?:s|d)?|choose(?:s)?|define(?:s|d)?|understand(?:s)?|"
    r"document(?:s|ed)?|print(?:s|ed)?|name(?:s|d)?|tell(?:s)?|report(?:s)?|tests?|checks?|no matter|clear|question"
)
PEOPLE = (
    r"users?|people|persons?|readers?|authors?|attackers?|maintainers?|developers?|reviewers?|"
    r"contributors?|administrators?|operators?|engineers?|anyone|someone|everyone|somebody|nobody|everybody"
)
ALWAYS = r"what (?:waits?|waited|stands|stood|drains|drained|arrives|arrived|comes|came|leaves|left|passes|holds|held)"

# Each pattern is matched in one sentence, without regard to case.
HEADLESS: dict[str, str] = {
    "what": r"\bwhat\b(?! (?:to|you)\b)(?!-)",
    "who": rf"(?<![\w-])(?:who|whom)\b",
    "whoever": r"\b(?:whoever|whomever)\b",
    "those that": r"\bthose (?:that|who|which)\b",
}
PHRASES: dict[str, str] = {
    "under way": r"\bunder way\b",
    "is none": r"\b(?:is|are|was|were) none\b",
    "nobody, somebody": r"\b(?:nobody|somebody|no one)(?:'s)?\b",
    "way for path": r"\b(?:ways? (?:back|there|of the (?:ack|packet|update)s?)|there and back)\b",
    "unless said": r"\bunless (?:said|told|asked)\b",
    "beside": r"\bbeside\b(?!-)",
    "tells": r"\btells\b(?!(?: \w+){1,4} apart)",
    "anew": r"\banew\b",
    "alike": r"\balike\b",
    "stands in": r"\bstands? (?:in|at|on)\b(?! for)",
    "to be had": r"\bto be had\b",
    "least round trip": r"\bleast (?:round[- ]trips?|rtts?|delays?|waits?|ways?)\b",
    "turn away": r"\bturn(?:s|ed|ing)? away\b",
    "so many": r"\bso (?:many|much)\b(?! (?:\w+ )?(?:as|that)\b)",
    "of ours": r"\b(?:of ours|of theirs|somebody else's|nobody's)\b",
    "narrowest": r"\bnarrowest\b",
    "climb": r"\bclimb(?:s|ing)?\b",
    "takes in what": r"\btakes? in what\b",
}

WORD = re.compile(r"[^\W\d_][\w'’-]*")
HEADING = re.compile(r"^\s*#{1,6}\s|^\s*- \[[^\]]*\]\([^)]*\)$")
CELL_WHAT = re.compile(r"\|\s*what\s*(?=\|)", re.IGNORECASE)


@dataclass(frozen=True)
class Line:
    """One line of prose, without the parts that are not read."""

    number: int
    text: str
    heading: bool = False


@dataclass(frozen=True)
class Finding:
    """One phrase to avoid: where it is, and which pattern matched."""

    line: int
    pattern: str
    excerpt: str


@dataclass
class Count:
    """The findings of one file."""

    path: str
    words: int
    findings: list[Finding]

    @property
    def rate(self) -> float:
        """Findings per 1,000 words."""
        return 1000 * len(self.findings) / self.words if self.words else 0.0


def without_code(text: str) -> str:
    """The text without code spans, links' targets, URLs, quotations and HTML comments."""
    text = re.sub(r"(`+)(?:(?!\1).)+?\1", " ` ", text)
    text = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<!--.*?-->", " ", text)
    text = re.sub(r"<?https?://[^\s)>]+>?", " ", text)
    return re.sub(r"\"[^\"]+\"|“[^”]+”", " ` ", text)


def markdown(lines: list[tuple[int, str]]) -> list[Line]:
    """The prose of numbered lines of Markdown."""
    prose: list[Line] = []
    fence = ""
    comment = False
    for number, text in lines:
        marker = re.match(r"\s*(?:>\s*)?(```+|~~~+)", text)
        if fence:
            if marker and marker.group(1).startswith(fence):
                fence = ""
            continue
        if marker:
            fence = marker.group(1)
            continue
        if comment or re.match(r"\s*<!--", text):
            comment = "-->" not in text
            continue
        if re.match(r"\s*>", text) or re.match(r"\s*\[[^\]]+\]:\s", text):
            continue
        prose.append(Line(number, CELL_WHAT.sub("|", without_code(text)), bool(HEADING.match(text))))
    return prose


COMMENT = re.compile(r"^\s*//+!? ?(.*)$")
LITERAL = re.compile(r"\"((?:[^\"\\\n]|\\.|\\\n)*)\"")
SHORTEST_MESSAGE = 4


def messages(number: int, code: str) -> list[Line]:
    """The string literals of a piece of Rust that are prose, without placeholders: help, errors and output."""
    lines: list[Line] = []
    for literal in LITERAL.finditer(code):
        text = re.sub(r"\\\n\s*|\{[^{}]*\}", "", literal.group(1)).replace("\\n", " ").replace("\\", "")
        if len(WORD.findall(text)) >= SHORTEST_MESSAGE:
            lines.append(Line(number + code.count("\n", 0, literal.start()), without_code(text)))
    return lines


def rust(text: str) -> list[Line]:
    """The prose of Rust: blocks of comments, and the messages in the code between them."""
    prose: list[Line] = []
    block: list[tuple[int, str]] = []
    code: list[str] = []
    for number, line in enumerate([*text.splitlines(), "", "//"], 1):
        comment = COMMENT.match(line)
        if comment:
            prose += messages(number - len(code), "\n".join(code))
            code = []
            block.append((number, comment.group(1)))
        else:
            prose += markdown(block)
            block = []
            code.append(line)
    return prose


def scenario_texts(text: str) -> list[Line]:
    """The titles and descriptions of a scenario."""
    key = re.compile(r"^(?:title|description|caption|note|reason)\s*=\s*(\"\"\"|\"|'''|')(.*)$")
    prose: list[Line] = []
    end = ""
    for number, line in enumerate(text.splitlines(), 1):
        start = key.match(line)
        if end:
            prose.append(Line(number, without_code(line.split(end)[0])))
            end = "" if end in line else end
        elif start:
            quote, rest = start.group(1), start.group(2)
            prose.append(Line(number, without_code(rest.split(quote)[0])))
            end = quote if len(quote) == 3 and quote not in rest else ""
    return prose


def paragraphs(lines: list[Line]) -> list[list[Line]]:
    """Lines that belong together: sentences run over their ends."""
    groups: list[list[Line]] = []
    for line in lines:
        starts = re.match(r"\s*(?:$|[-*|#]|\d+\. )", line.text)
        after = groups and groups[-1] and line.number == groups[-1][-1].number + 1 and not groups[-1][-1].heading
        if starts or not after:
            groups.append([])
        groups[-1].append(line)
    return groups


def is_question(text: str, at: int) -> bool:
    """Whether the sentence around `at` ends with a question mark."""
    end = re.search(r"[.?!](?:\s|$)|\s\|", text[at:])
    return end is not None and end.group(0).startswith("?")


def allowed(name: str, text: str, at: int) -> bool:
    """Whether the match of a headless pattern at `at` is one of the exceptions."""
    if name == "those that":
        return False
    if is_question(text, at):
        return True
    before, after = text[:at], text[at:]
    if name == "what":
        if re.match(ALWAYS, after, re.IGNORECASE):
            return False
        return bool(re.search(rf"\b(?:{ASKING})(?:,? and| or)?:? $", before, re.IGNORECASE))
    if name == "who":
        return bool(re.search(rf"\b(?:{PEOPLE}),? $", before, re.IGNORECASE))
    return False


def find(lines: list[Line]) -> list[Finding]:
    """The findings in prose."""
    findings: list[Finding] = []
    for group in paragraphs(lines):
        starts: list[tuple[int, int]] = []
        text = ""
        for line in group:
            starts.append((len(text), line.number))
            text += line.text.strip() + " "
        text = re.sub(r"[*_]{1,2}(?=\w)|(?<=\w)[*_]{1,2}|(?<=[.,:;?!])\*{1,2}", lambda m: "\0" * len(m.group(0)), text)
        clean, offsets = "", []
        for index, character in enumerate(text):
            if character != "\0":
                clean += character
                offsets.append(index)
        if group[0].heading:
            continue
        for name, pattern in (HEADLESS | PHRASES).items():
            for match in re.finditer(pattern, clean, re.IGNORECASE):
                at = match.start()
                if name in HEADLESS and allowed(name, clean, at):
                    continue
                line_number = max(number for start, number in starts if start <= offsets[at])
                excerpt = clean[max(0, at - 50) : match.end() + 50].strip()
                findings.append(Finding(line_number, name, excerpt))
    return sorted(findings, key=lambda finding: finding.line)


def prose_of(path: str, text: str) -> list[Line]:
    """The prose of a file, by the ending of its name."""
    if path.endswith(".rs"):
        return rust(text)
    if path.endswith(".toml"):
        return scenario_texts(text)
    return markdown(list(enumerate(text.splitlines(), 1)))


def count(path: str, text: str) -> Count:
    """Counts one file."""
    lines = prose_of(path, text)
    return Count(path, sum(len(WORD.findall(line.text)) for line in lines), find(lines))


def default_files(only: str | None) -> list[Path]:
    """All files that have prose for readers, or those of one group."""
    files = [ROOT / name for name in DOCUMENTS if (ROOT / name).exists()] if only in (None, "documents") else []
    for glob in [glob for group, globs in GLOBS.items() if only in (None, group) for glob in globs]:
        found = (path for path in ROOT.glob(glob) if not SKIPPED & set(path.relative_to(ROOT).parts))
        files += sorted(path for path in found if not path.is_symlink())
    return files


def allowances(text: str) -> dict[str, str]:
    """The files of the allow-list, with the reason for each: `path: reason` lines."""
    entries = (line.split(":", 1) for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {path.strip(): reason.strip() for path, reason in entries}


def exempt(path: str, allow: dict[str, str]) -> bool:
    """Whether a path, or a folder above it, is on the allow-list."""
    return any(path == entry or (entry.endswith("/") and path.startswith(entry)) for entry in allow)


def shown(path: Path) -> str:
    """The path relative to the repository, if it is inside."""
    try:
        return path.resolve().relative_to(ROOT).as_posix()
    except ValueError:
        return str(path)


def report(counts: list[Count], allow: dict[str, str], worst: int, limit: float | None) -> int:
    """Prints the counts; the exit status."""
    failed: list[Count] = []
    total = Count("total", 0, [])
    for one in sorted(counts, key=lambda one: (-one.rate, one.path)):
        listed = exempt(one.path, allow)
        if not listed:
            total.words += one.words
            total.findings += one.findings
            if limit is not None and one.words > SMALL_PAGE and one.rate > limit:
                failed.append(one)
        if one.findings:
            mark = "  allowed" if listed else ""
            print(f"{len(one.findings):5} {one.words:7} {one.rate:6.2f}  {one.path}{mark}")
            for finding in one.findings[:worst]:
                print(f"      {one.path}:{finding.line}: {finding.pattern}: …{finding.excerpt}…")
    clean = sum(1 for one in counts if not one.findings)
    print(f"{len(total.findings):5} {total.words:7} {total.rate:6.2f}  total; {clean} of {len(counts)} files without findings")
    if limit is None:
        return 0
    for one in failed:
        print(f"{one.path}: {one.rate:.2f} per 1,000 words, more than {limit}", file=sys.stderr)
    return 1 if failed or total.rate > limit else 0


def main(arguments: list[str]) -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description="Count phrases that plain technical English avoids.")
    parser.add_argument("files", nargs="*", type=Path, help="files to read (default: documents, doc comments, scenarios)")
    parser.add_argument("--max", type=float, metavar="RATE", help="exit with 1 above RATE findings per 1,000 words")
    parser.add_argument("--worst", type=int, default=3, metavar="N", help="findings to show per file (default: 3)")
    parser.add_argument("--only", choices=list(GLOBS), help="read one group of the default files")
    options = parser.parse_args(arguments)
    files = options.files or default_files(options.only)
    allow = allowances(ALLOWED.read_text(encoding="utf-8")) if ALLOWED.exists() else {}
    counts = [count(shown(path), path.read_text(encoding="utf-8")) for path in files]
    return report(counts, allow, options.worst, options.max)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
