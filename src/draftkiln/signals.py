"""Signals that end a program, passed on to the process that does its work."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from types import FrameType


@contextlib.contextmanager
def passed_on(process: subprocess.Popen[Any]) -> Iterator[None]:
    """While this lasts, SIGTERM and SIGINT go to `process`, whose end is waited for: it never outlives its parent."""

    def forward(number: int, _frame: FrameType | None) -> None:
        # Ctrl-C reaches every process in front of the terminal: told twice, a stage would not finish its samples.
        if number != signal.SIGINT or not _in_front():
            process.send_signal(number)

    earlier = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _in_front() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
