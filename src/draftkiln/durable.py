"""Files that appear under their final name only when complete, and the hashes that identify them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 1 << 20
_STORAGE_ERRNOS = {errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT, errno.ESTALE, errno.EACCES, errno.EPERM}


def write_bytes(path: Path, data: bytes) -> None:
    """Write `path` all or nothing: temporary file in the same folder, sync, rename, sync of the folder."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), 0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """`write_bytes` for UTF-8 text."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, all or nothing."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Make the names inside `folder` durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Make the content of a file that another wrote durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def sha256_json(value: Any) -> str:
    """Hex sha256 of the canonical JSON text of `value`: the same content gives the same hash."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` of the storage (full, read-only, broken) into a `StorageError` that names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _STORAGE_ERRNOS:
            raise
        raise StorageError(
            f"cannot write {path}",
            why=f"{error.strerror} (errno {error.errno})",
            fix="make room or make the place writable, then run the same command again: it goes on where it stopped",
        ) from error


def unwritable(folder: Path) -> Path | None:
    """What keeps this user from writing into `folder`, there or to be made; None: nothing."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return None if there.is_dir() and os.access(there, os.W_OK | os.X_OK) else there


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
