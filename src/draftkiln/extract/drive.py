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
_IDLE_SECONDS = 0.02
"""Between two looks for a prompt while the engine has none."""
_STEPS_IN_FLIGHT = 2
"""Steps that an engine with asynchronous scheduling has begun at a time."""


@dataclass(frozen=True)
class Report:
    """What the sink has to say: receipts since the last report, and what went wrong.

    Attributes:
        receipts: of samples that became durable.
        failure: what went wrong, or None.
        lost: what the storage loses of each slot, as relative error and least cosine; empty when nothing is.
    """

    receipts: list[Receipt]
    failure: DraftkilnError | None = None
    lost: tuple[tuple[float, float], ...] = ()


class Engine(Protocol):
    """What the loop drives."""

    def add(self, index: int, token_ids: Sequence[int]) -> None:
        """Queue a sample."""

    def cancel(self, indices: list[int]) -> None:
        """Take back samples that were added; a part of their rows may have been captured."""

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
        tokens: of all samples that were added and are not computed yet.
        samples: likewise in samples.
        step: tokens of a step.
        block: tokens that the KV cache hands out at a time.
    """

    tokens: int
    samples: int
    step: int
    block: int = 1

    def cost(self, tokens: int) -> int:
        """Tokens of the KV cache that a sample takes, with the one that ends its prefill."""
        return -(-(tokens + 1) // self.block) * self.block


def drive(
    engine: Engine,
    prompts: Iterable[tuple[int, Sequence[int]] | None],
    limits: Limits,
    record: Callable[[list[Receipt]], None],
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Compute all of `prompts` (index and token ids); once `stopping` says so, only what the engine is computing.

    Where more prompts may follow later, `prompts` gives None for the time being.

    Raises:
        StorageError: the sink could not write.
        EngineError: the engine gave other samples than were asked for. What was recorded before is good either way.
    """
    asked: dict[int, tuple[int, str]] = {}
    costs: dict[int, int] = {}
    held = 0
    ahead = _Ahead(prompts)
    reported = time.monotonic()
    cancelled: set[int] = set()
    while True:
        if stopping() and not cancelled:
            cancelled.update(_beyond(costs, _STEPS_IN_FLIGHT * limits.step))
            engine.cancel(sorted(cancelled))
            costs = {index: cost for index, cost in costs.items() if index not in cancelled}
        while not stopping() and (following := ahead.look()) is not None:
            index, token_ids = following
            cost = limits.cost(len(token_ids))
            if costs and (held + cost > limits.tokens or len(costs) >= limits.samples):
                break
            asked[index] = len(token_ids), ids_checksum(token_ids)
            costs[index] = cost
            held += cost
            engine.add(index, token_ids)
            ahead.take()
        if costs:
            for index in engine.step():
                held -= costs.pop(index)
        elif ahead.over or stopping():
            break
        else:
            time.sleep(_IDLE_SECONDS)
        if time.monotonic() - reported >= _REPORT_SECONDS:
            _take(engine.report(), asked, record)
            reported = time.monotonic()
    _take(engine.close(), asked, record)
    lost = asked.keys() - cancelled
    if lost:
        raise EngineError(
            f"{len(lost)} samples were computed but never written whole, the first is {min(lost)}",
            why="rows were not captured",
            fix="run `draftkiln preflight` on this stack; nothing of these samples was recorded",
        )


class _Ahead:
    """The next prompt, looked at before it is taken."""

    def __init__(self, prompts: Iterable[tuple[int, Sequence[int]] | None]) -> None:
        self.over = False
        self._prompts = iter(prompts)
        self._next: tuple[int, Sequence[int]] | None = None

    def look(self) -> tuple[int, Sequence[int]] | None:
        """The next prompt; None when there is none, for the time being or at all."""
        if self._next is None and not self.over:
            try:
                self._next = next(self._prompts)
            except StopIteration:
                self.over = True
        return self._next

    def take(self) -> None:
        self._next = None


def _beyond(costs: dict[int, int], tokens: int) -> list[int]:
    """Samples after the first `tokens` tokens; the engine computes in the order in which they were added."""
    found = []
    for index, cost in costs.items():
        if tokens <= 0:
            found.append(index)
        tokens -= cost
    return found


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
