"""From a recipe's target to a directory: made, fetched or found."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from draftkiln import cache, durable
from draftkiln.errors import TargetError
from draftkiln.lock import held
from draftkiln.recipe.files import path_of
from draftkiln.recipe.model import FetchTarget, HubTarget, MakeTarget, PathTarget
from draftkiln.target import record
from draftkiln.target.shape import GENERATION

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Source = MakeTarget | FetchTarget | HubTarget | PathTarget


def location(source: Source, root: Path | None = None) -> Path:
    """Directory of a target: a path as it is, everything else `<root>/<name>-<hash of its source>`."""
    if isinstance(source, PathTarget):
        return path_of(source.path)
    identity = source.model_dump() | ({"generation": GENERATION} if isinstance(source, MakeTarget) else {})
    return (root or cache.root() / "targets") / f"{_name(source)}-{durable.sha256_json(identity)[:12]}"


def ensure(source: Source, root: Path | None = None, *, announce: Callable[[str], None] = print) -> Path:
    """Directory of a target, made or fetched if it is missing; one process at a time does the work.

    Args:
        source: `target.source` of a recipe.
        root: folder that holds targets; default: `targets` in the user's cache.
        announce: takes a line about work that takes time.

    Raises:
        TargetError: it cannot be made, or what lies there differs from its record.
        NetworkError: it must be fetched and cannot be.
    """
    folder = location(source, root)
    # A complete target is read without a lock: inside a container its folder is read-only.
    if isinstance(source, PathTarget) or _complete(folder):
        return folder
    with held(folder.parent / f".{folder.name}.lock", announce=lambda text: announce(f"target: {text}")):
        if not _complete(folder):
            announce(f"target: {_name(source)} -> {folder}")
            _obtain(source, folder)
    return folder


def _complete(folder: Path) -> bool:
    found = record.read_record(folder)
    if found is None:
        return False
    if problems := record.problems(folder, found, hashes=False):
        raise TargetError(
            f"{folder} differs from its {record.NAME}",
            why="; ".join(problems[:3]),
            fix="remove that folder; the next run makes it again",
        )
    return True


def _obtain(source: Source, folder: Path) -> None:
    if isinstance(source, MakeTarget):
        from draftkiln.target.make import make

        make(source.make, source.seed, folder)
    elif isinstance(source, FetchTarget):
        from draftkiln.target.smollm2 import fetch

        fetch(folder)
    elif isinstance(source, HubTarget):
        from draftkiln.target.hub import fetch_revision

        fetch_revision(source.hub, source.revision, folder, token=os.environ.get("HF_TOKEN"))


def _name(source: Source) -> str:
    if isinstance(source, MakeTarget):
        return source.make
    if isinstance(source, FetchTarget):
        return source.fetch
    if isinstance(source, HubTarget):
        return source.hub.replace("/", "--")
    return source.path
