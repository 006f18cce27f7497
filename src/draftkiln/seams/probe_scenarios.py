"""The prompts that the probe drives through the generator, and how it judges what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

MAX_MODEL_LEN = 512
LAYERS = (0, 2, 3)
"""Asked of the generator, which counts the output of layer i."""
HIDDEN = 64
BASE = 64
"""Positions are written as two numbers below it, exact in bfloat16."""
Prompt = list[int]


@dataclass(frozen=True)
class Scenario:
    """Batches given to `generate` one after another; `number` is the break that a wrong result stands for."""

    name: str
    number: int | None
    batches: Callable[[], list[list[Prompt]]]


def prompt(length: int, salt: int) -> Prompt:
    """Token ids that differ from those of every other salt at the first position."""
    return [3 + salt % 250, *((3 + (salt * 31 + place * 7) % 250) for place in range(1, length))]


def _salted(lengths: Sequence[int], first: int) -> list[Prompt]:
    return [prompt(length, first + place) for place, length in enumerate(lengths)]


SCENARIOS = (
    Scenario("two short prompts", None, lambda: [_salted([5, 9], 0)]),
    Scenario(
        "prompts around the block size (1, 15, 16, 17, 31, 32, 33)",
        None,
        lambda: [_salted([1, 15, 16, 17, 31, 32, 33], 10)],
    ),
    Scenario("a second batch", None, lambda: [_salted([7, 20], 20), _salted([12, 6], 30)]),
    Scenario("the same prompts again", 10, lambda: [_salted([64, 48], 40)] * 2),
    Scenario(
        "prompts that share a prefix", 10, lambda: [[prompt(48, 50) + prompt(8, 51)], [prompt(48, 50) + prompt(9, 52)]]
    ),
    Scenario("18 prompts of 500 tokens, budget 8192", 11, lambda: [_salted([500] * 18, 60)]),
    Scenario("20 prompts of different lengths", 12, lambda: [_salted(range(21, 41), 100)]),
    Scenario("40 prompts", 12, lambda: [_salted([24] * 40, 130)]),
    Scenario("a prompt of exactly the maximum length", 13, lambda: [_salted([MAX_MODEL_LEN, 20], 200)]),
)


def judge(prompts: Sequence[Prompt], results: Any) -> tuple[str, str] | None:
    """What is wrong with the results of one batch as (kind, text), None when all is right.

    Kinds: `count`, `order`, `tokens`, `layers`, `rows`, `values`.
    """
    if len(results) != len(prompts):
        return "count", f"{len(results)} results for {len(prompts)} prompts"
    echoed = [[int(token) for token in result["input_ids"]] for result in results]
    wanted = [list(item) for item in prompts]
    if echoed != wanted and sorted(echoed) == sorted(wanted):
        place = next(place for place, item in enumerate(wanted) if echoed[place] != item)
        wrong = sum(first != second for first, second in zip(echoed, wanted, strict=True))
        return "order", f"{wrong} of {len(wanted)} results are in the wrong place, the first at {place}"
    for place, (item, result) in enumerate(zip(wanted, results, strict=True)):
        wrong_row = _judge_one(place, item, echoed[place], result["hidden_states"])
        if wrong_row:
            return wrong_row
    return None


def encode(tokens: Sequence[int], layer: int) -> NDArray[np.float32]:
    """The rows `[T, 64]` that a right capture gives after decoder layer `layer` (0 = the first)."""
    rows = np.zeros((len(tokens), HIDDEN), dtype=np.float32)
    positions = np.arange(len(tokens))
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = tokens, positions // BASE, positions % BASE, layer + 1
    return rows


def _judge_one(place: int, item: Prompt, echoed: Prompt, states: Sequence[Any]) -> tuple[str, str] | None:
    if len(echoed) != len(item):
        return "tokens", f"prompt {place} has {len(item)} tokens, its result {len(echoed)}"
    if echoed != item:
        return "order", f"result {place} echoes other token ids than prompt {place}"
    captured = [_values(rows) for rows in states]
    if len(captured) != len(LAYERS):
        there = {int(rows[0, 3]) - 1 for rows in captured if len(rows)}
        missing = ", ".join(str(layer) for layer in LAYERS if layer not in there)
        return (
            "layers",
            f"prompt {place}: {len(captured)} layers for the {len(LAYERS)} asked, without the output of {missing}",
        )
    for layer, rows in zip(LAYERS, captured, strict=True):
        if rows.shape[0] != len(item):
            return "rows", f"prompt {place}: {rows.shape[0]} rows for {len(item)} tokens at layer {layer}"
        right = encode(item, layer)
        bad = np.flatnonzero((rows != right).any(axis=1))
        if len(bad):
            first = int(bad[0])
            return "values", (
                f"prompt {place} of {len(item)} tokens, layer {layer}: {len(bad)} wrong rows, the first at {first}:"
                f" (token, position/{BASE}, position%{BASE}, layer) is {rows[first, :4].astype(int).tolist()},"
                f" right is {right[first, :4].astype(int).tolist()}"
            )
    return None


def _values(rows: Any) -> NDArray[np.float32]:
    """A captured tensor `[T, 64]` as an array."""
    return np.asarray(rows.float().cpu().numpy() if hasattr(rows, "cpu") else rows, dtype=np.float32)
