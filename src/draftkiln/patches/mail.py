"""The shell of a patch: mail header lines, message, diff; and problems with file and line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from email.header import decode_header, make_header
from typing import TYPE_CHECKING, NamedTuple

from draftkiln.errors import PatchError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_DIFF_START = re.compile(r"^diff --git ")


class Line(NamedTuple):
    """A line of the patch with its number, counted from 1."""

    number: int
    text: str


@dataclass
class Problems:
    """What is wrong with one file, each with its line."""

    path: Path
    found: list[PatchError] = field(default_factory=list)

    def add(self, number: int, what: str, *, why: str = "", fix: str = "") -> None:
        """Note a problem in line `number`."""
        self.found.append(PatchError(f"{self.path}:{number}: {what}", why=why, fix=fix))


def split(text: str) -> tuple[list[Line], list[Line]]:
    """Mail header lines and message lines of a patch; the message ends at `---` or at the diff."""
    head: list[Line] = []
    message: list[Line] = []
    part = head
    for number, line in enumerate(text.split("\n"), 1):
        if part is head and not line:
            part = message
        elif _DIFF_START.match(line) or (part is message and line == "---"):
            break
        else:
            part.append(Line(number, line))
    while message and not message[-1].text.strip():
        message.pop()
    return head, message


def diff_of(text: str) -> str:
    """The diff of a patch: everything from the first `diff --git` line on."""
    lines = text.split("\n")
    start = next((index for index, line in enumerate(lines) if _DIFF_START.match(line)), len(lines))
    return "\n".join(lines[start:])


def fields(head: Sequence[Line], problems: Problems) -> dict[str, Line]:
    """Fields of the mail header, folded lines joined and encoded words decoded."""
    found: dict[str, Line] = {}
    last = ""
    for number, text in head:
        if number == 1 and text.startswith("From "):
            continue
        key, colon, value = text.partition(": ")
        if text.startswith((" ", "\t")) and last:
            found[last] = Line(found[last].number, f"{found[last].text} {text.strip()}")
        elif colon and re.fullmatch(r"[A-Z][A-Za-z-]*", key):
            if key in found:
                problems.add(number, f"{key} stands twice in the mail header")
            found[key], last = Line(number, value), key
        else:
            problems.add(
                number,
                f"not a mail header line: {text[:60]!r}",
                fix="make the patch with `draftkiln patches new` or `export`",
            )
    return {key: Line(number, _decoded(value)) for key, (number, value) in found.items()}


def _decoded(value: str) -> str:
    if "=?" not in value:
        return value
    try:
        return str(make_header(decode_header(value)))
    except (ValueError, LookupError):
        return value
