"""What a stage says and where: everything into its log file, progress and results on the terminal.

The engine and its workers write to file descriptors 1 and 2, not to Python's streams, so it is the descriptors that
are led into the log; the terminal is kept aside for the stage's own lines. Beside the log lie the same lines as JSON.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from draftkiln.cause import last_error
from draftkiln.errors import DraftkilnError, EngineError
from draftkiln.events import Events, rotate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_PLAIN_INTERVAL_S = 30.0
_ROTATE_INTERVAL_S = 30.0
_BAR_WIDTH = 24
_BAR_INTERVAL_S = 0.2
_POINTS_ABOVE = "See root cause above"
"""What vLLM says where an engine's process did not start: the process has told why itself."""
_LOOKED_BACK = 1 << 20


@dataclass
class Terminal:
    """The terminal of a stage: lines for people, a bar where it can be drawn, and the same for programs.

    Attributes:
        stream: for people.
        events: for programs, or None.
        log: that is rotated as it grows, or None.
    """

    stream: IO[str]
    events: Events | None = None
    log: Path | None = None
    _shown: float = field(default=0.0, init=False)
    _noted: float = field(default=0.0, init=False)
    _rotated: float = field(default=0.0, init=False)
    _bar: Any = field(default=None, init=False)

    def line(self, text: str) -> None:
        """Print one line."""
        self._close_bar()
        print(text, file=self.stream, flush=True)
        self.event("line", text=text)

    def event(self, kind: str, *, rank: int | None = None, **fields: Any) -> None:
        """Note something for programs only.

        Args:
            kind: of event.
            rank: of the engine that it speaks of; None for the driver.
            fields: more, JSON values.
        """
        if self.events is not None:
            self.events.write(kind, rank=rank, **fields)
        if self.log is not None and time.monotonic() - self._rotated >= _ROTATE_INTERVAL_S:
            self._rotated = time.monotonic()
            rotate(self.log, shared=True)

    def progress(
        self, text: str, *, last: bool = False, share: float | None = None, figures: Mapping[str, Any] | None = None
    ) -> None:
        """Show progress: in place on a terminal, as a plain line every 30 s elsewhere, and always the last one.

        Args:
            text: for people.
            last: whether nothing follows.
            share: of the work that is done, for a bar.
            figures: for programs.
        """
        now = time.monotonic()
        if last or now - self._noted >= _PLAIN_INTERVAL_S:
            self._noted = now
            self.event("progress", text=text, **(figures or {}))
        live = self.stream.isatty()
        if not last and now - self._shown < (_BAR_INTERVAL_S if live else _PLAIN_INTERVAL_S):
            return
        self._shown = now
        if not live:
            print(text, file=self.stream, flush=True)
            return
        if self._bar is None:
            self._bar = _Bar(self.stream)
        self._bar.show(text, share)
        if last:
            self._close_bar()

    def close(self) -> None:
        """Leave the terminal as it should be found."""
        self._close_bar()

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class _Bar:
    """A line that is drawn anew in place, with a bar where the share that is done is known."""

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = (BarColumn(_BAR_WIDTH), TaskProgressColumn(), TextColumn("{task.description}", markup=False))
        # What the engine prints must go on into the log.
        self._progress = Progress(
            *columns,
            console=Console(file=stream, force_terminal=True),
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("", total=None)
        self._progress.start()

    def show(self, text: str, share: float | None) -> None:
        total, done = (None, 0.0) if share is None else (1.0, share)
        self._progress.update(self._task, description=text, total=total, completed=done, refresh=True)

    def close(self) -> None:
        self._progress.stop()


@contextlib.contextmanager
def stage_log(log: Path, error: type[DraftkilnError] = EngineError, events: Events | None = None) -> Iterator[Terminal]:
    """Run a stage's body with all output led into `log` and hand it the terminal.

    Args:
        log: the file, appended to.
        error: class of the error that an unexpected exception becomes; its traceback goes into the log.
        events: takes the stage's lines for programs.

    Raises:
        DraftkilnError: what the body raised, or `error` with the cause of any other exception in one line.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = (os.dup(1), os.dup(2))
    stream = os.fdopen(os.dup(kept[0]), "w", encoding="utf-8")
    terminal = Terminal(stream, events, log)
    rotate(log, shared=False)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        print(f"\n===== {time.strftime('%Y-%m-%dT%H:%M:%S%z')} {' '.join(sys.argv)}", flush=True)
        terminal.event("begin", command=sys.argv[1:])
        yield terminal
        terminal.event("end")
    except DraftkilnError as failure:
        traceback.print_exc()
        terminal.event("error", text=str(failure), code=int(failure.code))
        raise
    except Exception as failure:
        cause = _told_above(failure, log) or cause_of(failure)
        traceback.print_exc()
        terminal.event("error", text=cause, code=int(error.code))
        raise error(
            f"stage failed: {cause}",
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
        stream.close()


def _told_above(failure: Exception, log: Path) -> str | None:
    """The error that a process of vLLM printed, where the exception only points at it; None for other exceptions."""
    if _POINTS_ABOVE not in str(failure):
        return None
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOOKED_BACK))
        printed = file.read().decode(errors="replace")
    return last_error(printed.rpartition("\n===== ")[2])


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
