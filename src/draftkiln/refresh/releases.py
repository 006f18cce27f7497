"""Releases on the package index, asked through uv with this machine's own settings."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.containers.locked import Platform
from draftkiln.errors import DraftkilnError, StackError, UsageError
from draftkiln.refresh import web
from draftkiln.refresh.outcome import GoneError, UnansweredError
from draftkiln.stack import uv

if TYPE_CHECKING:
    import datetime as dt

_NO_VERSION = re.compile(
    r"there is no version of|no versions? of \S+ (?:is|are) available|was not found in", re.IGNORECASE
)
_NO_WHEEL = re.compile(r"no wheels with a matching|no usable wheels|no matching wheel", re.IGNORECASE)
_YANKED = re.compile(r"yanked|only .* available", re.IGNORECASE)
_RATE = re.compile(r"\b429\b|too many requests", re.IGNORECASE)
_NETWORK = re.compile(
    r"failed to fetch|request failed|error sending request|timed out|connect|dns|status (client|server) error",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Release:
    """One wheel of a release, for this machine."""

    package: str
    version: str
    url: str
    sha256: str
    uploaded: dt.datetime | None
    hashes: tuple[str, ...]
    """Of all its files."""


def find(package: str, version: str | None) -> Release:
    """The release `version`, or the newest one, and its wheel for this machine.

    Raises:
        GoneError: the index has no such version, took it back (yanked), or has no wheel of it for this machine.
        UnansweredError: the index could not be asked.
    """
    wanted = package if version is None else f"{package}=={version}"
    found = _ask(wanted)
    if found is None:
        raise GoneError(
            f"{wanted}: the index has no such release",
            why="it was never there, was removed, or was taken back",
            fix="name another version; no other one is taken in its place",
        )
    if version is not None and _ask(f"{package}>={version},<={version}") is None:
        raise GoneError(
            f"{wanted}: taken back by its publisher (yanked)",
            why="an exact pin still gets it, which is not what a new stack should start from",
            fix="name another version",
        )
    return found


def exists(package: str, version: str) -> bool:
    """Whether the index has that release.

    Raises:
        UnansweredError: the index could not be asked.
    """
    return _ask(f"{package}=={version}") is not None


def known(package: str) -> list[str]:
    """All versions that the index offers, oldest first, as pip tells them.

    Raises:
        UnansweredError: the index could not be asked.
    """
    from packaging.version import Version

    from draftkiln.patches.base import pip

    command = [*pip(), "index", "versions", package, "--disable-pip-version-check", "--no-input", "--pre"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    line = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if done.returncode or line is None:
        raise UnansweredError(
            f"cannot list the releases of {package}", why=done.stderr.strip()[-300:], fix="check the network"
        )
    return sorted(line[1].split(", "), key=Version)


def machine() -> Platform:
    """This Python on this machine."""
    return Platform(f"{sys.version_info.major}.{sys.version_info.minor}", platform.machine())


def _ask(wanted: str) -> Release | None:
    """What uv resolves `wanted` to, without dependencies; None where the index has none."""
    with tempfile.TemporaryDirectory(prefix="draftkiln-refresh-") as folder:
        file = Path(folder, "wanted.in")
        file.write_text(f"{wanted}\n", encoding="utf-8")
        words = [
            "pip", "compile", str(file), "--no-deps", "--no-header", "--format", "pylock.toml", "--no-build",
            "--python-version", machine().python, "--python", sys.executable, "--refresh", "--quiet",
        ]  # fmt: skip
        try:
            text = uv.run(words, what=f"the index does not tell of {wanted}", fix="check the network")
        except StackError as error:
            raised = _refusal(wanted, error)
            if raised is None:
                return None
            raise raised from error
    return _chosen(tomllib.loads(text))


def _refusal(wanted: str, error: StackError) -> DraftkilnError | None:
    if _RATE.search(error.why):
        return UnansweredError(error.what, why="it limits how often it may be asked (HTTP 429)", fix="ask again later")
    if _NO_WHEEL.search(error.why):
        return GoneError(
            f"{wanted}: no wheel for {machine()}", why=" ".join(error.why.split()), fix="run this on another machine"
        )
    if _NO_VERSION.search(error.why) or _YANKED.search(error.why):
        return None
    if _NETWORK.search(error.why):
        return UnansweredError(error.what, why=" ".join(error.why.split()), fix="check the network, then run it again")
    return UsageError(f"--vllm {wanted}: {error.what}", why=error.why, fix="name a version such as 0.24.0")


def _chosen(lock: dict[str, object]) -> Release:
    packages = lock.get("packages")
    entry = packages[0] if isinstance(packages, list) and packages else {}
    wheels = entry.get("wheels", [])
    taken = [one for one in wheels if machine().takes(one["url"].rpartition("/")[2])]
    if not taken:
        raise GoneError(
            f"{entry.get('name')} {entry.get('version')}: no wheel for {machine()}",
            why=f"the index has {len(wheels)} wheels of it, for other machines",
            fix="run this on a machine that it has one for",
        )
    hashes = tuple(sorted(one["hashes"]["sha256"] for one in wheels))
    dates = [one["upload-time"] for one in wheels if "upload-time" in one]
    return Release(
        entry["name"], entry["version"], taken[0]["url"], taken[0]["hashes"]["sha256"], max(dates, default=None), hashes
    )


def fetch(release: Release) -> web.Fetched:
    """Download the wheel of a release, hash-checked, or find it in the cache.

    Raises:
        GoneError, UnansweredError, PinError, StorageError: as `web.wheel`.
    """
    return web.wheel(release.url, release.sha256)
