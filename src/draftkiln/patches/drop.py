"""Take a patch out of the queue once upstream has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftkiln.errors import PatchError, ProblemsError
from draftkiln.patches import apply, edits, uses
from draftkiln.patches.header import PACKAGE
from draftkiln.patches.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from draftkiln.patches.queue import Patch, Queue
    from draftkiln.patches.uses import Use
    from draftkiln.patches.wheel import Wheel


def plan(
    slug: str, queue: Queue, every_use: Sequence[Use], wheels: Sequence[Path], *, force: bool
) -> dict[Path, str | None]:
    """Files to write (None: to remove) so that the queue no longer has `slug`.

    Args:
        slug: of the patch; its variants go with it.
        queue: as read.
        every_use: of all stacks.
        wheels: pristine wheels to use instead of the cache.
        force: also where no release has the change; the rest of each series must apply without it all the same.

    Raises:
        PatchError: no such patch, or no stack applies it and it is not forced.
        ProblemsError: stacks whose release does not have the change, or patches that do not fit without it.
    """
    named = [patch for patch in queue.pool if patch.slug == slug]
    if not named:
        known = ", ".join(sorted({patch.slug for patch in queue.pool})) or "none"
        raise PatchError(f"no patch {slug!r}", why=f"patches there: {known}", fix="name one of them")
    using = [use for use in every_use if any(patch.slug == slug for patch in uses.patches_of(use, queue.series))]
    problems: list[PatchError] = []
    for use in using:
        patches = uses.patches_of(use, queue.series)
        base = uses.base_of(use.version, every_use, wheels)
        if not force and not _is_upstream(slug, patches, base):
            problems.append(
                PatchError(
                    f"{slug}: {PACKAGE} {use.version} of stack {use.stack} does not have this change",
                    fix="keep it; if it is not wanted any more: --force",
                )
            )
        else:
            problems += _standing_on(slug, use, base, patches)
    if problems:
        raise ProblemsError(problems)
    files: dict[Path, str | None] = {patch.path: None for patch in named}
    for series in queue.series.values():
        if any(entry.slug == slug for entry in series.entries):
            files[series.path] = edits.without_slugs(series.path.read_text(encoding="utf-8"), {slug})
    return files


def _standing_on(slug: str, use: Use, base: Wheel, patches: Sequence[Patch]) -> list[PatchError]:
    """What is wrong with a stack's series without the patch: those that need its lines."""
    try:
        apply.apply_series(base.package, base.version, [patch for patch in patches if patch.slug != slug])
    except ProblemsError as error:
        broken = [problem.what.partition(".patch")[0].rpartition("/")[2] for problem in error.problems]
        return [
            PatchError(
                f"{slug}: {len(broken)} patches of stack {use.stack} do not apply without it",
                why=", ".join(broken),
                fix="drop them first, or make them anew on a tree without it",
            )
        ]
    return []


def _is_upstream(slug: str, patches: Sequence[Patch], base: Wheel) -> bool:
    position = next(index for index, patch in enumerate(patches) if patch.slug == slug)
    with Repository.throwaway() as repository:
        apply.apply_in(repository, base.package, base.version, patches[:position])
        return repository.check(patches[position].data, reverse=True).fits
