"""Move a series to another release of speculators: for each patch exactly one state, found in a fixed order.

Order: is every target file there? → does it fit as written? → does it fit in reverse (upstream has it)? → does a
three-way merge take it? → did that make a commit? A three-way merge that returns 0 without a commit found everything
upstream already.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from draftkiln.errors import PatchError
from draftkiln.patches import apply, edits, mail

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from draftkiln.patches.queue import Patch
    from draftkiln.patches.repository import Repository
    from draftkiln.patches.wheel import Wheel


class State(StrEnum):
    """What became of a patch on the new release."""

    CLEAN = "clean"
    OFFSET = "offset"
    MERGED = "merged-3way"
    UPSTREAMED = "upstreamed"
    TARGET_REMOVED = "target-removed"
    CONFLICT = "conflict"

    @property
    def stops(self) -> bool:
        """Whether a person must decide before the series can move."""
        return self in {State.TARGET_REMOVED, State.CONFLICT}


@dataclass(frozen=True)
class Moved:
    """State of one patch, what it means, and the commit that it became (empty when it became none)."""

    slug: str
    state: State
    detail: str = ""
    commit: str = ""


def prepare(repository: Repository, old: Wheel, new: Wheel, patches: Sequence[Patch]) -> dict[str, str]:
    """Put both releases into `repository`, check the new one out, and give each patch's text as of the old one.

    A three-way merge needs the files that a patch was made on: applying the series to the old release makes them.

    Raises:
        ProblemsError: every patch that does not fit the old release.
    """
    applied = apply.apply_in(repository, old.package, old.version, patches)
    exported = zip(applied.steps, repository.exports(applied.base), strict=True)
    repository.git("update-ref", "refs/draftkiln/old-series", "HEAD")
    repository.checkout(repository.add_base(new.version, new.package))
    return {step.patch.slug: edits.with_base(text, new.version) for step, text in exported}


def move(repository: Repository, texts: Mapping[str, str], *, stop: bool = False) -> Iterator[Moved]:
    """Move each patch onto what is checked out and tell its state.

    Args:
        repository: as `prepare` left it.
        texts: slug to text, in order.
        stop: at a conflict leave the merge open in the work tree and end; else go on without that patch.
    """
    for slug, text in texts.items():
        moved = _move_one(repository, slug, text)
        if moved.state is State.CONFLICT and not stop:
            repository.run("am", "--abort")
        yield moved
        if moved.state is State.CONFLICT and stop:
            return


def finish_merge(repository: Repository) -> bool:
    """Take a conflict's work tree as resolved; False when nothing of the patch was left to commit.

    Raises:
        PatchError: a file still holds conflict markers, or there are files that nothing added.
    """
    marked = [name for name in _unmerged(repository) if _holds_markers(repository.folder / name)]
    if marked:
        raise PatchError(
            f"conflict markers in {', '.join(marked)}", fix=f"edit them in {repository.folder}, then continue"
        )
    strays = [name for name in repository.git("ls-files", "--others").split("\n") if name]
    if strays:
        raise PatchError(
            f"files in the tree that are in neither release: {', '.join(strays)}",
            why="an editor's copies would become part of the patch",
            fix=f"remove them, or `git add` in {repository.folder} those that belong to it, then continue",
        )
    repository.git("add", "--update", ".")
    left = bool(repository.git("diff", "--cached", "--name-only"))
    repository.git("am", "--continue" if left else "--skip")
    return left


def _move_one(repository: Repository, slug: str, text: str) -> Moved:
    data = text.encode()
    gone = [path for path in _existing_targets(text) if repository.run("cat-file", "-e", f"HEAD:{path}").returncode]
    if gone:
        return Moved(slug, State.TARGET_REMOVED, f"upstream removed {', '.join(gone)}")
    verdict = repository.check(data)
    if not verdict.fits and repository.check(data, reverse=True).fits:
        return Moved(slug, State.UPSTREAMED, "all of it")
    before = repository.head()
    answer = repository.am(data, three_way=not verdict.fits)
    after = repository.head()
    if answer.returncode:
        return Moved(slug, State.CONFLICT, ", ".join(_unmerged(repository)) or answer.stderr.strip())
    if after == before:
        return Moved(slug, State.UPSTREAMED, "all of it, with other lines around it")
    if verdict.fits:
        return Moved(slug, State.OFFSET if verdict.offsets else State.CLEAN, "; ".join(verdict.offsets), after)
    return _merged(slug, _hunks_missing(text, repository.export(after)), after)


def _merged(slug: str, upstream: Sequence[str], commit: str) -> Moved:
    if upstream:
        return Moved(slug, State.UPSTREAMED, f"{', '.join(upstream)}; the rest stays", commit)
    return Moved(slug, State.MERGED, "", commit)


def _unmerged(repository: Repository) -> list[str]:
    return [name for name in repository.git("diff", "--name-only", "--diff-filter=U").split("\n") if name]


def _holds_markers(path: Path) -> bool:
    return path.exists() and any(line.startswith((b"<<<<<<< ", b">>>>>>> ")) for line in path.read_bytes().splitlines())


def _existing_targets(text: str) -> list[str]:
    from unidiff.patch import PatchSet

    return [changed.path for changed in PatchSet(mail.diff_of(text)) if not changed.is_added_file]


def _hunks_missing(before: str, after: str) -> list[str]:
    """Hunks of the patch `before` none of whose changed lines are in `after`."""
    from unidiff.patch import PatchSet

    left = {changed.path: Counter(_changes(changed)) for changed in PatchSet(mail.diff_of(after))}
    found = []
    for changed in PatchSet(mail.diff_of(before)):
        rest = left.get(changed.path, Counter())
        found += [
            f"hunk {number} of {changed.path}"
            for number, hunk in enumerate(changed, 1)
            if not any(rest[line] for line in _changes([hunk]))
        ]
    return found


def _changes(hunks: Sequence[Sequence[object]]) -> list[str]:
    lines = (str(line) for hunk in hunks for line in hunk)
    return [line for line in lines if line[0] in "+-" and line[1:].strip()]
