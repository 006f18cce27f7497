"""Which rows of a step belong to which sample, and their way through the ring into the sink."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from draftkiln.errors import EngineError
from draftkiln.extract import samples
from draftkiln.extract.ring import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from draftkiln.extract.ring import Block, Ring
    from draftkiln.extract.sink import Sink


@dataclass(frozen=True)
class Span:
    """Rows of a step that belong to one sample.

    Attributes:
        index: of the sample.
        first: row of the step.
        last: row after the last one.
        start: token of the sample that row `first` is.
        total: tokens of the sample.
        token_ids: all of them as little-endian int64, as the engine was given them; with the first token only.
    """

    index: int
    first: int
    last: int
    start: int
    total: int
    token_ids: bytes | None


class Bookkeeping:
    """How far each sample was captured, so that every token is kept exactly once and in order."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}

    def new_rows(self, step: Iterable[tuple[Span, Callable[[], bytes]]]) -> list[Span]:
        """Rows of a step that were not captured before.

        Args:
            step: the engine's own account, in the order of the rows, with a way to get all token ids of each sample.

        Raises:
            EngineError: rows are missing, because a prefix cache is on or a chunk was lost.
        """
        found = []
        for span, token_ids in step:
            expected = self._next.get(span.index, 0)
            if span.start > expected:
                raise EngineError(
                    f"sample {span.index}: the engine went on at token {span.start}, "
                    f"states of {expected} tokens were captured",
                    why="a prefix cache is on, or a chunk was lost",
                )
            # A request that was preempted is computed anew, and what is sampled after a prompt is not wanted.
            first = span.first + expected - span.start
            last = min(span.last, span.first + span.total - span.start)
            if first >= last:
                continue
            if (done := expected + last - first) == span.total:
                self._next.pop(span.index, None)
            else:
                self._next[span.index] = done
            ids = token_ids() if expected == 0 else None
            found.append(Span(span.index, first, last, expected, span.total, ids))
        return found


def within(spans: Iterable[Span], begin: int, end: int) -> Iterator[Span]:
    """The parts of `spans` that lie in rows `begin` to `end` of the step."""
    for span in spans:
        first, last = max(span.first, begin), min(span.last, end)
        if first < last:
            ids = span.token_ids if first == span.first else None
            yield replace(span, first=first, last=last, start=span.start + first - span.first, token_ids=ids)


def hand_over(
    spans: Sequence[Span], copy: Callable[[Block, int, int], None], ring: Ring, sink: Sink, *, rows: int, row_bytes: int
) -> None:
    """Put the rows of a step into blocks and give these to the sink; waits while the writers have all blocks.

    Args:
        spans: new rows of the step.
        copy: copies rows of the step, from the first to the one after the last, into a block.
        ring: of the blocks.
        sink: that writes them.
        rows: that a block holds.
        row_bytes: bytes of a row.
    """
    used = max((span.last for span in spans), default=0)
    for begin in range(0, used, rows):
        end = min(begin + rows, used)
        parts = list(within(spans, begin, end))
        block = ring.take(lambda: sink.failure is not None) if parts else None
        if block is None:
            continue
        copy(block, begin, end)
        block.lend(len(parts))
        for part in parts:
            data = block.view[(part.first - begin) * row_bytes : (part.last - begin) * row_bytes]
            scales = block.scale_view[
                (part.first - begin) * samples.SCALE_BYTES : (part.last - begin) * samples.SCALE_BYTES
            ]
            sink.put(Rows(part.index, part.start, data, part.total, part.token_ids, block, scales))
