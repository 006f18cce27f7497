"""One process at a time, also on file systems without locks.

The kernel frees a lock when its holder dies. Where a file system has none (some NFS mounts answer EBADF or ENOLCK), a
file that names host and process takes its place: a dead process of this host is known to be dead, one of another host
is not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NO_LOCKS = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_POLL_S = 0.5


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def held(path: Path, *, announce: Callable[[str], None] = _tell) -> Iterator[None]:
    """Hold the lock `path` until the block ends, waiting for another holder.

    Args:
        path: lock file, made when absent, never removed: a removed one could be held twice.
        announce: takes a line when there is a wait or no real lock.

    Raises:
        StorageError: the place cannot be written, or a process of another host holds it where locks do not work.
    """
    with durable.storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Read-write: NFS maps the lock onto one of its own, which a read-only descriptor may not take.
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            _flock(handle, path, announce)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            code = errno.errorcode[error.errno]
            announce(f"{path.parent} has no file locks ({code}); {_claim_of(path).name} is used")
            with _claimed(_claim_of(path), announce):
                yield
        else:
            yield
    finally:
        os.close(handle)


def _flock(handle: int, path: Path, announce: Callable[[str], None]) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        announce(f"waiting for another process that holds {path}")
        fcntl.flock(handle, fcntl.LOCK_EX)


def _claim_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.claim")


@contextlib.contextmanager
def _claimed(claim: Path, announce: Callable[[str], None]) -> Iterator[None]:
    told = False
    while not _take(claim):
        holder = _holder(claim)
        if holder is None:
            continue
        if holder.get("host") != socket.gethostname():
            raise StorageError(
                f"{claim} is held by process {holder.get('pid')} of host {holder.get('host')}",
                why="this file system has no locks, so nothing tells here whether that process still lives",
                fix=f"wait for it; if it is gone, remove {claim}",
            )
        if not _alive(int(holder["pid"])):
            announce(f"taking over from process {holder['pid']}, which is gone")
            _remove(claim, holder)
            continue
        if not told:
            announce(f"waiting for process {holder['pid']}, which holds {claim}")
            told = True
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        claim.unlink(missing_ok=True)


def _take(claim: Path) -> bool:
    """Put a claim of this process there, whole, unless there is one; a hard link is atomic on NFS as well."""
    own = claim.with_name(f".{claim.name}.{socket.gethostname()}.{os.getpid()}")
    own.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}), encoding="utf-8")
    try:
        claim.hardlink_to(own)
    except FileExistsError:
        return False
    finally:
        own.unlink(missing_ok=True)
    return True


def _holder(claim: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(claim.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return {"host": "unknown", "pid": "unknown"}
    return found


def _remove(claim: Path, holder: dict[str, Any]) -> None:
    """Remove the claim of `holder`, unless another process has taken its place meanwhile."""
    aside = claim.with_name(f".{claim.name}.stale.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        claim.rename(aside)
        if _holder(aside) != holder:
            with contextlib.suppress(FileExistsError):
                claim.hardlink_to(aside)
        aside.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
