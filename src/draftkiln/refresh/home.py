"""A candidate stack beside the repository: a folder that shows the project with one stack and one series more.

All of draftkiln finds the project's files below `checkout.root()`; with `DRAFTKILN_HOME` on such a folder it locks,
installs and proves the candidate as if it were there, and nothing in the repository changes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln import durable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_VARIABLE = "DRAFTKILN_HOME"
_STACKS = "containers/stacks"
_QUEUE = "patches/speculators"
_OWN = ("containers", _STACKS, "patches", _QUEUE, f"{_QUEUE}/series", f"{_QUEUE}/seams")
"""Folders of the home that are real; all else in them is a link into the repository."""


@dataclass(frozen=True)
class Home:
    """The folder, and the repository that it shows."""

    folder: Path
    repository: Path
    stack: str
    """Name of the candidate."""

    @classmethod
    def make(cls, folder: Path, repository: Path, stack: str) -> Home:
        """Make the folder anew; what an earlier attempt left of the candidate in it stays."""
        home = cls(folder, repository, stack)
        with durable.storage_errors(folder):
            for name in ("", *_OWN):
                _show(repository / name, folder / name, {stack, f"{stack}.json"})
        return home

    @property
    def stack_folder(self) -> Path:
        """Folder of the candidate stack."""
        return self.folder / _STACKS / self.stack

    @property
    def series(self) -> Path:
        """Series file of the candidate."""
        return self.folder / _QUEUE / "series" / self.stack

    @property
    def seams(self) -> Path:
        """List of seams of the candidate."""
        return self.folder / _QUEUE / "seams" / f"{self.stack}.json"

    @property
    def patches(self) -> Path:
        """The queue's folder."""
        return self.folder / _QUEUE

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let draftkiln, and every process that it starts, find the candidate."""
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = str(self.folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = before

    def files(self) -> dict[str, Path]:
        """What the candidate adds to the repository: path in it to the file here."""
        own = [self.series, self.seams, *self.stack_folder.rglob("*"), *self.patches.glob("*.patch")]
        return {
            str(path.relative_to(self.folder)): path for path in sorted(own) if path.is_file() and not path.is_symlink()
        }

    def write(self) -> list[str]:
        """Copy the candidate into the repository and name its files; an existing patch is never written over.

        The stack's folder comes last: a series without a stack is harmless, a stack without its series is not.
        """
        files = self.files()
        for name in sorted(files, key=lambda each: each.startswith(_STACKS)):
            target = self.repository / name
            if target.suffix == ".patch" and target.exists():
                continue
            durable.write_bytes(target, files[name].read_bytes())
        return sorted(files)

    def drop(self) -> None:
        """Remove the folder; links are removed, not what they show."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _show(source: Path, folder: Path, hidden: set[str]) -> None:
    """Make `folder` with a link for everything in `source`, but for folders that are real in a home.

    What the repository has under the candidate's own name is hidden: a write must not go through the link.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if old.is_symlink():
            old.unlink()
    for item in source.iterdir() if source.is_dir() else ():
        place = folder / item.name
        is_own = any(str(place).endswith(f"/{name}") for name in _OWN)
        if not is_own and not place.exists() and item.name != ".git" and item.name not in hidden:
            place.symlink_to(item)
