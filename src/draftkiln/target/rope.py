"""Yarn's rotary frequencies, as vLLM and transformers compute them for the DeepSeek family.

Source: https://arxiv.org/abs/2309.00071, section 3.2; the float steps of transformers' `_compute_yarn_parameters`.
"""

from __future__ import annotations

import math

from draftkiln.target.shape import ROPE_FACTOR, ROPE_ORIGINAL, ROPE_THETA

_BETA_FAST, _BETA_SLOW = 32, 1


def parameters() -> dict[str, float | int | str]:
    """`rope_scaling` of config.json."""
    return {
        "type": "yarn",
        "factor": ROPE_FACTOR,
        "original_max_position_embeddings": ROPE_ORIGINAL,
        "beta_fast": float(_BETA_FAST),
        "beta_slow": float(_BETA_SLOW),
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }


def frequencies(dim: int) -> list[float]:
    """Angle per position of each rotary pair, `dim // 2` of them."""
    low = max(math.floor(_correction(_BETA_FAST, dim)), 0)
    high = min(math.ceil(_correction(_BETA_SLOW, dim)), dim - 1)
    angles = []
    for pair in range(dim // 2):
        angle = ROPE_THETA ** (-2 * pair / dim)
        stretched = min(max((pair - low) / (high - low), 0.0), 1.0)
        angles.append(angle * (1 - stretched) + angle / ROPE_FACTOR * stretched)
    return angles


def softmax_scale(head_dim: int) -> float:
    """Factor on attention scores: `head_dim ** -0.5` times yarn's mscale, squared."""
    mscale = 0.1 * math.log(ROPE_FACTOR) + 1.0
    return mscale * mscale / math.sqrt(head_dim)


def _correction(rotations: float, dim: int) -> float:
    return dim * math.log(ROPE_ORIGINAL / (rotations * 2 * math.pi)) / (2 * math.log(ROPE_THETA))
