"""The prompts that the probe drives through the generator, and how it judges what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.seams import stub_target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_MODEL_LEN = 512
LAYERS = (0, 2, 3)
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


def _judge_one(place: int, item: Prompt, echoed: Prompt, states: Sequence[Any]) -> tuple[str, str] | None:
    if len(echoed) != len(item):
        return "tokens", f"prompt {place} has {len(item)} tokens, its result {len(echoed)}"
    if echoed != item:
        return "order", f"result {place} echoes other token ids than prompt {place}"
    if len(states) != len(LAYERS):
        return "layers", f"{len(states)} layers for the {len(LAYERS)} asked ({', '.join(map(str, LAYERS))})"
    for layer, rows in zip(LAYERS, states, strict=True):
        if rows.shape[0] != len(item):
            return "rows", f"prompt {place}: {rows.shape[0]} rows for {len(item)} tokens at layer {layer}"
        right = stub_target.encode(item, layer)
        bad = (rows.float().cpu() != right).any(dim=1).nonzero().flatten().tolist()
        if bad:
            row = rows[bad[0]].float().tolist()[:4]
            return "values", (
                f"prompt {place} of {len(item)} tokens, layer {layer}: {len(bad)} wrong rows, the first at {bad[0]}:"
                f" (token, position/64, position%64, layer) = {row}, right is {right[bad[0]].tolist()[:4]}"
            )
    return None
