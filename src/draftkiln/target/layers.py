"""All tensors of a made target, under the names that Kimi-K2.5's checkpoints use."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from draftkiln.target import bits
from draftkiln.target.circuit import XOR_UNITS, Circuit
from draftkiln.target.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from draftkiln.target.bits import Bfloat16
    from draftkiln.target.shape import Shape

    Build = Callable[[], Bfloat16]

GROWTH = 1.17
"""Growth of the residual stream's mean square from layer to layer: neighbours have cosine 1.17 ** -0.5 = 0.925."""
_MLP_SHARE = 0.8
"""Part of a later layer's output that its MLP writes; attention writes the rest."""
_UNIT_POWER = 0.356
"""Mean square of silu(g) * u for independent normal g, u of variance 1."""
_VALUE_POWER = 0.2
"""Mean square of a later layer's attention output before o_proj (measured: values averaged over the context)."""
ROUTED_SCALING = 2.827
_PREFIX = "language_model."


def all_tensors(shape: Shape, seed: int) -> Iterator[Tensor]:
    """Every tensor of the checkpoint, in file order."""
    circuit = Circuit(shape, seed, GROWTH)
    hidden, vocab = shape.hidden_size, shape.vocab_size
    yield Tensor(f"{_PREFIX}model.embed_tokens.weight", (vocab, hidden), circuit.embedding)
    yield from _first_layer(shape, seed, circuit)
    for layer in range(1, shape.num_hidden_layers):
        yield from _later_layer(shape, f"{seed}/{layer}", layer)
    norm = partial(bits.uniform, f"{seed}/norm", (hidden,), 0.125, 1.0)
    yield Tensor(f"{_PREFIX}model.norm.weight", (hidden,), norm)
    yield Tensor(f"{_PREFIX}lm_head.weight", (vocab, hidden), circuit.head)


def _first_layer(shape: Shape, seed: int, circuit: Circuit) -> Iterator[Tensor]:
    yield from _norms(shape, 0)
    hidden, inner = shape.hidden_size, shape.intermediate_size
    yield from _attention(shape, 0, (circuit.q_a, circuit.q_b, circuit.kv_a, circuit.kv_b, circuit.o))
    spare = inner - XOR_UNITS
    free = shape.blocks.free.part(0, 1)

    def gate_or_up(which: int) -> Bfloat16:
        rows = bits.uniform(f"{seed}/0/{which}", (inner, hidden), hidden**-0.5)
        rows[:XOR_UNITS] = bits.bfloat16(circuit.gate_and_up()[which])
        return rows

    def down() -> Bfloat16:
        rows = np.zeros((hidden, inner), dtype="<u2")
        rows[:, :XOR_UNITS] = bits.bfloat16(circuit.down())
        std = math.sqrt(_added(shape, 0) / (spare * _UNIT_POWER))
        rows[free, XOR_UNITS:] = bits.uniform(f"{seed}/0/down", (shape.blocks.free.width, spare), std)
        return rows

    name = f"{_PREFIX}model.layers.0.mlp"
    yield Tensor(f"{name}.gate_proj.weight", (inner, hidden), partial(gate_or_up, 0))
    yield Tensor(f"{name}.up_proj.weight", (inner, hidden), partial(gate_or_up, 1))
    yield Tensor(f"{name}.down_proj.weight", (hidden, inner), down)


def _later_layer(shape: Shape, key: str, layer: int) -> Iterator[Tensor]:
    yield from _norms(shape, layer)
    hidden, heads = shape.hidden_size, shape.num_attention_heads
    kv_rows = shape.kv_lora_rank + shape.qk_rope_head_dim
    qk = shape.qk_nope_head_dim + shape.qk_rope_head_dim
    values = heads * shape.v_head_dim
    o_std = math.sqrt((1 - _MLP_SHARE) * _added(shape, layer) / (values * _VALUE_POWER))
    yield from _attention(
        shape,
        layer,
        (
            partial(bits.uniform, f"{key}/q_a", (shape.q_lora_rank, hidden), hidden**-0.5),
            partial(bits.uniform, f"{key}/q_b", (heads * qk, shape.q_lora_rank), 0.7 * shape.q_lora_rank**-0.5),
            partial(bits.uniform, f"{key}/kv_a", (kv_rows, hidden), hidden**-0.5),
            partial(
                bits.uniform,
                f"{key}/kv_b",
                (heads * (shape.qk_nope_head_dim + shape.v_head_dim), shape.kv_lora_rank),
                shape.kv_lora_rank**-0.5,
            ),
            partial(_into_free, shape, f"{key}/o", values, o_std),
        ),
    )
    yield from _experts(shape, key, layer)


def _experts(shape: Shape, key: str, layer: int) -> Iterator[Tensor]:
    hidden, inner, count = shape.hidden_size, shape.moe_intermediate_size, shape.n_routed_experts
    name = f"{_PREFIX}model.layers.{layer}.mlp"
    gate = partial(bits.uniform, f"{key}/gate", (count, hidden), 0.5 * hidden**-0.5)
    yield Tensor(f"{name}.gate.weight", (count, hidden), gate)
    yield Tensor(f"{name}.gate.e_score_correction_bias", (count,), partial(np.zeros, (count,), "<f4"), "F32")
    power = inner * _UNIT_POWER * (count * (ROUTED_SCALING / count) ** 2 + 1)  # the routed experts and the shared one
    std = math.sqrt(_MLP_SHARE * _added(shape, layer) / power)
    for expert in (*(f"experts.{index}" for index in range(count)), "shared_experts"):
        for half in ("gate_proj", "up_proj"):
            rows = partial(bits.uniform, f"{key}/{expert}/{half}", (inner, hidden), hidden**-0.5)
            yield Tensor(f"{name}.{expert}.{half}.weight", (inner, hidden), rows)
        down = partial(_into_free, shape, f"{key}/{expert}/down", inner, std)
        yield Tensor(f"{name}.{expert}.down_proj.weight", (hidden, inner), down)


def _added(shape: Shape, layer: int) -> float:
    """Mean square that `layer` adds in the free block, so that the whole stream grows as `GROWTH`."""
    whole = (GROWTH - 1) * GROWTH**layer
    return whole * shape.hidden_size / shape.blocks.free.width


def _into_free(shape: Shape, key: str, width: int, std: float) -> Bfloat16:
    rows = np.zeros((shape.hidden_size, width), dtype="<u2")
    rows[shape.blocks.free.part(0, 1)] = bits.uniform(key, (shape.blocks.free.width, width), std)
    return rows


def _norms(shape: Shape, layer: int) -> Iterator[Tensor]:
    name = f"{_PREFIX}model.layers.{layer}"
    for norm, width in (
        ("input_layernorm", shape.hidden_size),
        ("post_attention_layernorm", shape.hidden_size),
        ("self_attn.q_a_layernorm", shape.q_lora_rank),
        ("self_attn.kv_a_layernorm", shape.kv_lora_rank),
    ):
        yield Tensor(f"{name}.{norm}.weight", (width,), partial(ones, (width,)))


def _attention(shape: Shape, layer: int, builds: tuple[Build, ...]) -> Iterator[Tensor]:
    hidden, heads = shape.hidden_size, shape.num_attention_heads
    kv_rows = shape.kv_lora_rank + shape.qk_rope_head_dim
    shapes = {
        "q_a_proj": (shape.q_lora_rank, hidden),
        "q_b_proj": (heads * (shape.qk_nope_head_dim + shape.qk_rope_head_dim), shape.q_lora_rank),
        "kv_a_proj_with_mqa": (kv_rows, hidden),
        "kv_b_proj": (heads * (shape.qk_nope_head_dim + shape.v_head_dim), shape.kv_lora_rank),
        "o_proj": (hidden, heads * shape.v_head_dim),
    }
    name = f"{_PREFIX}model.layers.{layer}.self_attn"
    for (projection, size), build in zip(shapes.items(), builds, strict=True):
        yield Tensor(f"{name}.{projection}.weight", size, build)


def ones(size: tuple[int, ...]) -> Bfloat16:
    """Bit patterns of bfloat16 ones."""
    return np.full(size, 0x3F80, dtype="<u2")
