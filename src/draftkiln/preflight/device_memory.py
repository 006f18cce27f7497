"""What an extraction takes of a GPU's memory, told before anything is loaded: weights, KV cache, capture.

Weights come from the sizes of the checkpoint's files, or for a target without files from its config.json: the decoder
families of the recipes, their experts in INT4 with group scales where the config says so. Measured against what a run
used in docs/benchmarks.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.target import facts as target_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftkiln.recipe.model import Recipe
    from draftkiln.target.facts import TargetFacts

_BYTES = 2
"""bfloat16."""
_STAGES = 2
"""Steps whose rows lie in device memory: one is captured while the one before leaves."""
_STEPS = 4
"""Steps whose tokens the KV cache should hold, so that the scheduler is never short of work."""


@dataclass(frozen=True)
class Need:
    """Bytes of one GPU.

    Attributes:
        weights: of the target's text part; None where its config.json does not tell.
        kv_token: of a token in the KV cache; None likewise.
        kv: of the tokens that keep the scheduler busy.
        capture: beside what the engine plans with, on the first GPU alone.
    """

    weights: int | None
    kv_token: int | None
    kv: int
    capture: int

    def told(self) -> str:
        """For people."""
        weights = "weights of unknown size" if self.weights is None else f"{self.weights / 1e9:.1f} GB of weights"
        kv = "" if self.kv_token is None else f", {self.kv / 1e9:.2f} GB of KV cache ({self.kv_token} B a token)"
        return f"{weights} a GPU{kv}, {self.capture / 1e9:.2f} GB for capture on the first"


def need(recipe: Recipe, facts: TargetFacts) -> Need:
    """What the recipe's extraction takes of each GPU."""
    size, extract = recipe.target.tensor_parallel_size, recipe.extract
    raw = json.loads((facts.path / "config.json").read_text(encoding="utf-8"))
    text = target_facts.text_config(raw)
    slots = len(recipe.layers.captured(facts.num_layers))
    weights = facts.weight_bytes // size if facts.weight_bytes else weight_bytes(text, size)
    token = kv_bytes(text, size)
    tokens = _STEPS * max(extract.token_budget, recipe.data.max_tokens)
    capture = _STAGES * extract.token_budget * slots * facts.hidden_size * _BYTES
    return Need(weights, token, (token or 0) * tokens, capture)


def kv_bytes(text: Mapping[str, Any], size: int) -> int | None:
    """Bytes of a token in the KV cache of one of `size` GPUs."""
    layers = text["num_hidden_layers"]
    if rank := text.get("kv_lora_rank"):
        # The compressed state is one for all heads, so every GPU keeps it whole.
        return int(layers * (rank + text["qk_rope_head_dim"]) * _BYTES)
    heads, width = text.get("num_key_value_heads"), _head_width(text)
    return None if heads is None else int(layers * 2 * max(1, heads // size) * width * _BYTES)


def weight_bytes(text: Mapping[str, Any], size: int) -> int | None:
    """Bytes of weights on one of `size` GPUs; None where the config is of another kind."""
    if "intermediate_size" not in text:
        return None
    hidden, layers = text["hidden_size"], text["num_hidden_layers"]
    split, whole = _attention(text)
    experts = text.get("n_routed_experts") or 0
    dense = text.get("first_k_dense_replace", 0) if experts else layers
    mlp = 3 * hidden * text["intermediate_size"]
    vocabulary = hidden * text["vocab_size"] * (1 if text.get("tie_word_embeddings") else 2)
    plain = layers * (split / size + whole) + dense * mlp / size + vocabulary / size
    if not experts:
        return int(plain * _BYTES)
    expert = 3 * hidden * text["moe_intermediate_size"]
    shared = text.get("n_shared_experts", 0) * expert
    plain += (layers - dense) * (shared / size + hidden * experts)
    return int(plain * _BYTES + (layers - dense) * experts * expert / size * _expert_bytes(text))


def _attention(text: Mapping[str, Any]) -> tuple[int, int]:
    """Parameters of a layer's attention that GPUs share among them, and those that each keeps whole."""
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    rank = text.get("kv_lora_rank")
    if not rank:
        width, keys = _head_width(text), text.get("num_key_value_heads", heads)
        return hidden * width * 2 * (heads + keys), 0
    plain, rotary, value = text["qk_nope_head_dim"], text["qk_rope_head_dim"], text["v_head_dim"]
    queries, lora = heads * (plain + rotary), text.get("q_lora_rank")
    # vLLM keeps the projection out of the compressed state twice: as it is, and taken apart for decoding.
    split = 2 * rank * heads * (plain + value) + heads * value * hidden + (lora or hidden) * queries
    return split, hidden * (rank + rotary) + hidden * (lora or 0)


def _head_width(text: Mapping[str, Any]) -> int:
    return int(text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"])


def _expert_bytes(text: Mapping[str, Any]) -> float:
    """Bytes of a weight of the routed experts, its share of a scale included."""
    for group in (text.get("quantization_config") or {}).get("config_groups", {}).values():
        weights = group.get("weights") or {}
        if weights.get("type") == "int" and weights.get("group_size"):
            return float(weights["num_bits"] / 8 + _BYTES / weights["group_size"])
    return _BYTES
