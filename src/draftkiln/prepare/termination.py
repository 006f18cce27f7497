"""SIGTERM while rows are prepared or answers written: what runs is ended in order, and one line says so."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from draftkiln.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator


class TerminatedError(SystemExit):
    """SIGTERM came; an exit, so that nothing takes it for a fault of what ran."""

    def __init__(self) -> None:
        super().__init__(int(ExitCode.TERMINATED))


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Let SIGTERM raise `TerminatedError` in what runs inside."""
    before = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def told(command: str) -> Iterator[None]:
    """Let SIGTERM end what runs inside, with a line on stderr and exit code 143."""
    with raised():
        try:
            yield
        except TerminatedError:
            text = "stopped by SIGTERM; nothing half-written is left, answers that are written stay: run it again"
            print(f"draftkiln {command}: {text}", file=sys.stderr)
            raise


def _raise(_number: int, _frame: object) -> NoReturn:
    raise TerminatedError
