"""A set of indices kept as ranges, so that a million of them in a row take the memory of one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Ranges:
    """Indices as disjoint ranges that do not touch, ascending.

    Args:
        indices: to begin with: ranges of step 1, or single indices.
    """

    def __init__(self, indices: Iterable[int | range] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._count = 0
        for item in indices:
            part = range(item, item + 1) if isinstance(item, int) else item
            self.add(part.start, part.stop)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int):
            return False
        at = bisect_right(self._starts, index) - 1
        return at >= 0 and index < self._stops[at]

    def __iter__(self) -> Iterator[range]:
        return map(range, self._starts, self._stops)

    def add(self, start: int, stop: int) -> None:
        """Add `start` to `stop`, whether or not some of them are there."""
        if start >= stop:
            return
        first = bisect_left(self._stops, start)
        last = bisect_right(self._starts, stop)
        if first < last:
            start, stop = min(start, self._starts[first]), max(stop, self._stops[last - 1])
        self._replace(first, last, [(start, stop)])

    def discard(self, start: int, stop: int) -> None:
        """Take out `start` to `stop`, whether or not all of them are there."""
        if start >= stop:
            return
        first = bisect_right(self._stops, start)
        last = bisect_left(self._starts, stop)
        if first >= last:
            return
        left, right = self._starts[first], self._stops[last - 1]
        self._replace(first, last, [part for part in ((left, start), (stop, right)) if part[0] < part[1]])

    def within(self, start: int, stop: int) -> Iterator[range]:
        """The parts that lie in `start` to `stop`."""
        first = bisect_right(self._stops, start)
        last = bisect_left(self._starts, stop)
        for at in range(first, last):
            yield range(max(start, self._starts[at]), min(stop, self._stops[at]))

    def first(self, most: int) -> range:
        """The first indices that follow each other, `most` at most; empty when there are none."""
        if not self._starts:
            return range(0)
        return range(self._starts[0], min(self._starts[0] + most, self._stops[0]))

    def last(self, most: int) -> range:
        """The last indices that follow each other, `most` at most; empty when there are none."""
        if not self._starts:
            return range(0)
        return range(max(self._stops[-1] - most, self._starts[-1]), self._stops[-1])

    def without(self, other: Ranges) -> Ranges:
        """A copy without the indices of `other`."""
        found = Ranges(self)
        for part in self:
            for common in other.within(part.start, part.stop):
                found.discard(common.start, common.stop)
        return found

    def _replace(self, first: int, last: int, parts: list[tuple[int, int]]) -> None:
        before = sum(self._stops[first:last]) - sum(self._starts[first:last])
        self._count += sum(stop - start for start, stop in parts) - before
        self._starts[first:last] = [start for start, _ in parts]
        self._stops[first:last] = [stop for _, stop in parts]
