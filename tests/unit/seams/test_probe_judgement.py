import numpy as np
import pytest

from draftkiln.seams.probe_findings import KNOWN, finding, recognised
from draftkiln.seams.probe_scenarios import LAYERS, SCENARIOS, encode, judge, prompt


def results(prompts):
    return [{"input_ids": item, "hidden_states": [encode(item, layer) for layer in LAYERS]} for item in prompts]


PROMPTS = [prompt(length, salt) for salt, length in enumerate([5, 33, 16])]


def kind(given):
    wrong = judge(PROMPTS, given)
    return wrong and wrong[0]


def test_right_results_pass():
    assert judge(PROMPTS, results(PROMPTS)) is None


def test_case_54_a_layer_that_is_missing_is_named():
    given = results(PROMPTS)
    for item in given:
        del item["hidden_states"][-1]
    kind_, text = judge(PROMPTS, given)
    assert kind_ == "layers"
    assert text.endswith("without the output of 3")


def test_case_55_half_a_residual_stream_and_a_view_overwritten_later_are_wrong_values():
    given = results(PROMPTS)
    given[1]["hidden_states"][0][:, 1:3] = 0  # the part that the residual carries
    assert kind(given) == "values"
    given = results(PROMPTS)
    given[1]["hidden_states"][0] = given[1]["hidden_states"][2]  # what a view of layer 0 holds after layer 3
    assert kind(given) == "values"


def test_every_other_kind_of_wrong_result_has_its_name():
    assert kind(results(PROMPTS)[:-1]) == "count"
    assert kind(list(reversed(results(PROMPTS)))) == "order"
    short = results(PROMPTS)
    short[1]["input_ids"] = short[1]["input_ids"][:-1]
    assert kind(short) == "tokens"
    fewer = results(PROMPTS)
    fewer[0]["hidden_states"][1] = fewer[0]["hidden_states"][1][:-1]
    assert kind(fewer) == "rows"
    shifted = results(PROMPTS)
    shifted[0]["hidden_states"] = [encode(PROMPTS[0], layer + 1) for layer in LAYERS]
    assert kind(shifted) == "values"
    swapped = results(PROMPTS)
    swapped[0]["hidden_states"][0] = np.roll(swapped[0]["hidden_states"][0], 1, axis=0)
    assert kind(swapped) == "values"


def test_case_37_prompts_around_the_block_size_are_among_the_scenarios():
    lengths = {len(item) for scenario in SCENARIOS for batch in scenario.batches() for item in batch}
    assert {1, 15, 16, 17, 31, 32, 33} <= lengths


def test_prompts_are_exact_in_bfloat16_and_differ_at_the_first_token():
    for scenario in SCENARIOS:
        for batch in scenario.batches():
            assert all(0 <= token < 256 for item in batch for token in item)
            if "prefix" not in scenario.name:
                assert len({item[0] for item in batch}) == len(batch), scenario.name


@pytest.mark.parametrize(
    ("trace", "number"),
    [
        ("AssertionError\n  assert len(request.block_hashes) >= num_full_blocks", 7),
        ("RuntimeError: Boolean value of Tensor with more than one value is ambiguous", 8),
        ("RuntimeError: State error: sample_tokens() must be called after execute_model() returns None", 9),
        ("AttributeError: '_Decoder' object has no attribute 'get_input_embeddings'", 6),
        ("TypeError: Scheduler.__init__() missing 1 required positional argument: 'block_size'", 5),
        ("ValueError: something else", None),
    ],
)
def test_a_traceback_is_recognised(trace, number):
    assert recognised(trace) == number


def test_findings_carry_the_number_and_the_way_out():
    assert set(KNOWN) == {1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
    known = finding(10, "the same prompts again", "32 rows for 64 tokens")
    assert (known.number, known.fix) == (10, "switch prefix caching off")
    assert finding(None, "x", "y").number is None
