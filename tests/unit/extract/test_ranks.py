"""Rows of some samples are compared between ranks, bit for bit, and a rank that differs is named."""

import pytest

from draftkiln.errors import EngineError
from draftkiln.extract import ranks
from draftkiln.extract.steps import Span


def reply(rank, prints, failure=""):
    return {"rank": rank, "prints": prints, "failure": failure}


def test_first_and_last_row_of_each_step_are_kept_of_the_samples_asked_for():
    kept = ranks.RowPrints([4, 9])
    row = lambda number: bytes([number]) * 8  # noqa: E731 - a stand-in of one line
    kept.keep([Span(4, 0, 3, 0, 5, None), Span(5, 3, 6, 0, 3, None)], row)
    kept.keep([Span(9, 0, 1, 0, 1, None), Span(4, 1, 3, 3, 5, None)], row)
    assert set(kept.prints) == {"4:0", "4:2", "9:0", "4:3", "4:4"}
    assert kept.prints["4:0"] == kept.prints["9:0"] != kept.prints["4:2"]


def test_ranks_that_agree_are_counted():
    assert ranks.compare([reply(1, {"4:0": "a", "4:2": "b"}), reply(0, {"4:0": "a", "4:2": "b"})]) == 2
    assert ranks.compare([reply(0, {"4:0": "a"})]) == 1


@pytest.mark.parametrize("theirs", [{"4:0": "a", "4:2": "x"}, {"4:0": "a"}])
def test_a_rank_with_other_rows_or_without_them_is_named(theirs):
    with pytest.raises(EngineError) as caught:
        ranks.compare([reply(0, {"4:0": "a", "4:2": "b"}), reply(1, {"4:0": "a", "4:2": "b"}), reply(2, theirs)])
    assert "the 3 ranks do not hold the same states: 1 of 4 rows differ" in caught.value.what
    assert caught.value.why == "rank 2: sample 4, token 2"


def test_what_went_wrong_on_a_rank_is_told():
    with pytest.raises(EngineError) as caught:
        ranks.compare([reply(0, {}), reply(1, {}, "TypeError: no residual")])
    assert caught.value.why == "rank 1: TypeError: no residual"
