"""What the states look like: how large each layer's rows are, and how alike the layers are to each other.

Two layers that are almost the same, or one that is far larger than the others, are no fault that a check could refuse,
but the first thing to look at when a draft does not learn. Measured on some samples, in numpy, from the stored files.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from draftkiln.extract import samples
from draftkiln.validate import values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SAMPLES = 16
"""Samples that are looked at: half a gigabyte of Kimi-K2.5's states."""


@dataclass(frozen=True)
class Layer:
    """Euclidean norms of the rows of one slot."""

    layer: int
    norm_min: float
    norm_median: float
    norm_max: float


@dataclass(frozen=True)
class Profile:
    """What some samples look like.

    Attributes:
        samples: that were looked at.
        rows: tokens of these.
        layers: one entry a slot.
        cosines: mean over the rows of the cosine between two slots of a row, `[slots][slots]`.
    """

    samples: int
    rows: int
    layers: tuple[Layer, ...]
    cosines: tuple[tuple[float, ...], ...]

    def content(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def measure(paths: Sequence[Path], layer_ids: Sequence[int]) -> Profile:
    """Profile of the samples that lie in `paths`; slot k of each is the state of layer `layer_ids[k]`."""
    norms: list[np.ndarray[Any, Any]] = []
    total = np.zeros((len(layer_ids), len(layer_ids)))
    for path in paths:
        for states in _states(path):
            products = np.matmul(states, states.transpose(0, 2, 1)).astype(np.float64)
            lengths = np.sqrt(np.diagonal(products, axis1=1, axis2=2))
            sizes = lengths[:, :, None] * lengths[:, None, :]
            total += (products / np.maximum(sizes, np.finfo(np.float64).tiny)).sum(axis=0)
            norms.append(lengths)
    every = np.concatenate(norms)
    layers = tuple(
        Layer(layer, float(column.min()), float(np.median(column)), float(column.max()))
        for layer, column in zip(layer_ids, every.T, strict=True)
    )
    cosines = tuple(tuple(float(value) for value in row) for row in total / len(every))
    return Profile(len(paths), len(every), layers, cosines)


def _states(path: Path) -> Iterator[np.ndarray[Any, Any]]:
    """States `[rows, slots, hidden]` in float32, block by block."""
    entries = samples.header(path)
    if samples.SCALES not in entries:
        for bits in values.blocks(path, entries, "hidden_states", np.dtype("<u2")):
            yield (bits.astype(np.uint32) << 16).view(np.float32)
        return
    scales = np.concatenate(list(values.blocks(path, entries, samples.SCALES, np.dtype("<f4"))))
    at = 0
    for codes in values.blocks(path, entries, "hidden_states", np.dtype("u1")):
        yield _E4M3[codes] * scales[at : at + len(codes)]
        at += len(codes)


def _e4m3() -> np.ndarray[Any, Any]:
    """The value of each code of float8_e4m3fn: 4 bits of exponent with bias 7, 3 of fraction, no infinity."""
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, (codes & 7) / 8
    size = np.where(exponent == 0, fraction * 2.0**-6, (1 + fraction) * 2.0 ** (exponent - 7))
    size[codes & 0x7F == 0x7F] = np.nan  # noqa: PLR2004 - the one code that is no number
    return np.where(codes >> 7, -size, size).astype(np.float32)


_E4M3 = _e4m3()
