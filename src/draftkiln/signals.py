"""Signals that end a program: passed on to the process that does its work, or raised where things are put back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any, NoReturn

from draftkiln.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType


class TerminatedError(SystemExit):
    """SIGTERM came; an exit, so that nothing takes it for a fault of what ran."""

    def __init__(self) -> None:
        super().__init__(int(ExitCode.TERMINATED))


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """While this lasts, SIGTERM raises `TerminatedError`, so that temporary files are removed."""
    earlier = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command as `subprocess.run` does, with stdin closed; it is told to end when this process is.

    Raises:
        SystemExit: this process was told to end (SIGTERM); the command has ended.
        KeyboardInterrupt: the same by SIGINT.
    """
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, **options) as process:
        with passed_on(process) as told:
            output, errors = process.communicate()
        end_as_told(told)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)


def end_as_told(told: Sequence[int]) -> None:
    """End this process as the signals say that it was sent while another one worked."""
    if signal.SIGTERM in told:
        _raise(signal.SIGTERM, None)
    if told:
        raise KeyboardInterrupt


def _raise(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TerminatedError


@contextlib.contextmanager
def passed_on(process: subprocess.Popen[Any]) -> Iterator[list[int]]:
    """While this lasts, SIGTERM and SIGINT go to `process`, whose end is waited for: it never outlives its parent.

    Where it leads a group of its own they go to the whole group. Gives the signals that came.
    """
    told: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        told.append(number)
        if _leads(process):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        # Ctrl-C reaches every process in front of the terminal: told twice, a stage would not finish its samples.
        elif number != signal.SIGINT or not _in_front():
            process.send_signal(number)

    earlier = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield told
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _leads(process: subprocess.Popen[Any]) -> bool:
    """Whether a process is the first of a group that is not this process's own."""
    with contextlib.suppress(ProcessLookupError):
        return process.returncode is None and os.getpgid(process.pid) == process.pid
    return False


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
