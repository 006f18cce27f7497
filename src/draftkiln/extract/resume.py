"""How long a resume takes before its engine starts, and what memory its driver needs: measured on made-up samples."""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING, TypeVar

from draftkiln.errors import ExitCode
from draftkiln.extract import manifest, plan, samples
from draftkiln.validate.headers import Pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_T = TypeVar("_T")
_TOKENS, _SLOTS, _HIDDEN = 512, 4, 7168


def measure(folder: Path, count: int) -> int:
    """Make `count` samples of Kimi-K2.5's shape, sparse files with true headers and ids, look at them, remove them.

    Args:
        folder: where they go.
        count: of them.
    """
    place, path = folder / samples.FOLDER, folder / manifest.FILE
    place.mkdir()
    head = manifest.Head((2, 30, 58, 61), _HIDDEN, "bfloat16", "bfloat16", count, "bench", "bench", "bench")
    manifest.create(path, head)
    manifest.append(path, _made(place, count))
    print(f"resume of {count} samples, {path.stat().st_size / 1e6:.0f} MB of manifest:")
    before = _peak()
    found = _timed("manifest read", lambda: manifest.read(path))
    _timed("quick check of the files (--check-existing quick)", lambda: plan.compare(place, found))
    more = _peak() - before
    print(f"  memory of the driver for it: {more:.0f} MB, {1e6 * more / count:.0f} B a sample")
    _timed("validate --headers-only --skip-checksums", lambda: list(Pass(place, found, checksums=False).problems()))
    for index in range(count):
        (place / samples.name(index)).unlink()
    place.rmdir()
    path.unlink()
    return ExitCode.OK


def _made(place: Path, count: int) -> Iterator[manifest.Receipt]:
    head, ids = samples.head_bytes(_TOKENS, _SLOTS, _HIDDEN), bytes(_TOKENS * samples.TOKEN_ID_BYTES)
    size, checksum = samples.size(_TOKENS, _SLOTS, _HIDDEN), samples.token_ids_checksum(ids)
    for index in range(count):
        handle = os.open(place / samples.name(index), os.O_WRONLY | os.O_CREAT, 0o666)
        os.write(handle, head + ids)
        os.truncate(handle, size)
        os.close(handle)
        yield manifest.Receipt(index, _TOKENS, size, "0" * 32, checksum)


def _timed(what: str, work: Callable[[], _T]) -> _T:
    began, computed = time.monotonic(), time.process_time()
    found = work()
    computed = time.process_time() - computed
    print(f"  {what}: {time.monotonic() - began:.2f} s, {computed:.2f} s of them computing", flush=True)
    return found


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
