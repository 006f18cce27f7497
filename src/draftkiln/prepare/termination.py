"""SIGTERM while rows are prepared or answers written: what runs is ended in order, and one line says so."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from draftkiln.signals import TerminatedError, raised

if TYPE_CHECKING:
    from collections.abc import Iterator


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
