"""Rows of data: each becomes a conversation, a raw text or a refusal that names file, line and reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from draftkiln import unicode
from draftkiln.prepare import containers
from draftkiln.prepare.forms import Rules, parse
from draftkiln.prepare.outcome import Refusal, RefusedRowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from draftkiln.prepare.conversation import Row

_SHARES = 1 << 64


@dataclass(frozen=True)
class LeftOut:
    """A row that is not taken because of its source's weight."""

    source: str


@dataclass(frozen=True)
class Source:
    """A file or folder of rows and the share of them that is taken."""

    path: Path
    weight: float = 1.0


def read(sources: Sequence[Source], rules: Rules, *, limit: int | None = None) -> Iterator[Row | Refusal | LeftOut]:
    """Read rows one by one.

    Args:
        sources: files and folders, one after the other.
        rules: how rows are read.
        limit: at most so many rows.

    Raises:
        DataError: a file is missing, a directory, unreadable, or holds no row.
    """
    count = 0
    for source in sources:
        for place, value in containers.read(source.path):
            if limit is not None and count >= limit:
                return
            count += 1
            yield from _taken(_row(place, value, rules), source.weight)


def _row(place: str, value: Any, rules: Rules) -> Row | Refusal:
    if not unicode.is_whole(value):
        return Refusal(place, "not Unicode", unicode.HALF)
    try:
        if isinstance(value, RefusedRowError):
            raise value
        return parse(place, value, rules)
    except RefusedRowError as error:
        return Refusal(place, error.reason, error.detail)


def _taken(row: Row | Refusal, weight: float) -> Iterator[Row | Refusal | LeftOut]:
    """The row as often as its source's weight says; the part of a whole is decided by content, not by place."""
    if weight == 1 or isinstance(row, Refusal):
        yield row
        return
    whole, part = divmod(weight, 1)
    copies = int(whole) + (int.from_bytes(row.content()[:8], "big") < part * _SHARES)
    if not copies:
        yield LeftOut(row.source)
    for number in range(copies):
        yield row if number == 0 else replace(row, source=f"{row.source} again {number}")
