"""Environments that the matrix makes for itself, and takes away again: gigabytes each, hard links into one cache."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from draftkiln.lock import held
from draftkiln.stack import environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from draftkiln.stack.model import Stack


@contextlib.contextmanager
def borrowed(stack: Stack, *, keep: bool) -> Iterator[bool]:
    """Give whether the matrix made the environment of `stack`; remove it afterwards if so, unless `keep`.

    A mark beside the folder says who made it, so that a run after an interrupted one knows as well.
    """
    folder = environment.folder_of(stack)
    mark = _mark(folder)
    if not (folder / "complete").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    own = mark.exists()
    try:
        yield own
    finally:
        if own:
            _settle(folder, mark, keep=keep)


def _settle(folder: Path, mark: Path, *, keep: bool) -> None:
    if not keep:
        with held(folder.with_name(f"{folder.name}.lock")):
            shutil.rmtree(folder, ignore_errors=True)
    mark.unlink(missing_ok=True)


def _mark(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.made-by-matrix")
