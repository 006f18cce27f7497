"""The generated part of a page that people write the rest of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftkiln.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path


def replace(page: Path, old: str, begin: str, end: str, text: str) -> str:
    """`old` with `text` between its lines `begin` and `end`; `page` is where it stands, for the message.

    Raises:
        StorageError: the page has no such part.
    """
    before, found, rest = old.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise StorageError(
            f"{page}: no generated part", why=f"it stands between {begin} and {end}", fix="restore the page"
        )
    return f"{before}{begin}\n{text}{end}{after}"
