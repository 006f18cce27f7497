"""Which GPUs have the kernels that a target needs.

The table is data: a row answers for a model family and a quantisation on a range of compute capabilities. What no row
answers is unknown, which is said, not guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Capability = tuple[int, int]
Answer = Literal["ok", "refuse", "unknown"]
ANY = "*"
_MLA_MODELS = frozenset({"deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25"})


@dataclass(frozen=True)
class Row:
    """An answer for capabilities from `first` to `last`, both included; `*` stands for every family or quantisation."""

    family: str
    quantization: str
    first: Capability
    last: Capability
    answer: Answer
    why: str


TABLE = (
    Row(ANY, ANY, (0, 0), (7, 9), "refuse", "bfloat16 needs compute capability 8.0 or later"),
    Row("mla-sparse", ANY, (12, 0), (12, 9), "refuse", "no sparse MLA backend for this GPU (vLLM #32732, #31936)"),
    Row(
        "mla",
        "compressed-tensors",
        (12, 1),
        (12, 9),
        "refuse",
        "Kimi-K2.5 runs there and repeats garbage (vLLM #40357)",
    ),
    Row("mla", ANY, (12, 0), (12, 9), "unknown", "MLA kernels differ between builds on this GPU (vLLM #18995)"),
    Row("mla", "fp8", (8, 0), (8, 8), "refuse", "block-wise FP8 experts need compute capability 8.9 or later"),
    Row("mla", ANY, (8, 0), (8, 9), "ok", "MLA through Triton; slower than on later GPUs"),
    Row("mla", ANY, (9, 0), (10, 9), "ok", "MLA and expert kernels of its own"),
    Row(ANY, "fp8", (8, 0), (8, 8), "ok", "FP8 weights through Marlin, computed in 16 bits"),
    Row(ANY, "nvfp4", (8, 0), (9, 9), "unknown", "FP4 needs Blackwell; some builds emulate it"),
    Row(ANY, "nvfp4", (10, 0), (12, 9), "ok", "FP4 kernels of its own"),
    # vLLM 0.16.0, model_executor/layers/quantization/mxfp4.py: from 8.0 on through Marlin, 9.0 to 10.x have their own.
    Row(ANY, "mxfp4", (8, 0), (8, 9), "ok", "MXFP4 experts through Marlin"),
    Row(ANY, "mxfp4", (9, 0), (10, 9), "ok", "MXFP4 expert kernels of its own"),
    Row(ANY, "mxfp4", (12, 0), (12, 9), "unknown", "MXFP4 and attention with sinks differ between builds on this GPU"),
    Row(ANY, "compressed-tensors", (8, 0), (12, 9), "ok", "Marlin kernels"),
    Row(ANY, "none", (8, 0), (12, 9), "ok", "bfloat16 kernels"),
)


def family_of(model_type: str) -> str:
    """The family whose kernels a model type needs."""
    if model_type in {"deepseek_v32", "glm_moe_dsa"}:
        return "mla-sparse"
    return "mla" if model_type in _MLA_MODELS else "dense"


def answer(model_type: str, quantization: str | None, capability: Capability) -> tuple[Answer, str]:
    """Whether a GPU has the kernels for a model: the first row that fits, else unknown."""
    family, method = family_of(model_type), quantization or "none"
    for row in TABLE:
        fits = row.family in {ANY, family} and row.quantization in {ANY, method}
        if fits and row.first <= capability <= row.last:
            return row.answer, row.why
    return "unknown", f"nothing is known of {family} models with {method} weights on it"
