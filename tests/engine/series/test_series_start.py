"""What stops the generator's constructor, and what must stop it: stub model, real configuration and scheduler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from speculators_trees import Trees

pytestmark = pytest.mark.engine
TINY_CACHE = {"memory": 3 * 16 * 5 * 64 * 2 * 2}
"""Bytes of three blocks of 16 tokens: five layers, keys and values of 64 bfloat16."""


@pytest.fixture(scope="module")
def starts(drive: Any, trees: Trees) -> dict[str, Any]:
    full = trees.full()
    whole: dict[str, dict[str, Any]] = {
        "full": {"tree": full},
        "coded": {"tree": full, "target": "coded"},
        "tiny cache": {"tree": full, "executor": TINY_CACHE},
        "kimi": {"tree": full, "executor": {"architecture": "KimiK25ForConditionalGeneration"}},
        "llama": {"tree": full, "executor": {"architecture": "LlamaForCausalLM"}},
        "no layers": {"tree": full, "executor": {"no_layers": True}},
        "no residual": {"tree": full, "executor": {"layer": "SingleTensorLayer"}},
        "residual none": {"tree": full, "executor": {"layer": "NoResidualLayer"}},
    }
    outcomes = drive(whole | (left_out(trees) if trees.show_breaks else {}))
    for name in outcomes:
        outcomes[name] = outcomes[name]["start"]
    return outcomes


def left_out(trees: Trees) -> dict[str, dict[str, Any]]:
    """The breaks, each with its patch left out."""
    loud = ("state-decoder-only", "kv-memory-from-workers", "kv-cache-config-arguments", "scheduler-block-size")
    return {
        # transformers 5 no longer runs a tokenizer's code where it can do without
        "coded, no trust": {"tree": trees.full(), "target": "coded", "generator": {"trust_remote_code": False}},
        "coded, before": {"tree": trees.before("trust-remote-code"), "target": "coded"},
        "tiny cache, without": {"tree": trees.without("refuse-small-kv-cache"), "executor": TINY_CACHE},
        "deepseek, before": {"tree": trees.before("find-decoder-in-wrapper")},
        **{slug: {"tree": trees.without(slug)} for slug in loud},
    }


def stopped_by(start: dict[str, Any], error: str, text: str) -> bool:
    return start.get("error") == error and re.search(text, start["message"]) is not None


def test_scheduler_config_is_built(starts: dict[str, Any]) -> None:
    assert "error" not in starts["full"]
    assert stopped_by(starts["state-decoder-only"], "ValidationError", r"is_encoder_decoder\s+Field required")


def test_kv_cache_is_sized(starts: dict[str, Any]) -> None:
    assert "error" not in starts["full"]
    assert "mem_get_info" in starts["kv-memory-from-workers"]["traceback"]


def test_kv_cache_config_is_built(starts: dict[str, Any]) -> None:
    assert "error" not in starts["full"]
    assert stopped_by(starts["kv-cache-config-arguments"], "TypeError", "unexpected keyword argument 'kv_cache_specs'")


def test_scheduler_is_built(starts: dict[str, Any]) -> None:
    assert "error" not in starts["full"]
    assert stopped_by(starts["scheduler-block-size"], "TypeError", "missing 1 required .* 'block_size'")


def test_tokenizer_with_code_of_its_own(starts: dict[str, Any]) -> None:
    assert "error" not in starts["coded"]
    assert stopped_by(starts["coded, no trust"], "ValueError", "trust_remote_code")
    assert stopped_by(starts["coded, before"], "ValueError", "trust_remote_code")


def test_decoder_is_found(starts: dict[str, Any]) -> None:
    for architecture in ("full", "kimi", "llama"):
        assert "error" not in starts[architecture], architecture
    assert stopped_by(
        starts["deepseek, before"], "ValueError", "DeepseekV3ForCausalLM does not support hidden state extraction"
    )


def test_model_without_decoder_layers_is_refused(starts: dict[str, Any]) -> None:
    start = starts["no layers"]
    own = stopped_by(start, "ValueError", "DeepseekV3ForCausalLM .*Linear has no layers")
    assert own or stopped_by(
        start, "AttributeError", "Could not find base model with 'layers' attribute. Model type: DeepseekV3ForCausalLM"
    )


def test_layers_of_another_form_are_refused(starts: dict[str, Any]) -> None:
    """Public case 55: a start-up error that names the class, never half of a stream."""
    assert stopped_by(starts["no residual"], "ValueError", "SingleTensorLayer of Decoder takes no residual")
    assert stopped_by(starts["residual none"], "TypeError", "NoResidualLayer does not return")


def test_kv_cache_too_small_for_the_longest_sample(starts: dict[str, Any]) -> None:
    """Public case 59: both numbers are named at start."""
    assert stopped_by(starts["tiny cache"], "ValueError", r"holds \d+ tokens, but a sample may have 64")
    assert "error" not in starts["tiny cache, without"]
