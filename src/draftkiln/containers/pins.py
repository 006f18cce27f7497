"""Every pin and its state: present, gone, moved, or not known because nobody could be asked."""

from __future__ import annotations

import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from draftkiln.containers import base, inputs, wheelhouse
from draftkiln.containers.failures import explain
from draftkiln.containers.locked import Locked, Platform, read_lock
from draftkiln.errors import ContainerError, ExitCode, NetworkError, PinError
from draftkiln.patches import base as base_wheels
from draftkiln.stack.model import names, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from draftkiln.containers.engine import Engine

_AT_ONCE = 4
_IMAGE_PLATFORMS = ("x86_64", "aarch64")


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


def check(stacks: list[str], engine: Engine | None, *, packages: bool = True) -> list[Pin]:
    """Look every pin of these stacks up, where it comes from; nothing is downloaded, nothing rewritten."""
    found: list[Pin] = []
    locked: dict[str, Locked] = {}
    for name in stacks:
        stack = read(name)
        found.extend(base_pins(name, engine))
        platform = Platform(base.read(stack.file.device).python, _IMAGE_PLATFORMS[0])
        for package in read_lock(stack.requirements, platform):
            locked[package.pin] = package
        released = stack.file.speculators.version
        wheel = Locked("speculators", released, frozenset({stack.locked().base_wheel_sha256}))
        locked[wheel.pin] = wheel
    if packages:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found.extend(pool.map(package_pin, [locked[key] for key in sorted(locked)]))
    return found


def base_pins(name: str, engine: Engine | None) -> Iterator[Pin]:
    """The pin of a stack's base."""
    file = read(name).file
    if file.base.image is None:
        kept = base.kept(file.device)
        wanted = file.base.tar_sha256 or (kept.sha256 if kept else "not pinned")
        note = f"{len(kept.packages)} Debian packages recorded" if kept else f"not made here: nox -s base -- {file.device}"
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


def package_pin(package: Locked) -> Pin:
    """Whether the index still offers one of the locked files of a version.

    pip is asked without a download: it reads the index, and its dry run fails before any wheel is fetched where no file
    has an allowed hash.
    """
    name = f"{package.name}=={package.version}"
    with tempfile.TemporaryDirectory(prefix="draftkiln-pin-") as folder:
        pins = Path(folder, "pin.txt")
        pins.write_text(f"{package.pin}\n", encoding="utf-8")
        words = ["index", "versions", package.name, "--disable-pip-version-check", "--no-input", "--pre"]
        done = subprocess.run(
            [*base_wheels.pip(), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=folder
        )
    return Pin("package", name, f"{len(package.hashes)} files by sha256", *package_state(package, done.stdout, done.stderr))


def package_state(package: Locked, said: str, errors: str) -> tuple[State, str]:
    """What pip's listing of versions means for a pin."""
    if "429" in errors:
        return State.RATE_LIMIT, "ask again later"
    if not said:
        error = wheelhouse.refusal(errors)
        if isinstance(error, NetworkError):
            return State.NO_NETWORK, "nothing is known about the pin"
        return (State.GONE, "the project or all its files are gone") if "No matching" in errors else (State.UNKNOWN, errors)
    versions = next((line for line in said.splitlines() if line.startswith("Available versions:")), "")
    offered = {item.strip() for item in versions.partition(":")[2].split(",")}
    if package.version in offered:
        return State.PRESENT, ""
    return State.GONE, f"the newest is {_newest(offered)}"


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


def all_stacks() -> list[str]:
    """Names of all stacks that can be checked."""
    return names()


def _newest(offered: set[str]) -> str:
    versions = []
    for item in offered:
        try:
            versions.append(Version(item))
        except InvalidVersion:
            continue
    return str(max(versions)) if versions else "none"
