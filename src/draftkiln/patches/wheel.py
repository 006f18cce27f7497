"""From a pristine wheel and a series to a patched wheel with a local version, the same bytes on every machine."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from draftkiln import durable
from draftkiln.errors import PatchError
from draftkiln.patches import record
from draftkiln.patches.apply import apply_series
from draftkiln.patches.header import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from draftkiln.patches.apply import Applied
    from draftkiln.patches.queue import Series

PATCHES_FILE = "_patches.json"
"""Name inside the `.dist-info`, for `importlib.metadata.distribution("speculators").read_text(PATCHES_FILE)`."""
SCHEMA_VERSION = 1
_EPOCH = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE = 0o100644 << 16
_UNIX = 3
_VERSION_LINE = re.compile(r"^Version: .*$", re.MULTILINE)


@dataclass(frozen=True)
class Wheel:
    """A pure Python wheel in memory."""

    path: Path
    name: str
    version: str
    sha256: str
    package: Mapping[str, bytes]
    """Files of the package: `speculators/…` to content."""
    info: Mapping[str, bytes]
    """Files of the `.dist-info`, by their path inside it, without RECORD."""


@dataclass(frozen=True)
class PatchedWheel:
    """A built wheel."""

    path: Path
    sha256: str
    tree: str
    """Git tree hash of the patched package."""
    version: str
    """PEP 440, such as `0.3.0+vllm.0.16.0.cpu`."""
    base_sha256: str
    offsets: tuple[str, ...]
    """Hunks that fitted at other lines than written."""


def build(base_wheel: Path, series: Series, out: Path, *, sha256: str | None = None) -> PatchedWheel:
    """Apply `series` to the pristine `base_wheel` and write the patched wheel into the folder `out`.

    Args:
        base_wheel: wheel of speculators as released.
        series: its name becomes the local version.
        out: folder, made when absent.
        sha256: what the base wheel must hash to, where the caller knows it.

    Raises:
        PatchError: the base is not the pristine wheel.
        ProblemsError: every patch that does not fit; nothing is written then.
    """
    base = read(base_wheel, sha256=sha256)
    patches = series.patches(base.version)
    applied = apply_series(base.package, base.version, patches)
    version, data = packed(base, series.name, applied)
    path = out / f"{base.name}-{version}-py3-none-any.whl"
    durable.write_bytes(path, data)
    return PatchedWheel(path, durable.sha256_file(path), applied.tree, version, base.sha256, applied.offsets)


def packed(base: Wheel, series_name: str, applied: Applied) -> tuple[str, bytes]:
    """Version and bytes of the patched wheel."""
    version = f"{base.version}+{local_version(series_name)}"
    package = {name: data for name, data in {**base.package, **applied.changed}.items() if data is not None}
    return version, _pack(base, version, package, _provenance(base, series_name, applied))


def local_version(series_name: str) -> str:
    """PEP 440 local version of a series: `vllm-0.16.0-cpu` gives `vllm.0.16.0.cpu`."""
    words = re.findall(r"[a-z0-9]+", series_name.lower())
    # PEP 440 drops leading zeros of numbers, and file name and metadata must agree after that.
    return ".".join(str(int(word)) if word.isdigit() else word for word in words)


def read(path: Path, *, sha256: str | None = None) -> Wheel:
    """Read a wheel of the patched package.

    Raises:
        PatchError: not a readable wheel, of another project, or not the bytes that `sha256` names.
    """
    if not path.is_file():
        raise PatchError(f"{path}: no such wheel", fix="name a file that ends in .whl")
    found = durable.sha256_file(path)
    if sha256 is not None and found != sha256:
        raise PatchError(
            f"{path}: not the pristine wheel",
            why=f"sha256 {found}, expected {sha256}",
            fix="remove the file; it is fetched again, hash-checked",
        )
    parts = path.name.split("-")
    if parts[0] != PACKAGE or not path.name.endswith("-py3-none-any.whl") or "+" in parts[1]:
        raise PatchError(f"{path}: not a released wheel of {PACKAGE}", fix=f"name {PACKAGE}-VERSION-py3-none-any.whl")
    name, version = parts[:2]
    try:
        with zipfile.ZipFile(path) as archive:
            files = {member.filename: archive.read(member) for member in archive.infolist() if not member.is_dir()}
    except (zipfile.BadZipFile, OSError) as error:
        raise PatchError(
            f"{path}: cannot read it", why=str(error), fix="remove the file; it is fetched again"
        ) from error
    prefix = f"{name}-{version}.dist-info/"
    info = {member.removeprefix(prefix): data for member, data in files.items() if member.startswith(prefix)}
    package = {member: data for member, data in files.items() if member.startswith(f"{PACKAGE}/")}
    strangers = sorted(set(files) - set(package) - {prefix + member for member in info})
    if strangers or not {"METADATA", "WHEEL", "RECORD"} <= set(info):
        why = f"unexpected {', '.join(strangers[:3])}" if strangers else "METADATA, WHEEL or RECORD is missing"
        raise PatchError(f"{path}: not laid out like a wheel of {PACKAGE}", why=why, fix="fetch it again")
    info.pop("RECORD")
    return Wheel(path, name, version, found, package, info)


def _provenance(base: Wheel, series_name: str, applied: Applied) -> bytes:
    value = {
        "schema_version": SCHEMA_VERSION,
        "base": {"name": base.name, "version": base.version, "sha256": base.sha256, "tree": applied.base_tree},
        "series": series_name,
        "tree": applied.tree,
        "patches": [
            {"name": step.patch.name, "subject": step.patch.header.subject, "diff_sha256": step.patch.diff_sha256}
            for step in applied.steps
        ],
    }
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _pack(base: Wheel, version: str, package: Mapping[str, bytes], provenance: bytes) -> bytes:
    prefix = f"{base.name}-{version}.dist-info/"
    metadata = _VERSION_LINE.sub(f"Version: {version}", base.info["METADATA"].decode(), count=1).encode()
    info = {**base.info, "METADATA": metadata, PATCHES_FILE: provenance}
    files = dict(sorted(package.items())) | {prefix + name: data for name, data in sorted(info.items())}
    own_name = prefix + "RECORD"
    files[own_name] = record.written(files, own_name)
    return _zip(files)


def _zip(files: Mapping[str, bytes]) -> bytes:
    archive_bytes = BytesIO()
    with zipfile.ZipFile(archive_bytes, "w") as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo(name, _EPOCH)
            member.create_system = _UNIX
            member.external_attr = _REGULAR_FILE
            # Stored, not deflated: builds of zlib differ, and the lock holds one hash for all machines.
            member.compress_type = zipfile.ZIP_STORED
            archive.writestr(member, data)
    return archive_bytes.getvalue()
