"""The draft's decoder configuration, with nothing left to defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftkiln.target.facts import text_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftkiln.recipe.model import DraftShape

_DEFAULT_EPS = 1e-6
_DEFAULT_THETA = 10000.0


def decoder_config(target_config: Mapping[str, Any], shape: DraftShape) -> dict[str, Any]:
    """The Llama decoder configuration of a draft for the target with this config.json.

    Hidden size, vocabulary, longest position and the norm's epsilon are the target's (the trainer applies the target's
    final norm with the draft's epsilon); the shape is the recipe's. Positions are plain rotary ones with the target's
    theta: one layer that looks at what the target has seen already needs no scaling of its own.
    """
    text = text_config(target_config)
    rope = text.get("rope_parameters") or {}
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": text["hidden_size"],
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": text["max_position_embeddings"],
        "mlp_bias": False,
        "num_attention_heads": shape.num_attention_heads,
        "num_hidden_layers": 1,
        "num_key_value_heads": shape.num_key_value_heads,
        "rms_norm_eps": text.get("rms_norm_eps", _DEFAULT_EPS),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": float(rope.get("rope_theta") or text.get("rope_theta") or _DEFAULT_THETA),
        },
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": text["vocab_size"],
    }
