"""What the machine takes by itself: bytes a second from the GPU to pinned memory, and into files."""

from __future__ import annotations

import os
import shutil
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from draftkiln.stagelog import Terminal

_COPIES = 20
_COPY_BYTES = 256 << 20
_FILES = 24
"""A writer, one after the other."""


def tell(folder: Path, writers: int, sample_bytes: int, terminal: Terminal) -> None:
    """Measure and print, in a line each."""
    bus = device_to_host()
    if bus is not None:
        terminal.line(f"ceiling: device to pinned host memory {bus / 1e9:.1f} GB/s")
    for sync in (False, True):
        rate = files(folder / "ceiling", writers, sample_bytes, sync=sync)
        how = "synced" if sync else "not synced"
        terminal.line(f"ceiling: files of {sample_bytes / 1e6:.0f} MB, {writers} writers, {how} {rate / 1e9:.2f} GB/s")


def device_to_host() -> float | None:
    """Bytes a second from a GPU to pinned memory; None without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    source = torch.zeros(_COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(_COPIES):
        target.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    return _COPIES * _COPY_BYTES / (time.monotonic() - began)


def files(folder: Path, writers: int, size: int, *, sync: bool) -> float:
    """Bytes a second into new files of `size` bytes, by `writers` threads; with `sync` until all are durable."""
    folder.mkdir(parents=True)
    data = memoryview(bytearray(os.urandom(1 << 20) * -(-size // (1 << 20))))[:size]

    def work(number: int) -> None:
        for at in range(_FILES):
            handle = os.open(folder / f"{number}-{at}", os.O_WRONLY | os.O_CREAT)
            left = data
            while left:
                left = left[os.write(handle, left) :]
            if sync:
                os.fsync(handle)
            os.close(handle)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(writers)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    shutil.rmtree(folder)
    return writers * _FILES * size / seconds
