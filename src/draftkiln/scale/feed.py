"""Samples of a replica on their way to its engine: ranges come in while it computes."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_T = TypeVar("_T")


class Feed:
    """Ranges in, samples out, in order.

    Args:
        drained: called whenever the last sample was taken, so that more may come before the engine has nothing to do.

    Attributes:
        stopped: whether no more will come and what is left is not wanted.
    """

    def __init__(self, drained: Callable[[], None]) -> None:
        self.stopped = False
        self._drained = drained
        self._ranges: deque[range] = deque()
        self._lock = threading.Lock()
        self._waiting = 0

    def put(self, part: range) -> None:
        """Add samples; from any thread."""
        with self._lock:
            self._ranges.append(part)
            self._waiting += len(part)

    @property
    def waiting(self) -> int:
        """Samples that were put and not taken."""
        with self._lock:
            return self._waiting

    def prompts(self, look_up: Callable[[int], _T]) -> Iterator[tuple[int, _T] | None]:
        """Index and prompt of each sample, None while there is none; ends when the feed is stopped.

        Args:
            look_up: gives the prompt of an index.
        """
        while not self.stopped:
            index = self._take()
            if index is None:
                yield None
                continue
            if self.waiting == 0:
                self._drained()
            yield index, look_up(index)

    def _take(self) -> int | None:
        with self._lock:
            while self._ranges and not self._ranges[0]:
                self._ranges.popleft()
            if not self._ranges:
                return None
            part = self._ranges[0]
            self._ranges[0] = part[1:]
            self._waiting -= 1
            return part[0]
