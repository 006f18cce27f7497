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


def test_divergences_name_prompt_and_place() -> None:
    found = measure.divergences([[1, 2, 3], [4], [5, 6]], [[1, 2, 3], [9], [5]])
    assert found == [measure.Divergence(1, 0), measure.Divergence(2, 1)]
    assert measure.divergences([[1]], [[1]]) == []
