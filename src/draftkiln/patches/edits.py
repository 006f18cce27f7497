"""Change several files of the queue, all or none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from draftkiln import durable

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from pathlib import Path

_BASE = re.compile(r"^Base: .*$", re.MULTILINE)


def write(files: Mapping[Path, str | None]) -> None:
    """Write each file, remove those that map to None; on any failure everything is as before."""
    before = {path: path.read_bytes() if path.exists() else None for path in files}
    try:
        for path, text in files.items():
            _put(path, None if text is None else text.encode())
    except BaseException:
        for path, data in before.items():
            _put(path, data)
        raise


def without_slugs(series_text: str, slugs: Container[str]) -> str:
    """A series file without the lines of `slugs`; comments stay."""
    lines = series_text.splitlines(keepends=True)
    return "".join(line for line in lines if line.split("#")[0].strip() not in slugs)


def with_base(patch_text: str, version: str) -> str:
    """A patch whose `Base:` trailer names another release."""
    return _BASE.sub(f"Base: speculators=={version}", patch_text, count=1)


def _put(path: Path, data: bytes | None) -> None:
    if data is None:
        path.unlink(missing_ok=True)
    else:
        durable.write_bytes(path, data)
