"""The shapes that `make-target` can write, and how each divides its residual stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

GENERATION = 1
"""Goes up when the same seed starts to give other bytes."""
BITS = 4
"""Bits of a token's b-part; its a-part has `1 << BITS` values."""
LOOKAHEAD = 4
"""How many next tokens a state of the target carries, one plan block each."""
OFFSETS = (1, 2, 3, 4, 5, 6, 7, 8)
"""Positions back that the heads of layer 0 look, one offset a head."""
ROPE_THETA = 50000.0
ROPE_FACTOR = 2.0
ROPE_ORIGINAL = 4096
"""Yarn as Kimi has it (theta 50000, original length 4096, mscale 1), only with a smaller factor."""


_SHARES = (16, 16, 32, *(32,) * LOOKAHEAD, 64)
"""Shares of the coordinates: constant, own, taps, one plan for each token ahead, free."""


@dataclass(frozen=True)
class Block:
    """A run of coordinates of the residual stream: `[start, start + width)`."""

    start: int
    width: int

    def part(self, index: int, count: int) -> slice:
        """Coordinates of part `index` when the block is cut into `count` equal parts."""
        size = self.width // count
        return slice(self.start + index * size, self.start + (index + 1) * size)


@dataclass(frozen=True)
class Blocks:
    """What the coordinates of the residual stream hold.

    `constant`: the same for every token (the positional heads' input). `own`: bits of the token itself. `taps`: bits of
    earlier tokens, written by layer 0's heads. `plans`: codes of the next tokens, one block each. `free`: where every
    layer writes vectors of its own, so that the states of neighbouring layers differ.
    """

    constant: Block
    own: Block
    taps: Block
    plans: tuple[Block, ...]
    free: Block


@dataclass(frozen=True)
class Shape:
    """Sizes of a made target; the names are those of its config.json."""

    name: str
    hidden_size: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    intermediate_size: int
    moe_intermediate_size: int
    rope_weights: tuple[tuple[int, float], ...]
    """Share of each rotary pair in the positional heads' scores (found by a linear program: the largest gap between the
    wanted offset and every other one up to `max_position_embeddings`, falling on both sides of it)."""
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    n_routed_experts: int = 4
    max_position_embeddings: int = 8192
    vocab_size: int = 288
    vision_hidden_size: int = 64

    @cached_property
    def blocks(self) -> Blocks:
        """The blocks of the residual stream, `_SHARES` of the hidden size."""
        unit = self.hidden_size // sum(_SHARES)
        starts = [sum(_SHARES[:index]) for index in range(len(_SHARES))]
        runs = [Block(start * unit, share * unit) for start, share in zip(starts, _SHARES, strict=True)]
        return Blocks(runs[0], runs[1], runs[2], tuple(runs[3:-1]), runs[-1])


SHAPES = {
    "kimi-tiny": Shape(
        name="kimi-tiny",
        hidden_size=7168,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        intermediate_size=128,
        moe_intermediate_size=32,
        rope_weights=(
            (0, 0.18), (2, 0.27), (3, 0.38), (4, 0.03), (6, 0.02), (8, 0.02),
            (13, 0.02), (14, 0.02), (15, 0.02), (17, 0.02), (18, 0.02),
        ),
    ),
    "small": Shape(
        name="small",
        hidden_size=256,
        q_lora_rank=64,
        kv_lora_rank=64,
        qk_nope_head_dim=32,
        qk_rope_head_dim=32,
        v_head_dim=32,
        intermediate_size=64,
        moe_intermediate_size=32,
        rope_weights=(
            (0, 0.14), (1, 0.44), (2, 0.25), (3, 0.04), (4, 0.02), (5, 0.03), (6, 0.03), (7, 0.03), (10, 0.02),
        ),
    ),
}  # fmt: skip
