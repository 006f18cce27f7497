"""What a one-layer EAGLE-3 draft is made of, and what vLLM 0.32.0 and SGLang take of it.

Sources: vLLM 0.32.0, `model_executor/models/llama_eagle3.py` and `transformers_utils/configs/speculators/algos.py`;
SGLang, `srt/models/llama_eagle3.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Mapping

AUX_STATES = 3
"""States that the draft fuses."""
LAYER = "layers.0."
SGLANG_LAYER = "midlayer."
EMBEDDINGS, HEAD, D2T, T2D = "embed_tokens.weight", "lm_head.weight", "d2t", "t2d"

READ_BY_VLLM = frozenset(
    {
        "architectures",
        "draft_vocab_size",
        "eagle_aux_hidden_state_layer_ids",
        "fc_norm",
        "norm_before_fc",
        "norm_before_residual",
        "norm_output",
        "speculators_config",
        "speculators_model_type",
        "target_hidden_size",
        "transformer_layer_config",
    }
)
"""Top-level keys of a draft's config.json that decide how vLLM 0.32.0 serves it."""
WITHOUT_EFFECT: dict[str, tuple[Any, ...] | None] = {
    "embed_requires_grad": (False,),
    "dtype": ("bfloat16",),
    "torch_dtype": ("bfloat16",),
    "model_type": ("speculator_model", "eagle3", None),
    "speculators_version": None,
    "transformers_version": None,
    "tie_word_embeddings": (False,),
    "has_no_defaults_at_init": None,
    "auto_map": None,
}
"""Keys that vLLM does not read -> the values at which that changes nothing (None: any)."""
OFF_FLAGS = ("norm_before_fc", "fc_norm", "norm_output")
"""Norm flags that this project trains without; SGLang knows none of them."""


@dataclass(frozen=True)
class Sizes:
    """Sizes that fix the shape of every tensor of a draft."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    draft_vocab: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Sizes:
        """Sizes as a speculators config.json says them.

        Raises:
            TrainingError: a size is missing.
        """
        layer = config.get("transformer_layer_config", {})
        try:
            return cls(
                hidden=layer["hidden_size"],
                heads=layer["num_attention_heads"],
                kv_heads=layer["num_key_value_heads"],
                head_dim=layer["head_dim"],
                intermediate=layer["intermediate_size"],
                vocab=layer["vocab_size"],
                draft_vocab=config["draft_vocab_size"],
            )
        except KeyError as error:
            raise TrainingError(
                f"the draft's config.json does not say {error.args[0]}",
                why="the serving engine would take a default of its own, such as hidden_size / heads for head_dim",
                fix="write it into the draft's config.json, or train the draft again",
            ) from error

    @property
    def maps_vocabulary(self) -> bool:
        """Whether the draft proposes only some of the target's tokens."""
        return self.draft_vocab != self.vocab


def tensors(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor of a draft in speculators' layout, as vLLM loads it."""
    hidden, query, key = sizes.hidden, sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    found: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, AUX_STATES * hidden),
        f"{LAYER}hidden_norm.weight": (hidden,),
        f"{LAYER}input_layernorm.weight": (hidden,),
        f"{LAYER}post_attention_layernorm.weight": (hidden,),
        f"{LAYER}self_attn.q_proj.weight": (query, 2 * hidden),
        f"{LAYER}self_attn.k_proj.weight": (key, 2 * hidden),
        f"{LAYER}self_attn.v_proj.weight": (key, 2 * hidden),
        f"{LAYER}self_attn.o_proj.weight": (hidden, query),
        f"{LAYER}mlp.gate_proj.weight": (sizes.intermediate, hidden),
        f"{LAYER}mlp.up_proj.weight": (sizes.intermediate, hidden),
        f"{LAYER}mlp.down_proj.weight": (hidden, sizes.intermediate),
        "norm.weight": (hidden,),
        HEAD: (sizes.draft_vocab, hidden),
    }
    if sizes.maps_vocabulary:
        found |= {D2T: (sizes.draft_vocab,), T2D: (sizes.vocab,)}
    return found


def optional_tensors(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Name -> shape of tensors that may be there: vLLM shares the target's embeddings when a draft brings none."""
    return {EMBEDDINGS: (sizes.vocab, sizes.hidden)}


def sglang_name(name: str) -> str:
    """SGLang's name of a tensor of speculators' layout; `layers.0.` it would drop without a word."""
    return SGLANG_LAYER + name.removeprefix(LAYER) if name.startswith(LAYER) else name
