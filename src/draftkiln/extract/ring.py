"""Host memory between the engine and the writers: a fixed number of blocks, so a slow disk holds the engine back."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NO_BYTES = memoryview(b"")
_POLL_SECONDS = 0.2


def _nothing() -> None:
    """What is ready at once waits for nothing."""


@dataclass
class Block:
    """Memory for the rows of a step, or of a part of one.

    Attributes:
        memory: what the rows are copied into, such as a pinned tensor.
        view: the same memory as bytes, row after row.
        scales: memory for the scale of each row, where states are stored in FP8.
        scale_view: the same memory as bytes.
        ready: waits until the copy is complete; called by whoever reads the rows.
    """

    memory: Any
    view: memoryview
    ready: Callable[[], None] = _nothing
    scales: Any = None
    scale_view: memoryview = NO_BYTES
    _home: queue.SimpleQueue[Block] | None = field(default=None, repr=False)
    _users: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def lend(self, users: int) -> None:
        """Have the block come back after `users` calls of `done`."""
        with self._lock:
            self._users = users
        if users == 0:
            self._return()

    def done(self) -> None:
        """One user less; the last one gives the block back."""
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self._return()

    def _return(self) -> None:
        if self._home is not None:
            self._home.put(self)


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of one sample, inside a block.

    Attributes:
        index: of the sample.
        start: first token.
        data: `[rows, slots, hidden]` of the stored type, row-major, as bytes.
        total: tokens of the sample.
        token_ids: all token ids of the sample, little-endian int64; with the first rows only.
        block: that `data` lies in.
        scales: of the rows, little-endian float32, where states are stored in FP8.
    """

    index: int
    start: int
    data: memoryview
    total: int
    token_ids: bytes | None
    block: Block
    scales: memoryview = NO_BYTES


class Ring:
    """The blocks of an extraction; taking one waits until one is free."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._free: queue.SimpleQueue[Block] = queue.SimpleQueue()
        for block in blocks:
            block._home = self._free  # noqa: SLF001 - the ring is the home of its blocks
            self._free.put(block)

    def take(self, given_up: Callable[[], bool]) -> Block | None:
        """A free block; None when `given_up` says that none will come."""
        while not given_up():
            try:
                return self._free.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
        return None
