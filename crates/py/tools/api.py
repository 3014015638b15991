"""Writes docs/python-api.md, the reference of the package, from its docstrings and from `_native.pyi`.

    python crates/py/tools/api.py            # write it
    python crates/py/tools/api.py --check    # exit with 1 if it is not up to date

The package must be importable, with its native module. Signatures of native classes come from the stub file, and their
texts from the module, which has them from Rust.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import freshline
from freshline import _native

PAGE = Path(__file__).parents[3] / "docs" / "python-api.md"
WIDTH = 100
"""Signatures that are longer have one parameter per line."""

Function = ast.FunctionDef | ast.AsyncFunctionDef

HEAD = """# Python: API reference

Written by `crates/py/tools/api.py` from the docstrings of the package; [the guide](python.md) introduces it.
"""


@dataclass
class Section:
    """A part of the page: names of one module."""

    title: str
    module: str
    names: list[str]
    text: str = ""


def sections() -> Iterator[Section]:
    yield Section("Sources and monitors", "freshline", [
        "Source", "Monitor", "Topic", "TopicParams", "State", "Subscription", "Listener", "Event", "Events",
    ])
    yield Section("Errors", "freshline", [
        name for name in freshline.__all__
        if inspect.isclass(getattr(freshline, name)) and issubclass(getattr(freshline, name), BaseException)
    ])
    yield Section("Analysis", "freshline", [
        "age", "Capture", "AgeProcess", "Queues", "path_lower_bound", "jain_index", "confidence",
    ])
    yield Section("Tables", "freshline", ["Table", "Column"])
    yield Section("Sweeps", "freshline", ["sweep", "open_sweep", "Sweep", "Slurm", "Failure"])
    lab = ["run", "Result", "Recording", "Law", "Ack", "reproduce", "scenarios", "scenario_text"]
    yield Section("freshline.lab", "freshline.lab", lab, "Scenarios in virtual time.")
    parts = [name for name in importlib.import_module("freshline.lab").__all__ if name not in lab]
    parts = [name for name in parts if inspect.isclass(getattr(freshline.lab, name))]
    text = "The parts of a scenario, from `freshline.lab`. Keyword arguments have the names of the fields."
    yield Section("Parts of a scenario", "freshline.lab", parts, text)
    plot = importlib.import_module("freshline.plot")
    functions = [name for name in plot.__all__ if callable(getattr(plot, name))]
    yield Section("freshline.plot", "freshline.plot", functions, cleaned(plot.__doc__).partition("\n\n>>>")[0])


# Source texts


@cache
def tree(path: str) -> dict[str, ast.stmt]:
    """The classes and functions of a file by name."""
    body = ast.parse(Path(path).read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, (ast.ClassDef, *Function.__args__))}


STUB = str(Path(_native.__file__).with_name("_native.pyi"))


def is_native(value: Any) -> bool:
    return getattr(_native, getattr(value, "__name__", ""), None) is value


def node_of(value: Any) -> Any:
    """Where a class or function is defined, or declared."""
    path = STUB if is_native(value) else inspect.getsourcefile(value)
    assert path is not None
    return tree(path)[value.__name__]


# Texts


def cleaned(text: str | None) -> str:
    return inspect.cleandoc(text or "")


def markdown(text: str | None) -> str:
    """A docstring as Markdown: doctests become blocks of code, and named sections become lists."""
    lines = re.sub(r"\[(`\w+`)\](?!\()", r"\1", cleaned(text)).splitlines()  # links of rustdoc
    written: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(">>>"):
            written.append("```python")
            while at < len(lines) and lines[at].strip():
                is_input = lines[at].startswith((">>>", "..."))
                text = re.sub(r"\s*# doctest:.*", "", lines[at])
                written.append(re.sub(r"^(>>>|\.\.\.) ?", "", text) if is_input else f"# {text}")
                at += 1
            written.append("```")
        elif line in ("Arguments:", "Raises:", "Returns:"):
            written += [line, ""]
            at += 1
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                item = lines[at].strip()
                if lines[at].startswith("        "):
                    written[-1] += f" {item}"
                elif item:
                    name, _, rest = item.partition(": ")
                    written.append(f"- `{name}`: {rest}")
                at += 1
            written.append("")
        else:
            written.append(line)
            at += 1
    return "\n".join(written).strip()


def first_lines(text: str | None) -> str:
    """A short docstring on one line, for lists and tables."""
    return " ".join(markdown(text).replace("|", "\\|").split())


# Signatures


def parameters(node: Function, *, is_method: bool) -> list[str]:
    """Each parameter as it is declared, without the first one of a method."""
    arguments = node.args
    listed = [*arguments.posonlyargs, *arguments.args]
    defaults: list[Any] = [None] * (len(listed) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = list(zip(listed, defaults, strict=True))
    if is_method:
        pairs = pairs[1:]
    found = [parameter(each, default) for each, default in pairs]
    if arguments.vararg is not None:
        found.append(f"*{parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        found.append("*")
    found += [parameter(each, default) for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg is not None:
        found.append(f"**{parameter(arguments.kwarg, None)}")
    return found


def parameter(node: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {unparsed(node.annotation)}" if node.annotation is not None else ""
    if default is None:
        return f"{node.arg}{annotation}"
    equals = " = " if annotation else "="
    return f"{node.arg}{annotation}{equals}{unparsed(default)}"


def unparsed(node: ast.expr) -> str:
    """An expression as we write it, with double quotes; annotations in quotes lose them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isprintable() and " | " in node.value:
        return node.value
    return re.sub(r"'([^'\"]*)'", r'"\1"', ast.unparse(node))


def signature(name: str, node: Function, *, is_method: bool = False, is_class: bool = False) -> str:
    found = parameters(node, is_method=is_method)
    returns = "" if node.returns is None or is_class else f" -> {unparsed(node.returns)}"
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    line = f"{prefix}{name}({', '.join(found)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{prefix}{name}(", *(f"    {each}," for each in found), f"){returns}"])


# Classes


def decorators(node: Function) -> set[str]:
    return {each.id if isinstance(each, ast.Name) else getattr(each, "attr", "") for each in node.decorator_list}


def declared(value: type) -> Iterator[tuple[type, Any]]:
    """The members of a class and of its bases in this package, each once, in order."""
    seen: set[str] = set()
    for base in reversed([base for base in value.__mro__ if base.__module__.startswith("freshline")]):
        for node in node_of(base).body if base.__name__ in tree(path_of(base)) else []:
            seen.add(getattr(node, "name", ""))
            yield base, node


def path_of(value: type) -> str:
    return STUB if is_native(value) else str(inspect.getsourcefile(value))


def constructor(value: type) -> Function | None:
    """The constructor of the class, or of its nearest base in this package."""
    found = None
    for _, node in declared(value):
        if isinstance(node, ast.FunctionDef) and node.name in ("__new__", "__init__"):
            found = node
    return found


def is_shown(name: str) -> bool:
    return not name.startswith("_")


def fields(value: type) -> list[tuple[str, str, str]]:
    """Name, type and text of each annotated attribute."""
    found = []
    for base in [base for base in reversed(value.__mro__) if base.__module__.startswith("freshline")]:
        if is_native(base):
            continue
        body = node_of(base).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            text = after.value.value if is_text(after) else ""
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and is_shown(node.target.id):
                if node.target.id != "TAG":
                    found.append((node.target.id, unparsed(node.annotation), text))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and text:
                found.append((node.targets[0].id, type(ast.literal_eval(node.value)).__name__, text))
            elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
                found += list(attributes_of(node))
    return found


def attributes_of(init: Function) -> Iterator[tuple[str, str, str]]:
    """Attributes that `__init__` sets, if a text follows."""
    types = {each.arg: unparsed(each.annotation) for each in init.args.args if each.annotation is not None}
    for node, after in zip(init.body, [*init.body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute) and is_text(after):
            kind = types.get(getattr(node.value, "id", ""), "")
            yield node.targets[0].attr, kind, after.value.value  # type: ignore[union-attr, attr-defined]


def is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def methods(value: type) -> Iterator[str]:
    """A line per property and method; one that a class overrides appears once."""
    found: dict[str, tuple[type, Function]] = {}
    for base, node in declared(value):
        if isinstance(node, Function.__args__) and is_shown(node.name):
            found[node.name] = (base, node)
    for name, (base, node) in found.items():
        kinds = decorators(node)
        member = inspect.getattr_static(base, name)
        if kinds & {"staticmethod", "classmethod"}:
            member = getattr(base, name)
        text = first_lines(member.__doc__)
        if kinds & {"property", "cached_property"}:
            assert node.returns is not None
            head = f"{name}: {unparsed(node.returns)}"
        else:
            found_parameters = ", ".join(parameters(node, is_method="staticmethod" not in kinds))
            returns = f" -> {unparsed(node.returns)}" if node.returns is not None else ""
            owner = f"{value.__name__}." if kinds & {"staticmethod", "classmethod"} else ""
            awaited = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
            head = f"{awaited}{owner}{name}({found_parameters}){returns}"
        yield f"- `{head}`" + (f": {text}" if text else "")


# The page


def class_text(value: type, *, is_part: bool) -> str:
    written = [f"### {value.__name__}", ""]
    bases = [base.__name__ for base in value.__bases__ if base is not object and base.__name__ != "Part"]
    if issubclass(value, BaseException):
        return f"- `{value.__name__}` ({', '.join(bases)}): {first_lines(value.__doc__)}"
    made = constructor(value)
    if made is not None and value.__name__ != "Result" and value.__name__ != "Sweep":
        written += ["```python", signature(value.__name__, made, is_method=True, is_class=True), "```", ""]
    document = value.__doc__ if "__doc__" in vars(value) else ""
    written += [markdown(document), ""]
    listed = fields(value)
    if listed and is_part:
        written += ["| field | type | |", "|---|---|---|"]
        written += [f"| `{name}` | `{kind.replace('|', chr(92) + '|')}` | {first_lines(text)} |" for name, kind, text in listed]
        written.append("")
    elif listed:
        written += [f"- `{name}: {kind}`: {first_lines(text)}" for name, kind, text in listed]
    written += list(methods(value)) if not is_part or value.__name__ in ("Scenario", "Updates") else []
    return "\n".join(written).rstrip()


def function_text(value: Any) -> str:
    node = node_of(value)
    return "\n".join([
        f"### {value.__name__}", "",
        "```python", signature(value.__name__, node), "```", "",
        markdown(value.__doc__),
    ]).rstrip()


def types_text() -> str:
    """The aliases of `_types.py`."""
    path = Path(freshline.__file__).with_name("_types.py")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    lines = ["## Types", "", "What signatures abbreviate:", ""]
    for node, after in zip(body, body[1:]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and is_text(after):
            lines.append(f"- `{node.target.id}`: {first_lines(after.value.value)}")  # type: ignore[attr-defined]
    return "\n".join(lines)


def page() -> str:
    written = [HEAD]
    for section in sections():
        module = importlib.import_module(section.module)
        written.append(f"## {section.title}\n")
        if section.text:
            written.append(section.text + "\n")
        for name in section.names:
            value = getattr(module, name)
            is_class = inspect.isclass(value)
            text = class_text(value, is_part=section.title.startswith("Parts")) if is_class else function_text(value)
            written.append(text + ("" if text.startswith("- ") else "\n"))
        if section.title == "Errors":
            written.append("")
    written.append(types_text())
    return "\n".join(written).rstrip() + "\n"


def main() -> None:
    text = page()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit(f"{PAGE} is not up to date; run python crates/py/tools/api.py")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
