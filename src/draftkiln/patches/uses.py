"""Which stack applies which series to which release, and what its lock says came out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln import cache
from draftkiln.errors import PatchError
from draftkiln.patches.base import base_wheel, newest_wheel
from draftkiln.patches.header import PACKAGE
from draftkiln.patches.wheel import Wheel, read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from draftkiln.patches.queue import Patch, Series


@dataclass(frozen=True)
class Use:
    """A stack that applies a series."""

    stack: str
    version: str
    """Release of speculators."""
    engine: str
    """Version of vLLM."""
    series: str
    base_sha256: str | None
    """Hash of the pristine wheel; None while the stack has no lock."""
    tree: str | None
    wheel_sha256: str | None


def all_uses() -> list[Use]:
    """Every stack that names a series, by name.

    Raises:
        StackError: a stack's files are not valid.
    """
    from draftkiln.stack import model

    found = []
    for name in model.names():
        stack = model.read(name)
        part, lock = stack.file.speculators, stack.lock
        if part.series:
            found.append(
                Use(
                    stack=name,
                    version=part.version,
                    engine=stack.file.engine.version,
                    series=part.series,
                    base_sha256=lock.base_wheel_sha256 if lock else None,
                    tree=lock.patched_tree if lock else None,
                    wheel_sha256=lock.patched_wheel_sha256 if lock else None,
                )
            )
    return found


def of_stack(name: str, uses: Sequence[Use]) -> Use:
    """The use of the stack `name`.

    Raises:
        PatchError: there is no such stack, or it applies no series.
    """
    for use in uses:
        if use.stack == name:
            return use
    known = ", ".join(use.stack for use in uses) or "none"
    raise PatchError(f"no stack {name!r} with a series", why=f"stacks with one: {known}", fix="name one of them")


def base_of(version: str, uses: Sequence[Use], wheels: Sequence[Path] = ()) -> Wheel:
    """The pristine wheel of a release: one of `wheels`, else the one that a stack's lock names.

    Raises:
        PatchError: no lock names its hash, and it is not among `wheels`.
        NetworkError: it is not in the cache and cannot be downloaded.
    """
    hashes = {use.base_sha256 for use in uses if use.version == version and use.base_sha256}
    for path in wheels:
        wheel = read(path)
        if wheel.version == version:
            return read(path, sha256=next(iter(hashes), None))
    if not hashes:
        raise PatchError(
            f"the pristine wheel of {PACKAGE} {version} is not known",
            why="no stack with a lock uses that release",
            fix="lock a stack that does (nox -s lock), or name the file with --wheel",
        )
    sha256 = min(hashes)
    return read(base_wheel(PACKAGE, version, sha256, cache.root()), sha256=sha256)


def new_release(version: str, uses: Sequence[Use], wheels: Sequence[Path] = ()) -> Wheel:
    """`base_of`, or what the index offers where nothing names a hash yet: only a rebase may ask for that.

    Raises:
        NetworkError: it cannot be downloaded.
    """
    if any(use.version == version and use.base_sha256 for use in uses) or any(
        read(path).version == version for path in wheels
    ):
        return base_of(version, uses, wheels)
    return read(newest_wheel(PACKAGE, version, cache.root()))


def homes(uses: Sequence[Use], series: Mapping[str, Series]) -> dict[Path, Use]:
    """For each patch the stack on whose base its text is exported: the first on the patch's own `Base:`."""
    found: dict[Path, Use] = {}
    for use in uses:
        for patch in patches_of(use, series):
            if patch.header.base == use.version:
                found.setdefault(patch.path, use)
    return found


def patches_of(use: Use, series: Mapping[str, Series]) -> tuple[Patch, ...]:
    """Patches that a stack applies, in order; none where its series does not exist."""
    return series[use.series].patches(use.version) if use.series in series else ()
