"""Apply a series to a folder that holds an unpacked wheel, all or nothing, and say what was true before."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from draftkiln import durable
from draftkiln.errors import PatchError, ProblemsError
from draftkiln.patches import apply, record
from draftkiln.patches.header import PACKAGE
from draftkiln.patches.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from draftkiln.patches.queue import Patch


class Outcome(StrEnum):
    """What `apply_to_folder` found and did."""

    APPLIED = "applied"
    ALREADY_APPLIED = "already applied"


@dataclass(frozen=True)
class FolderResult:
    """Outcome, tree hash of the package now, changed paths and hunks that fitted at other lines."""

    outcome: Outcome
    tree: str
    changed: tuple[str, ...]
    offsets: tuple[str, ...]


def package_files(folder: Path) -> dict[str, bytes]:
    """The package inside `folder` (`speculators/…` to content), compiled files left out.

    Raises:
        PatchError: no package there.
    """
    package = folder / PACKAGE
    if not package.is_dir():
        raise PatchError(
            f"{folder}: no {PACKAGE}/ inside",
            why="patches are made on the wheel's layout",
            fix=f"name the folder that holds {PACKAGE}/",
        )
    files = {}
    for parent, folders, names in os.walk(package):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if not name.endswith(".pyc"):
                path = folder.__class__(parent) / name
                files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return files


def version_of(folder: Path) -> str:
    """Version that the folder's `.dist-info` bears; `(unknown)` where there is none."""
    found = _dist_info(folder)
    return found.name.removeprefix(f"{PACKAGE}-").removesuffix(".dist-info") if found else "(unknown)"


def apply_to_folder(
    folder: Path, patches: Sequence[Patch], *, expected_tree: str | None = None, accept_offsets: bool = False
) -> FolderResult:
    """Apply `patches` to the package in `folder`, or find that it is done; on any failure no byte changes.

    Args:
        folder: holds `speculators/`, such as an unpacked wheel; an installed environment is refused.
        patches: in order.
        expected_tree: locked hash that the result must have.
        accept_offsets: take hunks that fit at other lines although no hash says that this is right.

    Raises:
        PatchError: a result that is not the expected one, or an environment.
        ProblemsError: every patch that does not fit.
    """
    folder = folder.resolve()
    files = package_files(folder)
    _refuse_environment(folder)
    version = version_of(folder)
    before = apply.tree_hash(files)
    if before == expected_tree or (patches and _is_applied(files, patches)):
        _compare(folder, before, expected_tree)
        return FolderResult(Outcome.ALREADY_APPLIED, before, (), ())
    try:
        applied = apply.apply_series(files, version, patches)
    except ProblemsError as error:
        half = _half_patched(folder, files, version, patches)
        raise (ProblemsError([half]) if half else error) from error
    _compare(folder, applied.tree, expected_tree)
    if applied.offsets and expected_tree is None and not accept_offsets:
        raise PatchError(
            f"{folder}: {len(applied.offsets)} hunks fit at other lines, and no locked hash says that this is right",
            why="; ".join(applied.offsets),
            fix="apply with --stack whose lock holds the hash, or read the result and accept it with --accept-offsets",
        )
    _replace(folder, {**applied.changed, **_new_record(folder, applied.changed)}, applied.tree)
    return FolderResult(Outcome.APPLIED, applied.tree, tuple(sorted(applied.changed)), applied.offsets)


def _is_applied(files: Mapping[str, bytes], patches: Sequence[Patch]) -> bool:
    with Repository.throwaway() as repository:
        repository.checkout(repository.add_base("files", files))
        for patch in reversed(patches):
            if not repository.check(patch.data, reverse=True).fits:
                return False
            repository.git("apply", "--index", "--reverse", "--whitespace=nowarn", "-", stdin=patch.data)
        return True


def _half_patched(
    folder: Path, files: Mapping[str, bytes], version: str, patches: Sequence[Patch]
) -> PatchError | None:
    """The error for a folder of the very release that the patches are for, which holds some of them already."""
    made_for_it = [patch for patch in patches if patch.header.base == version]
    with Repository.throwaway() as repository:
        repository.checkout(repository.add_base("files", files))
        there = [patch.path.name for patch in made_for_it if repository.check(patch.data, reverse=True).fits]
    if not there:
        return None
    return PatchError(
        f"{folder}: neither the release nor the patched one: at least {len(there)} of {len(patches)} patches are in",
        why=f"in there already: {', '.join(there)}",
        fix="unpack the wheel again; nothing was changed",
    )


def _compare(folder: Path, tree: str, expected: str | None) -> None:
    if expected is not None and tree != expected:
        raise PatchError(
            f"{folder}: patched, its tree is {tree}, the lock says {expected}",
            why="the folder was not the pristine wheel, or the patches changed since the lock was made",
            fix="unpack the wheel again; if the patches are meant to differ, remake the lock: nox -s lock",
        )


def _refuse_environment(folder: Path) -> None:
    found = _dist_info(folder)
    if found is not None and (found / "INSTALLER").exists():
        raise PatchError(
            f"{folder}: this is an installed environment",
            why="a file edited in place no longer matches its RECORD, and the version would not show the patching",
            fix="install the patched wheel: draftkiln patches apply --stack NAME --out FOLDER",
        )


def _dist_info(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob(f"{PACKAGE}-*.dist-info"))), None)


def _new_record(folder: Path, changed: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    found = _dist_info(folder)
    path = found / "RECORD" if found else None
    if path is None or not path.exists():
        return {}
    return {path.relative_to(folder).as_posix(): record.updated(path.read_bytes(), changed)}


def _replace(folder: Path, changed: Mapping[str, bytes | None], tree: str) -> None:
    originals = {name: path.read_bytes() if (path := folder / name).exists() else None for name in changed}
    try:
        _write(folder, changed)
        _require_tree(folder, tree)
    except BaseException:
        _write(folder, originals)
        raise


def _require_tree(folder: Path, tree: str) -> None:
    found = apply.tree_hash(package_files(folder))
    if found != tree:
        raise PatchError(
            f"{folder}: tree {found} after writing, not {tree}", why="something else writes there", fix="try again"
        )


def _write(folder: Path, files: Mapping[str, bytes | None]) -> None:
    for name, data in files.items():
        if data is None:
            (folder / name).unlink(missing_ok=True)
        else:
            durable.write_bytes(folder / name, data)
