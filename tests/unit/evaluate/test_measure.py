import pytest

from draftkiln.errors import EvaluationError
from draftkiln.evaluate import measure


def test_acceptance_is_one_plus_accepted_a_draft() -> None:
    found = measure.acceptance({"drafts": 100, "accepted": 150, "accepted_per_position": [90, 40, 20]})
    assert found.length == 2.5
    assert found.per_position == (0.9, 0.4, 0.2)


def test_nothing_accepted_is_one() -> None:
    assert measure.acceptance({"drafts": 7, "accepted": 0, "accepted_per_position": [0, 0, 0]}).length == 1.0


@pytest.mark.parametrize("counters", [{}, {"drafts": 0, "accepted": 0}])
def test_a_draft_that_was_not_used_is_no_measurement(counters: dict[str, int]) -> None:
    with pytest.raises(EvaluationError, match="drafted nothing"):
        measure.acceptance(counters)


def test_divergences_name_prompt_turn_and_place() -> None:
    found = measure.divergences([[[1, 2, 3]], [[4]], [[5, 6]]], [[[1, 2, 3]], [[9]], [[5]]])
    assert found == [measure.Divergence(1, 0, 0, 4, 9), measure.Divergence(2, 0, 1, 6, None)]
    assert measure.divergences([[[1]]], [[[1]]]) == []


def test_of_a_conversation_only_the_first_turn_that_differs_counts_what_follows_answers_another_prompt() -> None:
    found = measure.divergences([[[1], [2, 3], [4]]], [[[1], [2, 9], [5]]])
    assert found == [measure.Divergence(0, 1, 1, 3, 9)]


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        # The first token of an answer is nobody's draft. After 7: 1 (no), then 7 7 accepted and 2 on top, then 7.
        ([[7, 1, 7, 7, 2, 7]], 1 + 3 / 3),
        ([[1, 2, 3, 4]], 1.0),  # the most frequent is the first, and never comes again
        ([[5, 5, 5, 5, 5, 5, 5, 5, 5]], 1 + 6 / 2),  # three drafted, all right, and one on top, twice
        ([], 1.0),
        ([[]], 1.0),
        ([[3]], 1.0),
    ],
)
def test_case_75_the_unigram_baseline_is_the_walk_of_a_draft_that_knows_one_token(
    outputs: list[list[int]], expected: float
) -> None:
    assert measure.unigram_length(outputs, 3) == pytest.approx(expected)
