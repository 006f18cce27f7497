"""The hand-made weights of a made target: embeddings, layer 0 and the head, which compute `language.next_token`.

A bit is written as +1 (0) or -1 (1) along a run of random signs, so that XOR is a product. Layer 0's heads look 1 to 8
positions back through their rotary part alone and copy the bits of the token there; its MLP multiplies pairs of them
(two SwiGLU units give an exact product: silu(x)y + silu(-x)(-y) = xy) into the plan blocks, whose a-halves the
embedding fills. The head reads the first plan. All later layers only add to the free block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from draftkiln.target import bits
from draftkiln.target.language import FAR, NEAR, VALUES, parts, successor
from draftkiln.target.rope import frequencies, softmax_scale
from draftkiln.target.shape import BITS, LOOKAHEAD, OFFSETS, Block, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from draftkiln.target.bits import Bfloat16

    Floats = NDArray[np.float64]

XOR_UNITS = LOOKAHEAD * BITS * 2
"""Units of layer 0's MLP that multiply bits."""
_POSITION_SCORE = 100.0
"""Attention score of a positional head on its offset; the next best is 12 lower (`Shape.rope_weights`)."""
_GATE = 4.0
_A_LOGIT, _B_LOGIT = 8.0, 4.0
"""Logits for a right a-part and for each right bit: one wrong part or bit costs 8."""


@dataclass(frozen=True)
class Circuit:
    """Hand-made weights for one shape and seed; each property is a whole tensor as bfloat16 bit patterns."""

    shape: Shape
    seed: int
    growth: float
    """Factor by which each layer lets the mean square of the residual stream grow."""

    @cached_property
    def code(self) -> Floats:
        """Sign of each coordinate `[hidden]`; plans share one pattern."""
        code = bits.signs(f"{self.seed}/code", (self.shape.hidden_size,))
        for plan in self.shape.blocks.plans[1:]:
            code[plan.part(0, 1)] = code[self.shape.blocks.plans[0].part(0, 1)]
        return code

    def embedding(self) -> Bfloat16:
        """`[vocab, hidden]`: constant, own bits, a-halves of the plans, and a random vector in the free block."""
        blocks, code = self.shape.blocks, self.code
        table = np.zeros((self.shape.vocab_size, self.shape.hidden_size))
        free = blocks.free.part(0, 1)
        table[:, free] = bits.signs(f"{self.seed}/embedding", (self.shape.vocab_size, blocks.free.width))
        table[:, blocks.constant.part(0, 1)] = code[blocks.constant.part(0, 1)]
        for token in range(self.shape.vocab_size):
            a, b = parts(token)
            for bit, sign in enumerate(_bit_signs(b)):
                own = blocks.own.part(bit, BITS)
                table[token, own] = sign * code[own]
            for plan in blocks.plans:
                a = successor(a)
                table[token, plan.part(0, 2)] = self._a_code(a, plan)
        return bits.bfloat16(table)

    def head(self) -> Bfloat16:
        """`[vocab, hidden]`: rows of the words read the first plan; all other tokens have logit 0."""
        plan, code = self.shape.blocks.plans[0], self.code
        amplitude = self.growth ** (-self.shape.num_hidden_layers / 2)
        table = np.zeros((self.shape.vocab_size, self.shape.hidden_size))
        for token in range(VALUES * VALUES):
            a, b = parts(token)
            half = plan.part(0, 2)
            table[token, half] = self._a_code(a, plan) * (_A_LOGIT / ((half.stop - half.start) * amplitude))
            for bit, sign in enumerate(_bit_signs(b)):
                run = _b_run(plan, bit)
                table[token, run] = sign * code[run] * (_B_LOGIT / ((run.stop - run.start) * amplitude))
        return bits.bfloat16(table)

    def q_a(self) -> Bfloat16:
        """`[q_lora, hidden]`: the constant, read with random signs."""
        return bits.bfloat16(self._q_signs[:, None] * self._reader(self.shape.blocks.constant, 0, 1, self._embedded))

    def q_b(self) -> Bfloat16:
        """`[heads * (nope + rope), q_lora]`: head h asks for the position `OFFSETS[h]` back, through rope alone."""
        rows = np.zeros((self.shape.num_attention_heads, self.shape.qk_nope_head_dim + self.shape.qk_rope_head_dim))
        angles = frequencies(self.shape.qk_rope_head_dim)
        for head, offset in enumerate(OFFSETS):
            for pair, strength in self._pairs():
                even = self.shape.qk_nope_head_dim + 2 * pair
                rows[head, even] = strength * math.cos(angles[pair] * offset)
                rows[head, even + 1] = -strength * math.sin(angles[pair] * offset)
        return bits.bfloat16(rows.reshape(-1, 1) * self._q_signs / self.shape.q_lora_rank)

    def kv_a(self) -> Bfloat16:
        """`[kv_lora + rope, hidden]`: own bits in turn, then a constant key for the rotary part."""
        shape = self.shape
        rows = np.zeros((shape.kv_lora_rank + shape.qk_rope_head_dim, shape.hidden_size))
        for bit in range(BITS):
            rows[bit : shape.kv_lora_rank : BITS] = self._reader(shape.blocks.own, bit, BITS, self._embedded)
        for pair, strength in self._pairs():
            rows[shape.kv_lora_rank + 2 * pair] = strength * self._reader(shape.blocks.constant, 0, 1, self._embedded)
        return bits.bfloat16(rows)

    def kv_b(self) -> Bfloat16:
        """`[heads * (nope + v), kv_lora]`: no key part; values are the bits in turn, averaged over their copies."""
        shape = self.shape
        rows = np.zeros((shape.num_attention_heads, shape.qk_nope_head_dim + shape.v_head_dim, shape.kv_lora_rank))
        for bit in range(BITS):
            rows[:, shape.qk_nope_head_dim + bit :: BITS, bit::BITS] = BITS / shape.kv_lora_rank
        return bits.bfloat16(rows.reshape(-1, shape.kv_lora_rank))

    def o(self) -> Bfloat16:
        """`[hidden, heads * v]`: the bits of head h into its taps."""
        shape = self.shape
        rows = np.zeros((shape.hidden_size, shape.num_attention_heads, shape.v_head_dim))
        for head, offset in enumerate(OFFSETS):
            for bit in range(BITS):
                run = self._tap(offset, bit)
                rows[run, head, bit::BITS] = self.code[run, None] * (BITS / shape.v_head_dim)
        return bits.bfloat16(rows.reshape(shape.hidden_size, -1))

    def gate_and_up(self) -> tuple[Floats, Floats]:
        """Each `[XOR_UNITS, hidden]`: the far and the near bit of every product, in pairs of opposite sign."""
        gate, up = np.zeros((2, XOR_UNITS, self.shape.hidden_size))
        for unit, (ahead, bit) in enumerate(_products()):
            for row, sign in ((2 * unit, 1.0), (2 * unit + 1, -1.0)):
                gate[row] = sign * _GATE * self._bit_reader(FAR - ahead, bit)
                up[row] = sign * self._bit_reader(NEAR - ahead, bit)
        return gate, up

    def down(self) -> Floats:
        """`[hidden, XOR_UNITS]`: every product into the b-half of its plan."""
        rows = np.zeros((self.shape.hidden_size, XOR_UNITS))
        for unit, (ahead, bit) in enumerate(_products()):
            run = _b_run(self.shape.blocks.plans[ahead], bit)
            rows[run, 2 * unit : 2 * unit + 2] = self.code[run, None] / _GATE
        return rows

    @property
    def _embedded(self) -> float:
        """Mean square of the embeddings: the share of coordinates that are +-1 then, before taps and b-halves are."""
        return self._attended - self.shape.blocks.taps.width / self.shape.hidden_size

    @property
    def _attended(self) -> float:
        """Mean square before layer 0's MLP fills the b-halves."""
        halves = sum(plan.width for plan in self.shape.blocks.plans) / 2
        return 1 - halves / self.shape.hidden_size

    @cached_property
    def _q_signs(self) -> Floats:
        return bits.signs(f"{self.seed}/q", (self.shape.q_lora_rank,))

    def _a_code(self, a: int, plan: Block) -> Floats:
        half = plan.part(0, 2)
        row = np.array([(-1.0) ** (a & column).bit_count() for column in range(VALUES)])  # a row of a Hadamard matrix
        return np.tile(row, (half.stop - half.start) // VALUES) * self.code[half]

    def _pairs(self) -> Iterator[tuple[int, float]]:
        scale = softmax_scale(self.shape.qk_nope_head_dim + self.shape.qk_rope_head_dim)
        for pair, share in self.shape.rope_weights:
            yield pair, math.sqrt(share * _POSITION_SCORE / scale)

    def _tap(self, offset: int, bit: int) -> slice:
        return self.shape.blocks.taps.part(OFFSETS.index(offset) * BITS + bit, len(OFFSETS) * BITS)

    def _bit_reader(self, offset: int, bit: int) -> Floats:
        if offset == 0:
            return self._reader(self.shape.blocks.own, bit, BITS, self._attended)
        return self._reader(
            self.shape.blocks.taps, OFFSETS.index(offset) * BITS + bit, len(OFFSETS) * BITS, self._attended
        )

    def _reader(self, block: Block, index: int, count: int, mean_square: float) -> Floats:
        """`[hidden]`: gives the sign written in a part of `block`, read from the normalized residual stream."""
        run = block.part(index, count)
        row = np.zeros(self.shape.hidden_size)
        row[run] = self.code[run] * (math.sqrt(mean_square) / (run.stop - run.start))
        return row


def _bit_signs(b: int) -> list[float]:
    return [-1.0 if b >> bit & 1 else 1.0 for bit in range(BITS)]


def _b_run(plan: Block, bit: int) -> slice:
    return plan.part(BITS + bit, 2 * BITS)


def _products() -> Iterator[tuple[int, int]]:
    for ahead in range(LOOKAHEAD):
        for bit in range(BITS):
            yield ahead, bit
