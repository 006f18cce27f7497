"""`target.json`: where a target directory came from and the sha256 of each of its files."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "target.json"
SCHEMA_VERSION = 1


def write_record(folder: Path, source: Mapping[str, Any], digests: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Write the record of `folder`, the last file of a target to appear.

    Args:
        folder: a target directory, whole but for its record.
        source: where it came from.
        digests: sha256 of files, by name, where they are known; all other files are hashed.
    """
    known = digests or {}
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and name.name != NAME and not any(part.startswith(".") for part in name.parts):
            digest = known.get(name.as_posix()) or durable.sha256_file(path)
            files[name.as_posix()] = {"bytes": path.stat().st_size, "sha256": digest}
    record = {"schema_version": SCHEMA_VERSION, "source": dict(source), "files": files}
    durable.write_json(folder / NAME, record)
    return record


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of `folder`; None when it has none.

    Raises:
        TargetError: it cannot be read, or another version wrote it.
    """
    file = folder / NAME
    if not file.exists():
        return None
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        version = record["schema_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TargetError(f"cannot read {file}", why=str(error), fix=f"remove {folder} and make it again") from error
    if version != SCHEMA_VERSION:
        raise TargetError(
            f"{file} has schema_version {version!r}, this program reads {SCHEMA_VERSION}",
            why="another version of draftkiln wrote it",
            fix=f"remove {folder} and make it again",
        )
    return dict(record)


def problems(folder: Path, record: Mapping[str, Any], *, hashes: bool) -> list[str]:
    """How `folder` differs from its record: missing files, other sizes and, with `hashes`, other contents."""
    found = []
    for name, entry in record["files"].items():
        path = folder / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif path.stat().st_size != entry["bytes"]:
            found.append(f"{name} has {path.stat().st_size} bytes, recorded are {entry['bytes']}")
        elif hashes and (digest := durable.sha256_file(path)) != entry["sha256"]:
            found.append(f"{name} has sha256 {digest}, recorded is {entry['sha256']}")
    return found


def content_sha256(file: Path) -> str:
    """Hash of a safetensors file's tensors by name: name, dtype, shape and bytes, whatever their order in the file."""
    digest = hashlib.sha256()
    with file.open("rb") as data:
        length = int.from_bytes(data.read(8), "little")
        header = json.loads(data.read(length))
        header.pop("__metadata__", None)
        for name, entry in sorted(header.items()):
            begin, end = entry["data_offsets"]
            data.seek(8 + length + begin)
            digest.update(json.dumps([name, entry["dtype"], entry["shape"]]).encode())
            digest.update(data.read(end - begin))
    return digest.hexdigest()
