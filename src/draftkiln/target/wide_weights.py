"""Real weights for a target of a real model's width: made up, of the right sizes, INT4 experts packed in groups.

Names, types and layout are those of Kimi-K2.5's checkpoints (compressed-tensors, pack-quantized): eight values of four
bits in an int32, each group of 32 columns with a bfloat16 scale, the shape beside them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from draftkiln.target import bits
from draftkiln.target.layers import ones
from draftkiln.target.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

_IN_A_WORD = 8
"""Values of four bits in an int32."""
_VALUE_STD = (255 / 12) ** 0.5
"""Standard deviation of -8 … 7, all alike."""
_SPREAD = 0.3
"""Standard deviation of a group's scale, as a share of the mean: groups that were mixed up would show."""
_ADDED = 0.15
"""Mean square that a layer adds to the residual stream, once by attention and once by its experts."""
_UNIT_POWER = 0.356
"""Mean square of silu(g) * u for independent normal g, u of variance 1."""
_VALUE_POWER = 0.2
"""Mean square of attention's output before o_proj."""


def all_tensors(config: Mapping[str, Any], seed: int) -> Iterator[Tensor]:
    """Every tensor of a DeepSeek-like text model with this config.json, experts packed where it says so."""
    hidden, vocab, layers = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]
    yield _dense("model.embed_tokens", (vocab, hidden), 1.0, seed)
    for layer in range(layers):
        yield from _attention(config, f"model.layers.{layer}", seed)
        name = f"model.layers.{layer}.mlp"
        if layer < config["first_k_dense_replace"]:
            inner = config["intermediate_size"]
            yield from _mlp(name, hidden, inner, (_ADDED / (inner * _UNIT_POWER)) ** 0.5, seed)
        else:
            yield from _experts(config, name, seed)
    yield _norm("model.norm", hidden)
    yield _dense("lm_head", (vocab, hidden), hidden**-0.5, seed)


def _attention(config: Mapping[str, Any], layer: str, seed: int) -> Iterator[Tensor]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    q_rank, kv_rank, rope = config["q_lora_rank"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
    yield _norm(f"{layer}.input_layernorm", hidden)
    yield _norm(f"{layer}.post_attention_layernorm", hidden)
    name = f"{layer}.self_attn"
    yield _norm(f"{name}.q_a_layernorm", q_rank)
    yield _norm(f"{name}.kv_a_layernorm", kv_rank)
    yield _dense(f"{name}.q_a_proj", (q_rank, hidden), hidden**-0.5, seed)
    yield _dense(f"{name}.q_b_proj", (heads * (nope + rope), q_rank), q_rank**-0.5, seed)
    yield _dense(f"{name}.kv_a_proj_with_mqa", (kv_rank + rope, hidden), hidden**-0.5, seed)
    yield _dense(f"{name}.kv_b_proj", (heads * (nope + value), kv_rank), kv_rank**-0.5, seed)
    out = heads * value
    yield _dense(f"{name}.o_proj", (hidden, out), (_ADDED / (out * _VALUE_POWER)) ** 0.5, seed)


def _experts(config: Mapping[str, Any], name: str, seed: int) -> Iterator[Tensor]:
    hidden, inner, count = config["hidden_size"], config["moe_intermediate_size"], config["n_routed_experts"]
    chosen, scaling = config["num_experts_per_tok"], config["routed_scaling_factor"]
    down = (_ADDED / (inner * _UNIT_POWER * (scaling**2 / chosen + 1))) ** 0.5
    yield _dense(f"{name}.gate", (count, hidden), hidden**-0.5, seed)
    bias = partial(np.zeros, (count,), "<f4")
    yield Tensor(f"{name}.gate.e_score_correction_bias", (count,), bias, "F32")
    yield from _mlp(f"{name}.shared_experts", hidden, inner, down, seed)
    group = _group(config)
    for expert in range(count):
        yield from _mlp(f"{name}.experts.{expert}", hidden, inner, down, seed, group)


def _group(config: Mapping[str, Any]) -> int | None:
    """Columns of the experts' weights that share a scale; None where they are not quantized."""
    if "quantization_config" not in config:
        return None
    return int(config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"])


def _mlp(name: str, hidden: int, inner: int, down: float, seed: int, group: int | None = None) -> Iterator[Tensor]:
    for projection, shape, std in (
        ("gate_proj", (inner, hidden), hidden**-0.5),
        ("up_proj", (inner, hidden), hidden**-0.5),
        ("down_proj", (hidden, inner), down),
    ):
        if group is None:
            yield _dense(f"{name}.{projection}", shape, std, seed)
        else:
            yield from _packed(f"{name}.{projection}", shape, std, seed, group)


def _packed(name: str, shape: tuple[int, int], std: float, seed: int, group: int) -> Iterator[Tensor]:
    rows, columns = shape
    scale, key = std / _VALUE_STD, f"{seed}/{name}"
    packed = (rows, columns // _IN_A_WORD)
    yield Tensor(f"{name}.weight_packed", packed, partial(bits.words, f"{key}/packed", packed), "I32")
    scales = (rows, columns // group)
    yield Tensor(f"{name}.weight_scale", scales, partial(bits.uniform, f"{key}/scale", scales, _SPREAD * scale, scale))
    yield Tensor(f"{name}.weight_shape", (2,), partial(_shape, shape), "I64")


def _shape(shape: tuple[int, int]) -> NDArray[np.int64]:
    return np.array(shape, dtype="<i8")


def _dense(name: str, shape: tuple[int, int], std: float, seed: int) -> Tensor:
    return Tensor(f"{name}.weight", shape, partial(bits.uniform, f"{seed}/{name}", shape, std))


def _norm(name: str, width: int) -> Tensor:
    return Tensor(f"{name}.weight", (width,), partial(ones, (width,)))
