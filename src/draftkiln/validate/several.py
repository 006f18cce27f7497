"""Several files at a time: hashing and numpy let go of the interpreter, so threads are enough."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_In = TypeVar("_In")
_Out = TypeVar("_Out")
_MOST = 16
_BATCH = 128


def in_order(work: Callable[[_In], _Out], items: Iterable[_In]) -> Iterator[_Out]:
    """What `work` gives for each item, in their order; few items are held at a time, however many there are."""
    remaining = iter(items)
    with ThreadPoolExecutor(min(_MOST, len(os.sched_getaffinity(0)))) as pool:
        while batch := list(itertools.islice(remaining, _BATCH)):
            yield from pool.map(work, batch)
