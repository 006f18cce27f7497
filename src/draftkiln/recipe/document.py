"""A YAML text as plain values plus the line of every key: YAML 1.2's plain types, no tags, no merging, no doubles."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from draftkiln import unicode

Location = tuple[str | int, ...]
"""Way from the top of a document to a value: keys of mappings and positions in lists."""


_DEEPEST = 30
_MOST_VALUES = 10_000
_MOST_DIGITS = 40


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong at one place."""

    where: Location
    line: int
    what: str
    why: str = ""
    fix: str = ""


@dataclass
class Document:
    """Plain values of a YAML text, the line of every value, and what is wrong with the text as such."""

    value: Any
    lines: dict[Location, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, where: Location) -> int:
        """Line (from 1) of the nearest thing that is there: the value itself, else what would hold it."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, 1)


class _PlainLoader(yaml.SafeLoader):
    """YAML 1.2's core types: `no`, `on`, `1_000`, `010`, `12:30` and dates stay text, `1e-4` is a number."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - emptied so that YAML 1.1's types do not apply


_TYPES = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+",
        list("-+.0123456789"),
    ),
)
for _name, _pattern, _first in _TYPES:
    _PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), _first)

_PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name, _, _ in _TYPES} | {"tag:yaml.org,2002:str"}


def parse(text: str) -> Document:
    """Read one YAML document.

    Raises:
        yaml.YAMLError: the text is not YAML, or holds more than one document.
    """
    loader = _PlainLoader(text)
    document = Document(None)
    try:
        node = _node(loader)
        if node is not None:
            document.lines[()] = node.start_mark.line + 1
            document.value = _plain(loader, node, (), document)
    except RecursionError:
        raise yaml.YAMLError("it nests too deep") from None
    finally:
        loader.dispose()
    return document


def _node(loader: _PlainLoader) -> yaml.Node | None:
    try:
        return loader.get_single_node()
    except (ValueError, OverflowError) as error:  # what PyYAML leaves to chr() and int()
        what = "an escape or a number is beyond all that there are"
        raise yaml.MarkedYAMLError(problem=what, problem_mark=loader.get_mark()) from error


def _plain(loader: _PlainLoader, node: yaml.Node, where: Location, document: Document) -> Any:
    line = node.start_mark.line + 1
    if len(where) > _DEEPEST or len(document.lines) > _MOST_VALUES:
        # An alias inside of what it stands for never ends; a few aliases of aliases make millions of values.
        raise yaml.YAMLError(f"line {line}: more than {_DEEPEST} levels or {_MOST_VALUES} values, aliases written out")
    if isinstance(node, yaml.MappingNode):
        return _mapping(loader, node, where, document)
    if isinstance(node, yaml.SequenceNode):
        values = []
        for position, item in enumerate(node.value):
            document.lines[(*where, position)] = item.start_mark.line + 1
            values.append(_plain(loader, item, (*where, position), document))
        return values
    if node.tag not in _PLAIN_TAGS or _forced(loader, node):
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        document.problems.append(
            Problem(where, line, f"tag {tag} is not allowed", "a recipe holds plain values", "remove the tag")
        )
        return unicode.without_halves(node.value)
    if node.tag.endswith(":float"):
        value = float(node.value)
        if not math.isfinite(value):
            document.problems.append(
                Problem(where, line, f"{node.value} is too large a number", fix="write a finite one")
            )
        return value
    if node.tag.endswith(":int") and len(node.value) > _MOST_DIGITS:  # Python itself refuses thousands of digits
        document.problems.append(
            Problem(where, line, f"a number of {len(node.value)} digits", fix="write a smaller one")
        )
        return 0
    value = loader.construct_object(node)
    return _text(value, where, line, document) if isinstance(value, str) else value


def _text(text: str, where: Location, line: int, document: Document) -> str:
    """A text that files can hold; half a character in it is a problem of its place."""
    whole = unicode.joined(text)
    if whole is None:
        fix = "write the character itself, or both halves"
        document.problems.append(Problem(where, line, "no file can hold this text", f"it has {unicode.HALF}", fix))
    return unicode.without_halves(text) if whole is None else whole


def _forced(loader: _PlainLoader, node: yaml.Node) -> bool:
    """Whether a tag makes another thing of a value than it is without one, as `!!int abc` does; text is fine."""
    plain = loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call] # of PyYAML
    return node.tag not in {plain, loader.DEFAULT_SCALAR_TAG}


def _mapping(loader: _PlainLoader, node: yaml.MappingNode, where: Location, document: Document) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.problems.append(Problem(where, line, "a key is not a text", fix="write `key: value`"))
            continue
        written = str(key_node.value)
        key = unicode.without_halves(written)
        place = (*where, key)
        _text(written, place, line, document)
        if key in values:
            first = document.lines[place]
            document.problems.append(
                Problem(
                    place, line, "the key stands twice", f"it stands on line {first} already", "keep one of the two"
                )
            )
            continue
        document.lines[place] = line
        values[key] = _plain(loader, value_node, place, document)
    return values
