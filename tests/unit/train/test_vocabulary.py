from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.errors import RecipeError
from draftkiln.train import vocabulary


def test_case_31_a_corpus_smaller_than_the_draft_vocabulary_does_not_shrink_it() -> None:
    counts = Counter({token: 100 - token for token in range(50)})
    chosen = vocabulary.choose(counts, 64, 100, always={98, 99})
    assert chosen is not None
    assert len(chosen.d2t) == 64
    assert sum(chosen.t2d) == 64
    assert list(chosen.targets) == sorted(set(chosen.targets))
    assert {98, 99} <= set(chosen.targets)
    assert set(range(50)) <= set(chosen.targets)


def test_case_31_the_whole_vocabulary_needs_no_map() -> None:
    assert vocabulary.choose({}, 100, 100) is None
    assert vocabulary.choose({}, None, 100) is None


def test_case_31_more_than_the_target_has_is_refused() -> None:
    with pytest.raises(RecipeError, match="101 tokens"):
        vocabulary.choose({}, 101, 100)


def test_case_31_one_token_seen() -> None:
    chosen = vocabulary.choose({7: 3}, 4, 100, always={99})
    assert chosen is not None
    assert chosen.targets == (0, 1, 7, 99)


def test_fewer_than_the_tokens_that_must_be_in_is_refused() -> None:
    with pytest.raises(RecipeError, match="2 of them"):
        vocabulary.choose({}, 1, 100, always={98, 99})


@given(
    st.dictionaries(st.integers(0, 39), st.integers(1, 9)), st.integers(3, 39), st.sets(st.integers(0, 39), max_size=3)
)
def test_every_choice_is_exact_and_repeatable(counts: dict[int, int], size: int, always: set[int]) -> None:
    chosen = vocabulary.choose(counts, size, 40, always)
    assert chosen is not None
    assert chosen == vocabulary.choose(dict(reversed(counts.items())), size, 40, always)
    assert [draft + offset for draft, offset in enumerate(chosen.d2t)] == list(chosen.targets)
    assert [target for target, used in enumerate(chosen.t2d) if used] == list(chosen.targets)
    assert always <= set(chosen.targets)
    left_out = [counts.get(target, 0) for target in set(range(40)) - set(chosen.targets)]
    taken = [counts.get(target, 0) for target in set(chosen.targets) - always]
    assert not taken or not left_out or max(left_out) <= min(taken)


def test_only_tokens_that_carry_loss_are_counted() -> None:
    rows = [{"input_ids": [1, 2, 2], "loss_mask": [0, 1, 1]}, {"input_ids": [3], "loss_mask": [0]}]
    assert vocabulary.count(rows) == {2: 2}


def test_ends_come_from_every_configuration() -> None:
    assert vocabulary.ends({"eos_token_id": 5}, {"eos_token_id": [6, 7]}, {"eos_token_id": None}, {}) == {5, 6, 7}
