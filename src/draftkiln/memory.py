"""Peak memory of a process and all its descendants, sampled from /proc."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self

_INTERVAL_S = 0.5
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Peak:
    """Context that samples the memory of the process tree until it is left.

    What processes may share is counted once, as the largest share of one of them: the exact measure,
    the proportional set size, costs the kernel a walk through every page.

    Args:
        root: process that is measured with its descendants; default: this one.
    """

    def __init__(self, root: int | None = None) -> None:
        self.bytes = 0
        self._root = root or os.getpid()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    @property
    def gigabytes(self) -> float:
        """The largest sum seen, in GB (10^9 bytes)."""
        return self.bytes / 1e9

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            pages = [_pages(pid) for pid in descendants(self._root)]
            now = sum(own for own, _ in pages) + max((shared for _, shared in pages), default=0)
            self.bytes = max(self.bytes, now * _PAGE)


def descendants(root: int) -> list[int]:
    """Process ids of `root` and everything started below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(after_name[1]), []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue.extend(children.get(pid, []))
    return found


def _pages(pid: int) -> tuple[int, int]:
    """Pages of a process that are its own, and those it may share (files and shared memory)."""
    try:
        resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
    except OSError:
        return 0, 0
    return resident - shared, shared
