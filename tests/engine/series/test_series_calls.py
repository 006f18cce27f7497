"""Which rows a sample gets: real scheduler and worker extension over a stub whose rows say where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from speculators_trees import LOUD

if TYPE_CHECKING:
    from speculators_trees import Trees

pytestmark = pytest.mark.engine

CHUNKS_OF_SEVEN = {"max_num_batched_tokens": 7, "max_num_seqs": 4}
LAYER_IDS = (0, 3, 4)
"""In the order in which they come back, not that in which `drive.py` asks for them."""


def sample(length: int, first: int = 10) -> list[int]:
    return [first + i for i in range(length)]


def rows(ids: list[int]) -> list[list[list[float]]]:
    """The stub's stream for these tokens, by captured layer."""
    return [
        [[token, position, sum(10**i for i in range(layer + 1))] for position, token in enumerate(ids)]
        for layer in LAYER_IDS
    ]


def many(count: int) -> list[list[int]]:
    return [sample(9, 5 * n) for n in range(count)]


def right(call: dict[str, Any], samples: list[list[int]]) -> bool:
    return call.get("value") == [{"ids": ids, "states": rows(ids)} for ids in samples]


SPLIT = [sample(length, 10 * length) for length in (1, 7, 8, 15, 16, 33)]
PREFIX = sample(32)
SHARED = [[*PREFIX, 200], [*PREFIX, 300, 301], PREFIX, PREFIX]
BLOCK = [sample(length) for length in (1, 15, 16, 17, 31, 32, 33)]
RANKS = ("bare", "1", "2", "4", "8", "nested", "second", "none")
MANY = (1, 32, 33, 65)
FAILING = {"generator": CHUNKS_OF_SEVEN, "calls": [SPLIT, BLOCK], "executor": {"fail_at_step": 1}}
LIMITS = ("max-num-batched-tokens", "trust-remote-code", "max-num-seqs")
"""Arguments of the constructor that the scenarios use; they stand on each other's lines."""


@pytest.fixture(scope="module")
def outcomes(drive: Any, trees: Trees) -> dict[str, Any]:
    full = trees.full()
    whole: dict[str, dict[str, Any]] = {
        "split": {"tree": full, "generator": CHUNKS_OF_SEVEN, "calls": [SPLIT, SPLIT, SPLIT[3:4]]},
        "split, padded": {"tree": full, "generator": CHUNKS_OF_SEVEN, "calls": [SPLIT], "executor": {"padding": 5}},
        "keyword layers": {"tree": full, "executor": {"layer": "KeywordLayer"}, "calls": [SPLIT]},
        "shared": {"tree": full, "calls": [SHARED, SHARED]},
        "block": {"tree": full, "calls": [BLOCK]},
        "lengths": {"tree": full, "calls": [[sample(64)], [sample(65)], [[]], [sample(64), sample(64, 300)]]},
        "many": {"tree": full, "calls": [many(count) for count in MANY]},
        "failing": {"tree": full, **FAILING},
        "ended": {"tree": full, "calls": [SPLIT]},
        **{f"{ranks} replies": {"tree": full, "calls": [SPLIT], "executor": {"replies": ranks}} for ranks in RANKS},
    }
    played: dict[str, Any] = drive(
        whole | (unordered(trees) if trees.starts_early else {}) | (left_out(trees) if trees.show_breaks else {})
    )
    return played


def unordered(trees: Trees) -> dict[str, dict[str, Any]]:
    """The series before its rows are filed under their requests."""
    tree = trees.before("rows-per-request")
    return {"unordered": {"tree": tree, "calls": [many(9), many(12), many(33)]}}


def left_out(trees: Trees) -> dict[str, dict[str, Any]]:
    """The breaks, each with its patch left out, and all that are silent."""
    only_loud = trees.only("only-loud-with-limits", [*LOUD, *LIMITS])
    caching_on = trees.only("caching-on", [*LOUD, *LIMITS, "rows-per-request", "room-for-sampled-token"])
    cut = trees.without("room-for-sampled-token", "engine-dtype")
    return {
        "block, no hasher": {"tree": trees.without("prefix-caching-off"), "calls": [[sample(15)], [sample(16)]]},
        "cut": {"tree": cut, "calls": [[sample(64)], [sample(65)]]},
        "failing, without": {"tree": trees.without("failed-call"), **FAILING},
        "ended, without": {"tree": trees.without("tell-workers-finished"), "calls": [SPLIT]},
        "loud, split": {"tree": only_loud, "generator": CHUNKS_OF_SEVEN, "calls": [SPLIT]},
        "loud, order": {"tree": only_loud, "calls": [SPLIT]},
        "loud, shared": {"tree": only_loud, "calls": [SHARED, SHARED]},
        "shared, caching on": {"tree": caching_on, "calls": [SHARED]},
    }


def test_prompts_split_over_steps_in_another_order(outcomes: dict[str, Any]) -> None:
    """Public cases 2 and 6: chunks of 7, requests laid out backwards in each step, a repeated call, padded rows."""
    first, again, alone = outcomes["split"]["calls"]
    assert right(first, SPLIT)
    assert right(again, SPLIT)
    assert right(alone, SPLIT[3:4])
    assert right(outcomes["split, padded"]["calls"][0], SPLIT)
    assert any(len(step) > 1 for step in outcomes["split"]["steps"]), (
        "no step held the tail of one and the head of another"
    )


def test_only_loud_breaks_mended_gives_rows_of_other_samples(outcomes: dict[str, Any]) -> None:
    for name in ("loud, split", "loud, order", "loud, shared"):
        for call, samples in zip(
            outcomes[name]["calls"], (SPLIT if "shared" not in name else SHARED,) * 2, strict=False
        ):
            assert "value" in call, call
            assert not right(call, samples), name


def test_fourth_value_and_keyword_only_names(outcomes: dict[str, Any]) -> None:
    """Public case 55: the model's own forward calls its layers."""
    assert right(outcomes["keyword layers"]["calls"][0], SPLIT)


def test_prompt_that_fills_a_block(outcomes: dict[str, Any]) -> None:
    """Public case 37: 15 tokens are not enough of a smoke test, blocks have 16."""
    assert right(outcomes["block"]["calls"][0], BLOCK)


def test_prompt_that_fills_a_block_without_the_patch(outcomes: dict[str, Any]) -> None:
    short, full_block = outcomes["block, no hasher"]["calls"]
    assert right(short, [sample(15)])
    assert full_block["error"] == "AssertionError"
    assert full_block["message"] == ""


def test_shared_prefixes(outcomes: dict[str, Any]) -> None:
    """Public case 5."""
    for call in outcomes["shared"]["calls"]:
        assert right(call, SHARED)


def test_missing_rows_are_an_error(outcomes: dict[str, Any]) -> None:
    """Public case 5: with caching on, another sample's rows never take their place."""
    assert "went on at token" in outcomes["shared, caching on"]["calls"][0]["message"]


def test_more_samples_than_max_num_seqs(outcomes: dict[str, Any]) -> None:
    """Public case 4."""
    for count, call in zip(MANY, outcomes["many"]["calls"], strict=True):
        assert right(call, many(count)), count


def test_results_in_the_order_of_the_input(outcomes: dict[str, Any]) -> None:
    """Break 12: 0.4.0.1 sorts request ids as text and never finishes one; 0.3.0 cuts by input, the runner lays out."""
    nine, twelve, over = outcomes["unordered"]["calls"]
    assert not right(twelve, many(12))
    assert not right(over, many(33))
    if "not found in captured states" in over.get("message", ""):
        assert right(nine, many(9)), "up to ten the order as text is the order of the input"
        assert [one["ids"][0] for one in twelve["value"]] == [0, 5, 50, 55, *range(10, 50, 5)]


def test_longer_sample_is_refused(outcomes: dict[str, Any]) -> None:
    whole, longer, empty, after = outcomes["lengths"]["calls"]
    assert right(whole, [sample(64)])
    assert longer["error"] == empty["error"] == "ValueError"
    assert "Sample 0 has 65 tokens, allowed are 1 to 64" in longer["message"]
    assert "Sample 0 has 0 tokens" in empty["message"]
    assert right(after, [sample(64), sample(64, 300)])


def test_longer_sample_is_cut_without_the_patch(outcomes: dict[str, Any]) -> None:
    for call in outcomes["cut"]["calls"]:
        assert right(call, [sample(63)])


def test_replies_of_several_ranks(outcomes: dict[str, Any]) -> None:
    """Public case 71: rank 0 has the data; without it there is an error, never another rank's or nothing."""
    for replies in ("bare", "1", "2", "4", "8", "nested"):
        assert right(outcomes[f"{replies} replies"]["calls"][0], SPLIT), replies
    for replies in ("second", "none"):
        assert outcomes[f"{replies} replies"]["calls"][0]["message"] == "Failed to capture hidden states from worker"


def test_failed_call_leaves_nothing_behind(outcomes: dict[str, Any]) -> None:
    failed, after = outcomes["failing"]["calls"]
    assert failed["error"] == "AssertionError"
    assert "Extraction of 6 samples failed\nTraceback" in outcomes["failing"]["log"]
    assert right(after, BLOCK)


def test_failed_call_without_the_patch(outcomes: dict[str, Any]) -> None:
    assert not right(outcomes["failing, without"]["calls"][1], BLOCK)
    assert "Traceback" not in outcomes["failing, without"]["log"]


def test_workers_forget_ended_requests(outcomes: dict[str, Any]) -> None:
    assert outcomes["ended"]["remembered"] == []


def test_workers_remember_ended_requests_without_the_patch(outcomes: dict[str, Any]) -> None:
    assert len(outcomes["ended, without"]["remembered"]) == len(SPLIT)
