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


@pytest.mark.parametrize(
    ("architecture", "ids", "written"),
    [
        ("LlamaForCausalLM", (2, 15, 27), [1, 14, 26]),
        ("Qwen3ForCausalLM", (15, 23, 28), [14, 22, 27]),
        ("KimiK25ForConditionalGeneration", (2, 30, 58), [1, 29, 57]),
        ("DeepseekV3ForCausalLM", (15, 30, 58), [15, 30, 58]),
        ("GptOssForCausalLM", (2, 12, 21), [2, 12, 21]),
    ],
)
def test_case_8_sglang_is_told_ids_as_it_counts_them_for_the_target(architecture, ids, written):
    assert layers.to_sglang_ids(ids, architecture) == written
    assert layers.from_sglang_ids(written, architecture) == list(ids)


@pytest.mark.parametrize("architecture", ["KimiK25ForConditionalGeneration", "DeepseekV3ForCausalLM"])
@pytest.mark.parametrize("ids", [(2, 30, 58), (3, 30, 58), (15, 20, 25)])
def test_case_8_sglang_captures_the_states_that_were_meant(architecture, ids):
    """Both readings of its deepseek_v2.py: until 2026-05 one was added always, since then only after a first 1."""
    written = layers.to_sglang_ids(ids, architecture)
    now = [layer + 1 for layer in written] if written[0] == 1 else written
    assert now == list(ids)
    if ids[0] == 2:
        assert [layer + 1 for layer in written] == list(ids)


def test_case_8_ids_that_sglang_would_shift_are_refused():
    with pytest.raises(ValueError, match="begins with 1"):
        layers.to_sglang_ids((1, 30, 58), "DeepseekV3ForCausalLM")
