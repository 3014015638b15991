"""The base of all parts of a scenario: a dataclass that is written as a table, and read from one.

A field with None is left out of the table. A field whose key differs from its name has the key in its metadata
(see `key`). If a value can be one of several classes, such as a queue, the tag of the class identifies it.
"""

import difflib
import numbers
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from .._errors import ScenarioError
from .._plain import check_depth

KEY = "key"


def key(name: str) -> dict[str, str]:
    """The metadata of a field whose key in the table is `name`."""
    return {KEY: name}


class Part:
    """A table of a scenario. Its subclasses are dataclasses, with a field for each key of the table."""

    __slots__ = ()

    # The key and the value that identify this class among its alternatives; None without alternatives.
    TAG: ClassVar[tuple[str, str] | None] = None

    def to_dict(self) -> dict[str, Any]:
        """The table as the TOML file has it. Unset fields are left out."""
        table: dict[str, Any] = {} if self.TAG is None else {self.TAG[0]: self.TAG[1]}
        for name, field in _fields(type(self)).items():
            value = getattr(self, field.name)
            is_unset = value is None or (field.default_factory is not MISSING and not value)
            if not is_unset:
                table[name] = _plain(value, name)
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], where: str = "") -> Self:
        """Reads a table as `tomllib.load` gives it. `where` is the place of the table, for messages.

        Raises ScenarioError for an unknown or a missing key; the message lists the known keys.
        """
        known = _fields(cls)
        hints = _hints(cls)
        given = dict(table)
        if cls.TAG is not None:
            given.pop(cls.TAG[0], None)
        for name in given:
            if name not in known:
                raise ScenarioError(_unknown(where, name, list(known)))
        values = {
            known[name].name: _read(hints[known[name].name], value, _place(where, name))
            for name, value in given.items()
        }
        for name, field in known.items():
            is_required = field.default is MISSING and field.default_factory is MISSING
            if is_required and name not in given:
                raise ScenarioError(f"{_prefix(where)}the key `{name}` is missing; add it")
        return cls(**values)


def _fields(cls: type[Any]) -> dict[str, Field[Any]]:
    """The fields of a dataclass by their keys."""
    return {field.metadata.get(KEY, field.name): field for field in fields(cls)}


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(cls: type[Any]) -> dict[str, Any]:
    """The type hints of a class; they are read once."""
    if cls not in _HINTS:
        _HINTS[cls] = get_type_hints(cls)
    return _HINTS[cls]


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """The value as TOML can have it: parts become tables, numbers of numpy become numbers of Python."""
    if isinstance(value, Part):
        return value.to_dict()
    if isinstance(value, Mapping):
        check_depth(depth + 1, where)
        return {str(name): _plain(each, where, depth + 1) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        check_depth(depth + 1, where)
        return [_plain(each, where, depth + 1) for each in value]
    if isinstance(value, (str, bool)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return value


def _read(hint: Any, value: Any, where: str) -> Any:
    """The value as a field with this type hint has it: tables become parts, alone and in lists."""
    choices = _choices(hint)
    if isinstance(value, Mapping):
        parts = [choice for choice in choices if isinstance(choice, type) and issubclass(choice, Part)]
        return _chosen(parts, value, where).from_dict(value, where) if parts else dict(value)
    if isinstance(value, list):
        items = next((get_args(choice)[0] for choice in choices if get_origin(choice) is list), Any)
        return [_read(items, each, _place_in_list(where, number, each)) for number, each in enumerate(value)]
    return value


def _choices(hint: Any) -> list[Any]:
    """The members of a union, or the type itself."""
    is_single = isinstance(hint, type) or get_origin(hint) in (list, dict)
    return [hint] if is_single else list(get_args(hint))


def _chosen(parts: list[type[Part]], table: Mapping[str, Any], where: str) -> type[Part]:
    """The class that the table's tag names; the only class, if there is one."""
    tags = {part.TAG[1]: part for part in parts if part.TAG is not None}
    if not tags:
        return parts[0]
    tag = next(part.TAG[0] for part in parts if part.TAG is not None)
    if table.get(tag) in tags:
        return tags[table[tag]]
    if tag in table:
        raise ScenarioError(f"{_prefix(where)}`{tag}` is {table[tag]!r}; write {_listed(list(tags))}")
    raise ScenarioError(f"{_prefix(where)}the key `{tag}` is missing; add it with {_listed(list(tags))}")


def _unknown(where: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    return f"{_prefix(where)}unknown key `{name}`; {hint}The keys are {_listed(known)}"


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _prefix(where: str) -> str:
    return f"{where}: " if where else ""


def _place(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _place_in_list(where: str, number: int, value: Any) -> str:
    """A key as `--set` writes it: with names instead of indices where possible."""
    name = value.get("name") if isinstance(value, Mapping) else None
    return f"{where}.{name}" if isinstance(name, str) else f"{where}[{number}]"
