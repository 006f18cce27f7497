"""What a stage says and where: everything into its log file, progress and results on the terminal.

The engine and its workers write to file descriptors 1 and 2, not to Python's streams, so it is the descriptors that
are led into the log; the terminal is kept aside for the stage's own lines.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

from draftkiln.errors import DraftkilnError, EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PLAIN_INTERVAL_S = 30.0
_BAR_INTERVAL_S = 0.2


@dataclass
class Terminal:
    """The terminal of a stage: lines for people, and a progress line that overwrites itself where it can."""

    stream: IO[str]
    _last: float = field(default=0.0, init=False)
    _open: bool = field(default=False, init=False)

    def line(self, text: str) -> None:
        """Print one line."""
        self._close_bar()
        print(text, file=self.stream, flush=True)

    def progress(self, text: str, *, last: bool = False) -> None:
        """Show progress: in place on a terminal, as a plain line every 30 s elsewhere, and always the last one."""
        now = time.monotonic()
        live = self.stream.isatty()
        if not last and now - self._last < (_BAR_INTERVAL_S if live else _PLAIN_INTERVAL_S):
            return
        self._last = now
        if live:
            print(f"\r\x1b[K{text}", end="", file=self.stream, flush=True)
            self._open = True
            if last:
                self._close_bar()
        else:
            print(text, file=self.stream, flush=True)

    def _close_bar(self) -> None:
        if self._open:
            print(file=self.stream, flush=True)
            self._open = False


@contextlib.contextmanager
def stage_log(log: Path, error: type[DraftkilnError] = EngineError) -> Iterator[Terminal]:
    """Run a stage's body with all output led into `log` and hand it the terminal.

    Args:
        log: the file, appended to.
        error: class of the error that an unexpected exception becomes; its traceback goes into the log.

    Raises:
        DraftkilnError: what the body raised, or `error` with the cause of any other exception in one line.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = (os.dup(1), os.dup(2))
    terminal = os.fdopen(os.dup(kept[0]), "w", encoding="utf-8")
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        print(f"\n===== {time.strftime('%Y-%m-%dT%H:%M:%S%z')} {' '.join(sys.argv)}", flush=True)
        yield Terminal(terminal)
    except DraftkilnError:
        traceback.print_exc()
        raise
    except Exception as failure:
        traceback.print_exc()
        raise error(
            f"stage failed: {cause_of(failure)}",
            why=f"the traceback is in {log}",
            fix="mend the cause and run the same command again; what is written stays",
        ) from failure
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        terminal.close()


def cause_of(failure: BaseException) -> str:
    """One line that says what went wrong, also for exceptions whose message is empty.

    The root of the chain is named; a bare `assert` is told by its source line.
    """
    root = failure
    while (earlier := root.__cause__ or root.__context__) is not None:
        root = earlier
    text = " ".join(str(root).split())
    frames = traceback.extract_tb(root.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119 - a name to show
    if not text and frames:
        text = f"`{frames[-1].line}`"
    return f"{type(root).__name__}{place}: {text}"
