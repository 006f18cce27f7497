"""RECORD of a wheel: a line `path,sha256=…,size` for each file.

Source: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def row(name: str, data: bytes) -> tuple[str, str, str]:
    """The RECORD row of one file."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return name, f"sha256={digest}", str(len(data))


def written(files: Mapping[str, bytes], own_name: str) -> bytes:
    """The RECORD of `files`; `own_name` is its own path, whose row bears no hash."""
    return _text([*(row(name, data) for name, data in files.items()), (own_name, "", "")])


def updated(old: bytes, changed: Mapping[str, bytes | None]) -> bytes:
    """RECORD `old` after some files changed, appeared, or went (None)."""
    rows = [tuple(fields) for fields in csv.reader(io.StringIO(old.decode()))]
    known = {fields[0] for fields in rows if fields}
    kept: list[Sequence[str]] = []
    for fields in rows:
        data = changed.get(fields[0])
        if fields[0] not in changed:
            kept.append(fields)
        elif data is not None:
            kept.append(row(fields[0], data))
    new = [row(name, data) for name, data in changed.items() if name not in known and data is not None]
    return _text([*new, *kept])


def _text(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
