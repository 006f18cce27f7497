"""Start a patch: hand out the patched tree for editing, then turn the edited tree into a patch of the pool."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import format_datetime
from typing import TYPE_CHECKING

from draftkiln.errors import PatchError
from draftkiln.patches import apply, folder, header, mail
from draftkiln.patches.header import PACKAGE
from draftkiln.patches.repository import Repository

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence
    from pathlib import Path

    from draftkiln.patches.queue import Patch
    from draftkiln.patches.wheel import Wheel


_COPIES = ("~", ".bak", ".orig", ".rej", ".swp")


@dataclass(frozen=True)
class Words:
    """What a new patch says of itself."""

    subject: str
    why: str
    author: str
    date: dt.datetime
    trailers: Sequence[tuple[str, str]]
    """Key and value, without `Base`."""


def hand_out(base: Wheel, patches: Sequence[Patch], tree: Path) -> None:
    """Write the package with `patches` applied below the empty or absent folder `tree`.

    Raises:
        PatchError: the folder holds something.
        ProblemsError: every patch that does not fit.
    """
    if tree.exists() and any(tree.iterdir()):
        raise PatchError(f"{tree}: not empty", fix="name a new folder")
    applied = apply.apply_series(base.package, base.version, patches)
    for name, data in {**base.package, **applied.changed}.items():
        if data is not None:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(data)


def take_in(base: Wheel, patches: Sequence[Patch], tree: Path, words: Words, path: Path) -> str:
    """The text of a patch `path` that leads from `patches` applied to `base` to the package in `tree`.

    Raises:
        PatchError: nothing was changed in `tree`.
        ProblemsError: what is wrong with `words`, or every patch that does not fit.
    """
    edited = folder.package_files(tree)
    copies = sorted(name for name in edited if name.endswith(_COPIES))
    if copies:
        raise PatchError(
            f"{tree}: copies that an editor or a merge left: {', '.join(copies)}",
            why="they would become part of the patch",
            fix="remove them",
        )
    with Repository.throwaway() as repository:
        apply.apply_in(repository, base.package, base.version, patches)
        goal = repository.add_base("edited", edited)
        diff = repository.diff("HEAD", goal)
        if not diff.strip():
            raise PatchError(
                f"{tree}: same as the series, nothing to make a patch of", fix=f"edit the files below {tree / PACKAGE}"
            )
        draft = _mail(words, base.version) + diff
        header.parse(draft, path)
        answer = repository.am(draft.encode())
        if answer.returncode or len(set(repository.trees("HEAD", goal))) > 1:
            raise PatchError(
                f"{path}: git does not take the patch back",
                why=answer.stderr.strip(),
                fix="save the files as UTF-8 with LF",
            )
        text = repository.export()
    header.parse(text, path)
    if "\r" in mail.diff_of(text):
        raise PatchError(f"{tree}: CRLF line ends in the edited files", fix="save them with LF")
    return text


def _mail(words: Words, version: str) -> str:
    trailers = [*words.trailers, ("Base", f"{PACKAGE}=={version}")]
    order = list(header.TRAILERS)
    trailers.sort(key=lambda trailer: order.index(trailer[0]))
    lines = [
        f"From {'0' * 40} Mon Sep 17 00:00:00 2001",
        f"From: {words.author}",
        f"Date: {format_datetime(words.date)}",
        f"Subject: {words.subject}",
        "",
        words.why.strip(),
        "",
        *(f"{key}: {value}" for key, value in trailers),
        "",
    ]
    return "\n".join(lines) + "\n"
