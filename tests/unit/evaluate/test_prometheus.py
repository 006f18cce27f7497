"""Counters of a vLLM server, from the text that its `/metrics` page has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.errors import EvaluationError
from draftkiln.evaluate import measure, prometheus

# As prometheus_client writes vLLM's counters; two engines of one server (data parallel), and another model beside.
PAGE = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 20.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="other"} 9.0
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 60.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 150.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 20.0
vllm:generation_tokens_total{engine="0",model_name="m"} 250.0
vllm:generation_tokens_total{engine="1",model_name="m"} 50.0
python_gc_objects_collected_total{generation="0"} 500.0
"""


def test_counters_are_summed_over_the_engines_of_one_model_with_positions_in_order() -> None:
    found = prometheus.parse(PAGE, "m")
    assert found == prometheus.Snapshot(120, 360, 180, (100, 50, 20), 300)


def test_what_was_counted_in_between_gives_the_acceptance() -> None:
    before = prometheus.parse(PAGE, "m")
    after = prometheus.Snapshot(220, 660, 330, (180, 100, 50), 600)
    found = measure.acceptance(after.since(before))
    assert (found.length, found.drafts, found.accepted) == (2.5, 100, 150)
    assert found.per_position == (0.8, 0.5, 0.3)


def test_a_server_without_a_draft_is_told_from_a_page_that_is_not_vllms() -> None:
    plain = prometheus.parse('vllm:generation_tokens_total{model_name="m"} 3.0\n', "m")
    assert (plain.drafts, plain.generated) == (None, 3)
    with pytest.raises(EvaluationError, match="the server drafts nothing"):
        plain.since(plain)
    with pytest.raises(EvaluationError, match="no counters of vLLM's"):
        prometheus.parse("<html>", None)
    with pytest.raises(EvaluationError, match="for model unknown"):
        prometheus.parse(PAGE, "unknown")


def test_a_server_started_anew_in_between_is_refused() -> None:
    with pytest.raises(EvaluationError, match="started anew"):
        prometheus.Snapshot(5, 15, 7, (4, 2, 1), 10).since(prometheus.parse(PAGE, "m"))


@given(st.lists(st.text(alphabet='vllm:_{}="\\,. 0123456789eNaInf+-#\t', max_size=60), max_size=8))
def test_no_page_raises_anything_but_an_error_that_says_so(lines: list[str]) -> None:
    text = "\n".join(["vllm:generation_tokens_total 1.0", *lines])
    assert isinstance(prometheus.parse(text).generated, int)
