"""Apply patches to the files of a package, all or none, in a throw-away repository.

No fuzz: a hunk whose context is not there word for word is refused. A hunk that fits some lines further is reported as
an offset; whether that is right is for the caller to judge by the tree hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from draftkiln.errors import DraftkilnError, PatchError, ProblemsError
from draftkiln.patches import mail
from draftkiln.patches.header import PACKAGE
from draftkiln.patches.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from draftkiln.patches.queue import Patch
    from draftkiln.patches.repository import Verdict


class Fit(StrEnum):
    """How a patch went in."""

    CLEAN = "clean"
    OFFSET = "offset"


@dataclass(frozen=True)
class Step:
    """One patch that went in."""

    patch: Patch
    fit: Fit
    offsets: tuple[str, ...]
    commit: str


@dataclass(frozen=True)
class Applied:
    """What applying a series made."""

    base_tree: str
    tree: str
    base: str
    """Ref of the base in the repository."""
    steps: tuple[Step, ...]
    changed: Mapping[str, bytes | None]
    """New content of each file that differs from the base; None where it was removed."""

    @property
    def offsets(self) -> tuple[str, ...]:
        """Every hunk that fits at other lines than written."""
        return tuple(f"{step.patch.name}: {offset}" for step in self.steps for offset in step.offsets)


def apply_series(files: Mapping[str, bytes], version: str, patches: Sequence[Patch]) -> Applied:
    """Apply `patches` in order to `files`, the package of speculators `version`.

    Args:
        files: path such as `speculators/config.py` to content.
        version: names the files in messages.
        patches: in the order in which they are applied.

    Raises:
        ProblemsError: every patch that does not fit; nothing is applied then.
    """
    with Repository.throwaway() as repository:
        return apply_in(repository, files, version, patches)


def apply_in(repository: Repository, files: Mapping[str, bytes], version: str, patches: Sequence[Patch]) -> Applied:
    """`apply_series` in a repository that the caller goes on using: each patch is a commit of it.

    Raises:
        ProblemsError: every patch that does not fit.
    """
    problems: list[DraftkilnError] = list(_carriage_returns(files, version, patches))
    if problems:
        raise ProblemsError(problems)
    base = repository.add_base(version, files)
    repository.checkout(base)
    steps = []
    for patch in patches:
        verdict = repository.check(patch.data)
        if verdict.fits:
            commit = _commit(repository, patch)
            steps.append(Step(patch, Fit.OFFSET if verdict.offsets else Fit.CLEAN, verdict.offsets, commit))
        else:
            is_in = repository.check(patch.data, reverse=True).fits
            problems.append(_refusal(patch, version, verdict, is_in=is_in, follows=bool(problems)))
    if problems:
        raise ProblemsError(problems)
    base_tree, tree = repository.trees(base, "HEAD")
    return Applied(
        base_tree=base_tree,
        tree=tree,
        base=base,
        steps=tuple(steps),
        changed=repository.changed(base, "HEAD"),
    )


def tree_hash(files: Mapping[str, bytes]) -> str:
    """Git's hash of a tree that holds exactly `files`."""
    with Repository.throwaway() as repository:
        return repository.trees(repository.add_base("files", files))[0]


def _commit(repository: Repository, patch: Patch) -> str:
    answer = repository.am(patch.data)
    if answer.returncode:
        raise PatchError(
            f"{patch.path}: git am refused it",
            why=answer.stderr.strip(),
            fix="compare it with `draftkiln patches export`",
        )
    commit, changed = repository.newest()
    if changed != set(patch.files):
        missed = ", ".join(sorted(changed ^ set(patch.files)))
        raise PatchError(
            f"{patch.path}: git took it and changed other files than it names",
            why=f"differs in {missed}",
            fix="make the patch again with `draftkiln patches new`",
        )
    return commit


def _carriage_returns(files: Mapping[str, bytes], version: str, patches: Sequence[Patch]) -> list[PatchError]:
    touched = sorted({name for patch in patches for name in patch.files})
    return [
        PatchError(
            f"{name}: CRLF line ends, in {PACKAGE} {version}",
            why="a checkout or an editor changed them; the wheel has LF",
            fix="unpack the wheel again",
        )
        for name in touched
        if b"\r\n" in files.get(name, b"")
    ]


def _refusal(patch: Patch, version: str, verdict: Verdict, *, is_in: bool, follows: bool) -> PatchError:
    what = f"{patch.path}: does not apply to {PACKAGE} {version}"
    made_for = f"the patch was made for {PACKAGE} {patch.header.base}"
    if is_in:
        why = f"all of it is in there already; {made_for}"
        fix = f"if upstream has it: draftkiln patches drop {patch.slug}"
    elif verdict.absent:
        why = f"{', '.join(verdict.absent)} is not in {PACKAGE} {version}: target removed upstream; {made_for}"
        fix = f"stay on {PACKAGE} {patch.header.base}, or use a stack on vLLM's own extraction"
    else:
        places = [f"hunk {_hunk_number(patch, file, line)} of {file}" for file, line in verdict.failed]
        why = f"{' and '.join(places) or verdict.output} finds no place; {made_for}"
        if follows:
            why += "; an earlier patch of the series failed too, which may be the cause"
        fix = f"draftkiln patches rebase --to {PACKAGE}=={version}, or write {patch.slug}@{version}.patch"
        if version == patch.header.base:
            fix = "apply it to the release as it is, after all patches that stand before it"
    return PatchError(what, why=why, fix=fix)


def _hunk_number(patch: Patch, file: str, line: int) -> int | str:
    from unidiff.patch import PatchSet

    for changed in PatchSet(mail.diff_of(patch.text)):
        if changed.path == file:
            return next((number for number, hunk in enumerate(changed, 1) if hunk.source_start == line), "?")
    return "?"
