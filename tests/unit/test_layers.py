import pytest

from draftkiln import layers


def test_generator_ids_count_outputs_so_they_are_one_less():
    assert layers.to_generator_ids(layers.captured_ids((2, 30, 58), 61)) == [1, 29, 57, 60]


def test_case_8_embeddings_cannot_be_asked_of_the_generator():
    with pytest.raises(ValueError, match="embeddings"):
        layers.to_generator_ids([0, 2])


def test_default_ids_are_those_vllm_serves_with():
    assert layers.default_aux_ids(61) == (2, 30, 58)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ((0, 2, 4), "embeddings"),
        ((2, 4, 8), "after the last layer"),
        ((2, 4, 9), "outside 1..7"),
        ((2, -1, 5), "outside 1..7"),
        ((2, 2, 5), "more than once"),
        ((5, 4, 2), "ascend"),
    ],
)
def test_case_8_and_10_wrong_ids_are_told_with_the_reason(ids, words):
    assert any(words in text for text in layers.problems(ids, 8))


def test_right_ids_have_no_problem():
    assert layers.problems((2, 4, 5), 8) == []


def test_defaults_collide_on_a_shallow_model():
    assert layers.problems(layers.default_aux_ids(5), 5)
