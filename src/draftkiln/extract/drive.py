"""The driver's loop: keeps the engine's queue full, collects receipts, and records each as soon as it is durable."""

from __future__ import annotations

import array
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from draftkiln.errors import DraftkilnError, EngineError
from draftkiln.extract import samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from draftkiln.extract.manifest import Receipt

_REPORT_SECONDS = 0.25


@dataclass(frozen=True)
class Report:
    """What the sink has to say: receipts since the last report, and what went wrong."""

    receipts: list[Receipt]
    failure: DraftkilnError | None = None


class Engine(Protocol):
    """What the loop drives."""

    def add(self, index: int, token_ids: Sequence[int]) -> None:
        """Queue a sample."""

    def step(self) -> list[int]:
        """Wait for the engine; indices of the samples whose states are computed."""

    def report(self) -> Report:
        """Ask the sink."""

    def close(self) -> Report:
        """Have everything written; the last report."""


@dataclass(frozen=True)
class Limits:
    """How much the engine holds at a time.

    Attributes:
        tokens: of all samples that were added and are not computed yet. Not above the KV cache's, so that no request
            is ever preempted and no token computed twice.
        samples: likewise in samples.
        block: tokens that the KV cache hands out at a time.
    """

    tokens: int
    samples: int
    block: int = 1

    def cost(self, tokens: int) -> int:
        """Tokens of the KV cache that a sample takes, with the one that ends its prefill."""
        return -(-(tokens + 1) // self.block) * self.block


def drive(
    engine: Engine,
    prompts: Iterable[tuple[int, Sequence[int]]],
    limits: Limits,
    record: Callable[[list[Receipt]], None],
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Compute all of `prompts` (index and token ids), or those in flight once `stopping` says so.

    Raises:
        StorageError: the sink could not write.
        EngineError: the engine gave other samples than were asked for. What was recorded before is good either way.
    """
    asked: dict[int, tuple[int, str]] = {}
    costs: dict[int, int] = {}
    held = 0
    remaining = iter(prompts)
    following = next(remaining, None)
    reported = time.monotonic()
    while True:
        while following is not None and not stopping():
            index, token_ids = following
            cost = limits.cost(len(token_ids))
            if costs and (held + cost > limits.tokens or len(costs) >= limits.samples):
                break
            asked[index] = len(token_ids), ids_checksum(token_ids)
            costs[index] = cost
            held += cost
            engine.add(index, token_ids)
            following = next(remaining, None)
        if not costs:
            break
        for index in engine.step():
            held -= costs.pop(index)
        if time.monotonic() - reported >= _REPORT_SECONDS:
            _take(engine.report(), asked, record)
            reported = time.monotonic()
    _take(engine.close(), asked, record)
    if asked:
        raise EngineError(
            f"{len(asked)} samples were computed but never written whole, the first is {min(asked)}",
            why="rows were not captured",
            fix="run `draftkiln preflight` on this stack; nothing of these samples was recorded",
        )


def ids_checksum(token_ids: Sequence[int]) -> str:
    """Checksum of token ids as a receipt carries it."""
    return samples.token_ids_checksum(array.array("q", token_ids).tobytes())


def _take(report: Report, asked: dict[int, tuple[int, str]], record: Callable[[list[Receipt]], None]) -> None:
    """Compare receipts with what was asked, record them, and stop at what went wrong."""
    good: list[Receipt] = []
    wrong: list[Receipt] = []
    for receipt in report.receipts:
        (good if asked.pop(receipt.index, None) == (receipt.rows, receipt.token_ids) else wrong).append(receipt)
    if good:
        record(good)
    if report.failure is not None:
        raise report.failure
    if wrong:
        raise EngineError(
            f"sample {wrong[0].index}: the engine answered with {wrong[0].rows} rows for other tokens than were asked",
            why="states would belong to another sample",
            fix="report it with the log of this stage; nothing of this sample was recorded",
        )
