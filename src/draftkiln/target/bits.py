"""Random bfloat16 tensors with the same bytes on every machine.

Bits come from Philox, a counter-based generator whose stream NumPy promises to keep; values are made from them by a
table of 65536 entries and IEEE elementwise steps only, and rounded to bfloat16 on integers. No BLAS, no libm.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bfloat16 = NDArray[np.uint16]
    """Bit patterns of bfloat16 numbers."""

_LEVELS = 1 << 16


def bfloat16(values: NDArray[np.float64]) -> Bfloat16:
    """Bit patterns of finite `values` rounded to bfloat16, ties to even."""
    single = np.asarray(values, dtype="<f4").view("<u4").astype("<u4")
    rounded = (single + np.uint32(0x7FFF) + ((single >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return rounded.astype("<u2")


def uniform(key: str, shape: tuple[int, ...], std: float, mean: float = 0.0) -> Bfloat16:
    """Uniformly distributed bfloat16 numbers of `shape`; `key` names the stream."""
    half_width = std * 1.7320508075688772  # sqrt(3): a uniform variable of this half width has standard deviation std
    steps = (np.arange(_LEVELS, dtype=np.float64) + 0.5) / (_LEVELS / 2) - 1.0
    table = bfloat16(mean + half_width * steps)
    return np.take(table, _raw(key, shape))


def words(key: str, shape: tuple[int, ...]) -> NDArray[np.int32]:
    """Random 32-bit words of `shape`; `key` names the stream."""
    count = int(np.prod(shape))
    return _random(key, (count + 1) // 2).view("<i4")[:count].reshape(shape)


def signs(key: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Random +1.0 and -1.0 of `shape`."""
    return 1.0 - 2.0 * (_raw(key, shape) >> np.uint16(15)).astype(np.float64)


def _raw(key: str, shape: tuple[int, ...]) -> NDArray[np.uint16]:
    count = int(np.prod(shape))
    return _random(key, (count + 3) // 4).view("<u2")[:count].reshape(shape)


def _random(key: str, count: int) -> NDArray[np.uint64]:
    generator = np.random.Philox(key=int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "little"))
    return generator.random_raw(count).astype("<u8", copy=False)
