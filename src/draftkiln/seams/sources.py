"""Where Python sources are read from: a folder or a wheel, which is never unpacked or imported."""

from __future__ import annotations

import re
import zipfile
import zlib
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from draftkiln.errors import SystemMissingError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


class Sources(Protocol):
    """Python files by their path inside site-packages, such as `vllm/config/__init__.py`."""

    @property
    def origin(self) -> str:
        """Where they come from, for messages."""

    def distributions(self) -> list[str]:
        """Names of the top-level `*.dist-info` folders."""

    def has(self, name: str) -> bool:
        """Whether the file is there."""

    def read(self, name: str) -> str:
        """Text of a file that is there.

        Raises:
            UsageError: its bytes are damaged, or no text.
        """


class FolderSources:
    """Sources in a folder that holds packages (site-packages or an unpacked wheel)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.origin = str(folder)

    def distributions(self) -> list[str]:
        """Names of the top-level `*.dist-info` folders."""
        return sorted(path.name for path in self.folder.glob("*.dist-info"))

    def has(self, name: str) -> bool:
        """Whether the file is there."""
        return (self.folder / name).is_file()

    def read(self, name: str) -> str:
        """Text of a file that is there."""
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(self.origin, name, error) from error


class WheelSources:
    """Sources inside a wheel, read from the zip.

    Raises (from the constructor):
        UsageError: the file is not a wheel.
    """

    def __init__(self, wheel: Path) -> None:
        self.origin = wheel.name
        try:
            self._archive = zipfile.ZipFile(wheel)
        except (OSError, zipfile.BadZipFile) as error:
            raise UsageError(
                f"cannot read the wheel {wheel}", why=str(error), fix="name a complete .whl file"
            ) from error

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self._archive.namelist())

    def distributions(self) -> list[str]:
        """Names of the top-level `*.dist-info` folders."""
        return sorted({name.split("/", 1)[0] for name in self._names if ".dist-info/" in name})

    def has(self, name: str) -> bool:
        """Whether the file is there."""
        return name in self._names

    def read(self, name: str) -> str:
        """Text of a file that is there."""
        try:
            return self._archive.read(name).decode("utf-8")
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, UnicodeDecodeError) as error:
            raise _unreadable(self.origin, name, error) from error


def _unreadable(origin: str, name: str, error: Exception) -> UsageError:
    return UsageError(f"cannot read {name} of {origin}", why=str(error), fix="it is damaged: fetch it again")


def version_of(sources: Sources, *names: str) -> tuple[str, str] | None:
    """Name and version of the first of these distributions whose metadata is there."""
    for name in names:
        pattern = name.replace("-", "[-_]")
        for folder in sources.distributions():
            match = re.fullmatch(rf"{pattern}-([^-]+)\.dist-info", folder, re.IGNORECASE)
            if match:
                return name, match[1]
    return None


def open_sources(place: Path, package: str) -> Sources:
    """Open a wheel, a folder that holds `package`, or the package's own folder.

    Raises:
        SystemMissingError: nothing is there, or `package` is not in it.
    """
    if place.is_file():
        sources: Sources = WheelSources(place)
    else:
        sources = FolderSources(place.parent if place.name == package and (place / "__init__.py").is_file() else place)
    if not sources.has(f"{package}/__init__.py"):
        raise SystemMissingError(
            f"no package {package} in {place}",
            why=f"{package}/__init__.py is not there",
            fix=f"name a wheel of {package}, an unpacked one, or the site-packages folder that holds it",
        )
    return sources
