"""The one right text of each patch: what git writes for it on its own base, in its place in the series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln.patches import apply, uses
from draftkiln.patches.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from pathlib import Path

    from draftkiln.patches.queue import Patch, Queue
    from draftkiln.patches.uses import Use
    from draftkiln.patches.wheel import Wheel


@dataclass(frozen=True)
class Exported:
    """A series applied to a base, and the text of each of its patches there."""

    applied: apply.Applied
    texts: Mapping[Path, str]
    """By the file of the patch."""
    files: Mapping[Path, Mapping[str, bytes | None]]
    """By the file of the patch: content of the files it touches, after it; for the slugs asked for."""


def export_series(base: Wheel, patches: Sequence[Patch], with_files: Container[str] = ()) -> Exported:
    """Apply `patches` to `base` and export each.

    Args:
        base: wheel.
        patches: in order.
        with_files: slugs whose touched files are wanted too.

    Raises:
        ProblemsError: every patch that does not fit.
    """
    with Repository.throwaway() as repository:
        applied = apply.apply_in(repository, base.package, base.version, patches)
        texts = repository.exports(applied.base)
        return Exported(
            applied,
            texts={step.patch.path: text for step, text in zip(applied.steps, texts, strict=True)},
            files={
                step.patch.path: repository.changed(f"{step.commit}~", step.commit)
                for step in applied.steps
                if step.patch.slug in with_files
            },
        )


def stale(home: Mapping[Path, Use], exported: Mapping[Use, Exported]) -> dict[Path, str]:
    """The right text of each patch file whose bytes differ from it."""
    found = {}
    for path, use in home.items():
        text = exported[use].texts.get(path) if use in exported else None
        if text is not None and path.read_bytes() != text.encode():
            found[path] = text
    return found


def stale_texts(queue: Queue, every_use: Sequence[Use], wheels: Sequence[Path] = ()) -> dict[Path, str]:
    """The right text of each patch file of the queue that is not it; patches without a home are left out.

    Raises:
        ProblemsError: every patch that does not fit.
        PatchError: a base wheel is not known.
    """
    home = uses.homes(every_use, queue.series)
    exported = {
        use: export_series(uses.base_of(use.version, every_use, wheels), uses.patches_of(use, queue.series))
        for use in sorted(set(home.values()), key=lambda use: use.stack)
    }
    return stale(home, exported)
