"""Rows rendered by several processes, in the order of the rows, with a bounded number of them in memory."""

from __future__ import annotations

import collections
import concurrent.futures
import ctypes
import itertools
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING

from draftkiln.errors import DataError
from draftkiln.prepare.conversation import Conversation, TextRow
from draftkiln.prepare.outcome import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from draftkiln.prepare.conversation import Row
    from draftkiln.prepare.samples import Made, Renderer

CHUNK_ROWS = 64
MOST_WORKERS = 16
_PR_SET_PDEATHSIG = 1
_CHUNKS_EACH = 3
"""Chunks in flight for each process."""

_renderers: list[Renderer] = []
"""In a worker: the one renderer that it was forked with; nothing is loaded or pickled anew."""


def default_workers() -> int:
    """One process for each core that this process may use."""
    return min(len(os.sched_getaffinity(0)), MOST_WORKERS)


def render(renderer: Renderer, rows: Iterable[Row | Refusal], workers: int) -> Iterator[Made | Refusal]:
    """What becomes of each row, in order; refusals pass through.

    Raises:
        DataError: a worker process was killed.
    """
    if workers <= 1:
        for row in rows:
            yield row if isinstance(row, Refusal) else renderer.render(row)
        return
    waiting: collections.deque[concurrent.futures.Future[list[Made | Refusal]]] = collections.deque()
    chunks = iter(rows)
    with concurrent.futures.ProcessPoolExecutor(
        workers, multiprocessing.get_context("fork"), initializer=_begin, initargs=(renderer,)
    ) as pool:
        try:
            while chunk := list(itertools.islice(chunks, CHUNK_ROWS)):
                waiting.append(pool.submit(_render_chunk, chunk))
                if len(waiting) >= workers * _CHUNKS_EACH:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise DataError(
                "a process that renders rows was killed",
                why="probably the machine ran out of memory",
                fix="run again with fewer --workers",
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(renderer: Renderer) -> None:
    """Ready a worker: Ctrl-C is its parent's matter, and it never outlives its parent, however that ends."""
    _renderers.append(renderer)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _render_chunk(chunk: list[Row | Refusal]) -> list[Made | Refusal]:
    (renderer,) = _renderers
    return [renderer.render(row) if isinstance(row, (Conversation, TextRow)) else row for row in chunk]
