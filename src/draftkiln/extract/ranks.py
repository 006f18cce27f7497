"""Whether the ranks of tensor parallelism hold the same states: fingerprints of some rows on each, compared bit by bit.

After the sum over ranks that ends a layer every rank has the same numbers, summed in the same order; a rank that has
others computed something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xxhash

from draftkiln.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from draftkiln.extract.steps import Span

_SHOWN = 3


class RowPrints:
    """Fingerprints of the first and the last row of some samples in every step.

    Args:
        indices: of these samples.

    Attributes:
        prints: `sample:token` -> xxh3_64 of the row over all slots.
        failure: what went wrong on this rank, or an empty text.
    """

    def __init__(self, indices: Iterable[int]) -> None:
        self._indices = frozenset(indices)
        self.prints: dict[str, str] = {}
        self.failure = ""

    def keep(self, spans: Iterable[Span], row_bytes: Callable[[int], bytes]) -> None:
        """Keep rows of a step.

        Args:
            spans: new rows of the step.
            row_bytes: gives a row of the step.
        """
        for span in spans:
            if span.index in self._indices:
                for row in {span.first, span.last - 1}:
                    token = span.start + row - span.first
                    self.prints[f"{span.index}:{token}"] = xxhash.xxh3_64_hexdigest(row_bytes(row))


def compare(replies: Sequence[dict[str, Any]]) -> int:
    """Number of rows that all ranks have alike.

    Args:
        replies: of each rank: `rank`, `prints`, `failure`.

    Raises:
        EngineError: rows differ, or a rank has none; with rank, sample and token.
    """
    failed = [f"rank {reply['rank']}: {reply['failure']}" for reply in replies if reply["failure"]]
    first, *others = sorted(replies, key=lambda reply: int(reply["rank"]))
    differ = [
        f"rank {other['rank']}: sample {key.split(':')[0]}, token {key.split(':')[1]}"
        for other in others
        for key, wanted in first["prints"].items()
        if other["prints"].get(key) != wanted
    ]
    if failed or differ:
        raise EngineError(
            f"the {len(replies)} ranks do not hold the same states"
            + (f": {len(differ)} of {len(first['prints']) * len(others)} rows differ" if differ else ""),
            why="; ".join([*failed, *differ[:_SHOWN]]),
            fix="do not train on these states; try target.tensor_parallel_size: 1, or another build of the engine",
        )
    return len(first["prints"])
