"""Signals of an extraction: SIGINT and SIGTERM end it in order, and a dead engine ends the wait for it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

from draftkiln.errors import DraftkilnError, EngineError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDING = (signal.SIGINT, signal.SIGTERM)
_POLL_SECONDS = 0.2
_LOOK_SECONDS = 2.0
_SAME_SIGNAL_SECONDS = 1.0
"""A signal to a process and then to its group, as `timeout` sends it, is one."""


class StoppedError(DraftkilnError):
    """A signal ended the extraction; the exit code says which."""

    def __init__(self, number: int, done: str) -> None:
        super().__init__(
            f"stopped by {signal.Signals(number).name}: {done}",
            fix="run the same command again: it goes on where it stopped",
        )
        self.code = ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.TERMINATED


class Ending:
    """Whether a signal asked for the end. A second one ends at once."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._since = 0.0

    def asked(self) -> bool:
        """Whether the end was asked for."""
        return self.number is not None

    @contextlib.contextmanager
    def while_starting(self) -> Iterator[None]:
        """Start an engine whose processes leave SIGINT and SIGTERM to this one.

        A signal sent to the whole group must not end the engine under samples in flight. Processes inherit the mask of
        blocked signals; what arrives meanwhile ends the start.

        Raises:
            StoppedError: a signal came; the engine's processes were ended.
        """
        before = set(multiprocessing.active_children())
        resource_tracker.ensure_running()  # it unblocks both signals in its parent when it is started
        ready = threading.Event()
        old = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        waiter = threading.Thread(target=self._wait, args=(ready, before), daemon=True)
        waiter.start()
        try:
            yield
        except Exception:
            if self.number is None:
                raise
        finally:
            ready.set()
            waiter.join()
            signal.pthread_sigmask(signal.SIG_SETMASK, old)
        if self.number is not None:
            _kill_children(before)
            raise StoppedError(self.number, "the engine was still starting")

    def _wait(self, ready: threading.Event, before: set[Any]) -> None:
        while not ready.is_set():
            if (found := signal.sigtimedwait(_ENDING, _POLL_SECONDS)) is not None:
                self.number = found.si_signo
            if self.number is not None:
                # Again and again: the engine's process may be started only after the signal came.
                _kill_children(before)

    @contextlib.contextmanager
    def while_running(self) -> Iterator[None]:
        """Note a signal and go on; a second one raises KeyboardInterrupt."""

        def note(number: int, _frame: object) -> None:
            now = time.monotonic()
            if self.number is None:
                self.number, self._since = number, now
            elif now - self._since > _SAME_SIGNAL_SECONDS:
                raise KeyboardInterrupt

        old = {number: signal.signal(number, note) for number in _ENDING}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


def _kill_children(before: set[Any]) -> None:
    """End what was started since; nothing else would, since SIGTERM is blocked in it."""
    for process in set(multiprocessing.active_children()) - before:
        process.kill()


@contextlib.contextmanager
def watched(processes: list[int]) -> Iterator[None]:
    """Raise out of any wait as soon as one of these child processes ends; vLLM would wait for its answer for ever.

    Raises:
        EngineError: with the signal or exit code that ended it.
    """

    def look(_number: int, _frame: object) -> None:
        for process in processes:
            if (end := _end_of(process)) is not None:
                raise EngineError(
                    f"the engine's process {process} ended {end}",
                    why="its last lines are in the log of this stage; without any, it was killed (out of memory?)",
                    fix="mend the cause and run the same command again: it goes on where it stopped",
                )

    old = {number: signal.signal(number, look) for number in (signal.SIGCHLD, signal.SIGALRM)}
    try:
        look(signal.SIGCHLD, None)
        # Looked at again and again: a signal that arrives just before a wait begins does not end it, and an exception
        # out of a handler is lost when it meets a destructor.
        signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in old.items():
            signal.signal(number, handler)


def alive(processes: list[int]) -> bool:
    """Whether all of these child processes run."""
    return all(_end_of(process) is None for process in processes)


def _end_of(process: int) -> str | None:
    """How a child process ended; None while it runs."""
    try:
        # Left to be collected by whoever started it.
        found = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return "unexpectedly"
    if found is None:
        return None
    if found.si_code == os.CLD_EXITED:
        return f"with code {found.si_status}"
    return f"by {signal.Signals(found.si_status).name}"
