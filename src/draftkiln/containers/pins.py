"""Every pin and its state: present, gone, moved, or not known because nobody could be asked."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from draftkiln import cache
from draftkiln.containers import base
from draftkiln.containers.failures import explain
from draftkiln.containers.locked import Locked, Platform, read_lock
from draftkiln.errors import DraftkilnError, ExitCode, NetworkError, PinError, StackError
from draftkiln.stack import fetching, uv
from draftkiln.stack.model import read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftkiln.containers.engine import Engine

_MACHINE = "x86_64"
_GONE = re.compile(r"there is no version of (\S+)")
_RATE_LIMIT = re.compile(r"\b429\b|too many requests", re.IGNORECASE)


class State(StrEnum):
    """What is known of a pin."""

    PRESENT = "present"
    GONE = "gone"
    MOVED = "moved"
    NO_NETWORK = "no network"
    RATE_LIMIT = "rate limit"
    LOCAL = "local"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Pin:
    """One pinned thing and what was found out about it."""

    kind: str
    name: str
    wanted: str
    state: State
    note: str = ""

    def __str__(self) -> str:
        return f"{self.state:10} {self.kind:7} {self.name:45} {self.wanted[:26]:26} {self.note}".rstrip()


@dataclass(frozen=True)
class Candidate:
    """What a moving tag points at now."""

    digest: str
    version: str
    built: str


def check(stacks: list[str], engine: Engine | None) -> list[Pin]:
    """Look every pin of these stacks up, where it comes from; nothing is downloaded, nothing rewritten."""
    found: list[Pin] = []
    locked: dict[str, Locked] = {}
    for name in stacks:
        stack = read(name)
        found.extend(base_pins(name, engine))
        platform = Platform(base.read(stack.file.device).python, _MACHINE)
        wheel = Locked("speculators", stack.file.speculators.version, frozenset({stack.locked().base_wheel_sha256}))
        for package in [*read_lock(stack.requirements, platform), wheel]:
            locked.setdefault(f"{package.name}=={package.version}", package)
    return [*found, *package_pins([locked[key] for key in sorted(locked)])]


def base_pins(name: str, engine: Engine | None) -> Iterator[Pin]:
    """The pin of a stack's base."""
    file = read(name).file
    if file.base.image is None:
        kept = base.kept(file.device)
        wanted = file.base.tar_sha256 or (kept.sha256 if kept else "not pinned")
        note = (
            f"{len(kept.packages)} Debian packages recorded" if kept else f"not made here: nox -s base -- {file.device}"
        )
        yield Pin("base", f"{name} ({file.device})", wanted, State.LOCAL, note)
        return
    image, digest = file.base.image.split("@")
    if engine is None:
        yield Pin("image", image, digest, State.UNKNOWN, "no container engine to ask with")
        return
    state, note = image_state(engine, file.base.image)
    yield Pin("image", image, digest, state, note)


def image_state(engine: Engine, reference: str) -> tuple[State, str]:
    """Whether an image of that digest is still served. No other tag or digest is ever tried in its place."""
    done = engine.attempt("manifest", "inspect", reference)
    if done.returncode == 0:
        return State.PRESENT, ""
    error = explain(f"image {reference}", done.returncode, done.stderr)
    if isinstance(error, PinError):
        return State.GONE, error.fix
    if isinstance(error, NetworkError):
        return (State.RATE_LIMIT if "limits" in error.why else State.NO_NETWORK), error.fix
    return State.UNKNOWN, error.why.splitlines()[0]


def package_pins(packages: list[Locked]) -> Iterator[Pin]:
    """Whether the index still offers the locked files: it is asked for the hashes of all versions at once.

    uv stops at the first version that is gone, so it is asked again without that one.
    """
    left, missing = {f"{package.name}=={package.version}": package for package in packages}, dict[str, str]()
    offered, failure = {}, None
    while left:
        try:
            offered = offered_hashes(sorted(left))
            break
        except StackError as error:
            gone = _GONE.search(error.why)
            if gone is None or gone[1] not in left:
                failure = fetching.refusal(error.why, cache.root())
                break
            missing[gone[1]] = "the index has no such version any more"
            del left[gone[1]]
    for package in packages:
        name = f"{package.name}=={package.version}"
        wanted = f"{len(package.hashes)} files by sha256"
        if name in missing:
            yield Pin("package", name, wanted, State.GONE, missing[name])
        elif failure is not None:
            yield Pin("package", name, wanted, *_not_asked(failure))
        else:
            yield Pin("package", name, wanted, *compare(package, offered.get(package.name, frozenset())))


def compare(package: Locked, offered: frozenset[str]) -> tuple[State, str]:
    """The state of a pin whose version the index offers with the hashes `offered`."""
    if not offered & package.hashes:
        return State.MOVED, "the same version has other bytes now"
    lost = len(package.hashes - offered)
    return State.PRESENT, f"{lost} of its files are gone" if lost else ""


def offered_hashes(pins: list[str]) -> dict[str, frozenset[str]]:
    """Hashes of all files that the index offers of each `name==version`, by name."""
    with tempfile.TemporaryDirectory(prefix="draftkiln-pins-") as folder:
        wanted = Path(folder, "pins.in")
        wanted.write_text("\n".join(pins) + "\n", encoding="utf-8")
        words = [
            "pip", "compile", str(wanted), "--no-deps", "--universal", "--generate-hashes", "--no-header",
            "--no-annotate", "--no-emit-index-url", "--no-build", "--quiet", "--refresh",
        ]  # fmt: skip
        text = uv.run(words, what="the index does not answer", fix="check the network")
        listing = Path(folder, "pins.lock")
        listing.write_text(text, encoding="utf-8")
        return {found.name: found.hashes for found in read_lock(listing, Platform("3.11", _MACHINE))}


def _not_asked(failure: DraftkilnError) -> tuple[State, str]:
    if _RATE_LIMIT.search(failure.why):
        return State.RATE_LIMIT, "ask again later; nothing is known about the pin"
    if isinstance(failure, NetworkError):
        return State.NO_NETWORK, "nothing is known about the pin"
    return State.UNKNOWN, failure.why.splitlines()[-1]


def refresh_verdict(pinned: Candidate, found: Candidate) -> str:
    """What to do about a moving tag: an older build under a new digest is no news, however new its digest.

    Returns:
        `same` or `newer`.

    Raises:
        PinError: the tag went back to an older build.
    """
    if found.digest == pinned.digest:
        return "same"
    older = Version(found.version) < Version(pinned.version)
    if older or (found.version == pinned.version and found.built < pinned.built):
        raise PinError(
            f"the tag points at an older build: {found.version} of {found.built}",
            why=f"pinned is {pinned.version} of {pinned.built}; the tag stopped moving",
            fix="use the tag that moves now; the pin stays as it is",
        )
    return "newer"


def verdict(pins: list[Pin]) -> ExitCode:
    """Exit code of a look-up: a pin that is gone is worse than an index that could not be asked."""
    states = {pin.state for pin in pins}
    if states & {State.GONE, State.MOVED}:
        return ExitCode.PIN
    return ExitCode.NETWORK if states & {State.NO_NETWORK, State.RATE_LIMIT} else ExitCode.OK
