"""Host memory of this process and all below it, at its highest since a moment, as the kernel counted it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FORGET_PEAK = "5"
"""What /proc/PID/clear_refs takes as `begin the high-water mark anew`: Linux, Documentation/filesystems/proc.rst."""


def processes(root: int | None = None) -> list[int]:
    """A process, default: this one, and its descendants."""
    return list(_tree(os.getpid() if root is None else root))


def _tree(process: int) -> Iterator[int]:
    yield process
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text(encoding="ascii").split()):
                yield from _tree(child)


def begin() -> None:
    """Begin to look for the highest anew."""
    for process in processes():
        with contextlib.suppress(OSError):
            Path(f"/proc/{process}/clear_refs").write_text(_FORGET_PEAK, encoding="ascii")


def highest() -> int:
    """Bytes resident at the highest since `begin`, each process at its own; what processes share counts in each."""
    return sum(map(_highest, processes()))


def _highest(process: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
