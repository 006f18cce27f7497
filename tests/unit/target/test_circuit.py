"""The hand-made weights, run through layer 0 in NumPy: what the engines compute, without an engine."""

import math
import random

import numpy as np
import pytest

from draftkiln.target import language, rope
from draftkiln.target.circuit import XOR_UNITS, Circuit
from draftkiln.target.language import continuation, next_token, parts
from draftkiln.target.layers import GROWTH
from draftkiln.target.shape import LOOKAHEAD, OFFSETS, SHAPES

SHAPE = SHAPES["small"]
CIRCUIT = Circuit(SHAPE, 17, GROWTH)


def floats(patterns):
    return (patterns.astype("<u4") << 16).view("<f4").astype(float)


def normalized(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def rotated(x, positions):
    angles = positions[:, None] * np.array(rope.frequencies(SHAPE.qk_rope_head_dim))
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    turned[..., 1::2] = odd * np.cos(angles) + even * np.sin(angles)
    return turned


def attended(x):
    """Residual stream after layer 0's attention, of DeepSeek's multi-head latent kind."""
    length = len(x)
    nope, values = SHAPE.qk_nope_head_dim, SHAPE.v_head_dim
    h = normalized(x)
    q = normalized(h @ floats(CIRCUIT.q_a()).T) @ floats(CIRCUIT.q_b()).T
    q = q.reshape(length, SHAPE.num_attention_heads, -1).transpose(1, 0, 2)
    latent = h @ floats(CIRCUIT.kv_a()).T
    kv = normalized(latent[:, : SHAPE.kv_lora_rank]) @ floats(CIRCUIT.kv_b()).T
    kv = kv.reshape(length, SHAPE.num_attention_heads, nope + values).transpose(1, 0, 2)
    positions = np.arange(length)
    keys = rotated(latent[:, SHAPE.kv_lora_rank :], positions)
    scores = rotated(q[..., nope:], positions) @ keys.T + q[..., :nope] @ kv[..., :nope].transpose(0, 2, 1)
    scores = scores * rope.softmax_scale(nope + SHAPE.qk_rope_head_dim)
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    out = (shares @ kv[..., nope:]).transpose(1, 0, 2).reshape(length, -1)
    return x + out @ floats(CIRCUIT.o()).T, shares


def written(x):
    """Residual stream after the products of layer 0's MLP."""
    h = normalized(x)
    gate, up = (h @ rows.T for rows in CIRCUIT.gate_and_up())
    return x + (gate / (1 + np.exp(-gate)) * up) @ CIRCUIT.down().T


@pytest.fixture(scope="module")
def run():
    source = random.Random(7)
    tokens = [source.randrange(len(language.TOKENS)) for _ in range(64)]
    table = floats(CIRCUIT.embedding())
    states, shares = attended(table[tokens])
    return tokens, states, shares, written(states)


def test_each_head_looks_its_offset_back_and_nowhere_else(run):
    tokens, _, shares, _ = run
    for head, offset in enumerate(OFFSETS):
        for position in range(len(tokens)):
            assert shares[head, position, max(position - offset, 0)] > 0.95


def test_the_head_names_the_next_token_at_every_position(run):
    tokens, _, _, states = run
    logits = states @ floats(CIRCUIT.head()).T
    best = np.sort(logits, -1)
    assert [int(token) for token in logits.argmax(-1)] == [next_token(tokens[: end + 1]) for end in range(len(tokens))]
    assert (best[:, -1] - best[:, -2]).min() > 4


def test_each_plan_holds_one_of_the_next_four_tokens(run):
    tokens, _, _, states = run
    ahead = continuation(tokens, LOOKAHEAD)
    first = SHAPE.blocks.plans[0]
    head = floats(CIRCUIT.head())[:256, first.part(0, 1)]
    for plan, token in zip(SHAPE.blocks.plans, ahead, strict=True):
        assert int((head @ states[-1, plan.part(0, 1)]).argmax()) == token


def test_the_plans_need_more_than_the_current_token(run):
    _, before, _, after = run
    plan = SHAPE.blocks.plans[0].part(1, 2)
    assert abs(before[:, plan]).max() < 1e-9
    assert abs(abs(after[:, plan]) - 1).max() < 0.1


@pytest.mark.parametrize("name", SHAPES)
def test_positional_scores_fall_from_the_wanted_offset_up_to_the_longest_text(name):
    shape = SHAPES[name]
    shares = np.zeros(shape.qk_rope_head_dim // 2)
    for pair, share in shape.rope_weights:
        shares[pair] = share
    assert math.isclose(shares.sum(), 1)
    angles = np.outer(np.arange(shape.max_position_embeddings), rope.frequencies(shape.qk_rope_head_dim))
    score = np.cos(angles) @ shares
    assert (score[0] - score[1:]).min() > 0.1
    assert np.diff(score[: max(OFFSETS) + 1]).max() < -0.04


def test_there_is_room_for_random_units_beside_the_products():
    assert all(shape.intermediate_size > XOR_UNITS for shape in SHAPES.values())


def test_special_tokens_have_parts_within_range():
    assert all(0 <= value < 16 for token in range(256, 288) for value in parts(token))
