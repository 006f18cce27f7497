"""Reading a hash lock: which package, which version, which bytes, for one Python on one machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from draftkiln.errors import StackError

if TYPE_CHECKING:
    from pathlib import Path

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
GLIBC_MINOR = 36
"""glibc 2.36, Debian 12's: wheels for newer ones do not load in the images."""


@dataclass(frozen=True)
class Platform:
    """The Python and the machine that wheels are for."""

    python: str
    machine: str

    def markers(self) -> dict[str, str]:
        """What environment markers are evaluated with."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }

    def platforms(self) -> list[str]:
        """Platform tags, best first."""
        newest_first = [f"manylinux_2_{minor}_{self.machine}" for minor in range(GLIBC_MINOR, 4, -1)]
        old_names = [f"{name}_{self.machine}" for name in ("manylinux2014", "manylinux2010", "manylinux1", "linux")]
        return newest_first + old_names

    def tags(self) -> frozenset[Tag]:
        """All tags of wheels that install."""
        major, minor = self.python.split(".")
        version = (int(major), int(minor))
        platforms = self.platforms()
        return frozenset(
            [*cpython_tags(version, platforms=platforms), *compatible_tags(version, f"cp{major}{minor}", platforms)]
        )

    def takes(self, filename: str) -> bool:
        """Whether a wheel of that name installs."""
        try:
            tags = parse_wheel_filename(filename)[3]
        except InvalidWheelFilename:
            return False
        return not self.tags().isdisjoint(tags)


@dataclass(frozen=True)
class Locked:
    """One package of a lock."""

    name: str
    version: str
    hashes: frozenset[str]
    """sha256 of every file of this version that may be taken."""

    @property
    def pin(self) -> str:
        """`name==version` with its hashes, as pip reads it."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{item}" for item in sorted(self.hashes))])


def read_lock(file: Path, platform: Platform) -> list[Locked]:
    """The packages of `requirements.lock` that `platform` needs, in the lock's order.

    Raises:
        StackError: a line that is not `name==version` with at least one sha256.
    """
    found = []
    for number, line in _logical_lines(file.read_text(encoding="utf-8")):
        hashes = frozenset(_HASH.findall(line))
        try:
            requirement = Requirement(_HASH.sub("", line).strip())
        except InvalidRequirement as error:
            raise StackError(f"{file}:{number}: not a requirement", why=str(error), fix="make the lock anew") from error
        pins = [item.version for item in requirement.specifier if item.operator == "=="]
        if len(pins) != 1 or not hashes:
            raise StackError(
                f"{file}:{number}: {requirement.name} is not pinned by version and sha256",
                why="an image takes locked bytes only",
                fix="make the lock anew",
            )
        if requirement.marker is None or requirement.marker.evaluate(dict(platform.markers())):
            found.append(Locked(canonicalize_name(requirement.name), pins[0], hashes))
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    start = 0
    parts: list[str] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not parts and (not line or line.startswith("#")):
            continue
        start = number if not parts else start
        parts.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            lines.append((start, " ".join(parts)))
            parts = []
    return lines
