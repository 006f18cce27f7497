"""Which type an engine computes in: the target's, unless this machine has no units for it.

A CPU without bfloat16 units multiplies bfloat16 about ten times slower than float32 (10 against 97 GFLOP/s measured on
two AVX2 cores). float32 holds every bfloat16 weight exactly, so states computed in it are the more exact ones; they are
stored in the target's type all the same.
"""

from __future__ import annotations

from pathlib import Path

_UNITS = {"avx512f", "avx512_bf16", "amx_bf16", "bf16"}
"""CPU features, as /proc/cpuinfo names them on x86-64 and aarch64, of which one is enough for bfloat16 at speed."""


def engine_dtype(dtype: str, device: str, features: frozenset[str] | None = None) -> str:
    """Type that an engine on `device` (`cpu` or `cuda`) computes in for a target of type `dtype`.

    Args:
        dtype: `bfloat16`, of the target's weights.
        device: of the stack.
        features: of the CPU; default: this machine's.
    """
    if device != "cpu" or dtype != "bfloat16":
        return dtype
    return dtype if _UNITS & (cpu_features() if features is None else features) else "float32"


def cpu_features() -> frozenset[str]:
    """Feature flags of this machine's first CPU."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()
