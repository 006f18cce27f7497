"""The value pass: states that are finite, not constant, not zero, and different from slot to slot.

bfloat16 is read as the upper half of float32, so numpy is enough; rows are read in blocks, so memory stays flat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from draftkiln.extract import samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_BLOCK_BYTES = 8 << 20
_SAME_SLOTS = 0.999


@dataclass
class _Slot:
    """What is counted of one slot while its rows pass by."""

    bad: int = 0
    first_bad: int = -1
    zero_rows: int = 0
    longest_zero_run: int = 0
    zero_run: int = 0
    same_as_first: int = 0
    low: float = np.inf
    high: float = -np.inf


def problems(path: Path, token_ids: Sequence[int], layer_ids: Sequence[int]) -> list[str]:
    """What is wrong with the values of one sample; empty when nothing is.

    Args:
        path: of the sample's file.
        token_ids: of the dataset's row, which the file must echo.
        layer_ids: id of each slot.
    """
    entries = samples.header(path)
    found = []
    echoed = np.concatenate(list(_blocks(path, entries, "token_ids", np.dtype("<i8"))))
    if echoed.tolist() != list(token_ids):
        first = (
            int(np.argmax(echoed != np.asarray(token_ids)))
            if len(echoed) == len(token_ids)
            else min(len(echoed), len(token_ids))
        )
        found.append(f"token_ids differ from the dataset's row from position {first} on: states of another sample")
    counts = [_Slot() for _ in layer_ids]
    cosines = np.zeros(max(len(layer_ids) - 1, 0))
    rows = 0
    first_rows: np.ndarray | None = None
    for block in _blocks(path, entries, "hidden_states", np.dtype("<u2")):
        values = (block.astype(np.uint32) << 16).view(np.float32)
        first_rows = values[0].copy() if first_rows is None else first_rows
        _count(values, rows, counts, first_rows)
        cosines += _neighbour_cosines(values)
        rows += len(values)
    varied = len(set(token_ids)) > 1
    for layer, slot in zip(layer_ids, counts, strict=True):
        found.extend(_slot_problems(layer, slot, rows, varied=varied))
    if not found:
        for left, right, cosine in zip(layer_ids[:-1], layer_ids[1:], cosines / max(rows, 1), strict=True):
            if cosine > _SAME_SLOTS:
                found.append(
                    f"layers {left} and {right} are the same (mean cosine {cosine:.5f}): one was captured twice"
                )
    return found


def _blocks(path: Path, entries: dict[str, dict[str, list[int]]], name: str, dtype: np.dtype) -> Iterator[np.ndarray]:
    """Rows of a tensor, block by block."""
    shape, (begin, _) = entries[name]["shape"], entries[name]["data_offsets"]
    with path.open("rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little") + begin
        row = int(np.prod(shape[1:], dtype=np.int64))
        step = max(1, _BLOCK_BYTES // (row * dtype.itemsize))
        file.seek(start)
        for at in range(0, shape[0], step):
            count = min(step, shape[0] - at)
            yield np.fromfile(file, dtype=dtype, count=count * row).reshape(count, *shape[1:])


def _count(values: np.ndarray, offset: int, counts: list[_Slot], first_rows: np.ndarray) -> None:
    finite = np.isfinite(values)
    for number, slot in enumerate(counts):
        rows = values[:, number]
        good = finite[:, number]
        bad = int((~good).sum())
        if bad and not slot.bad:
            slot.first_bad = offset + int(np.argmax((~good).any(axis=1)))
        slot.bad += bad
        zero = np.logical_not(rows.any(axis=1))
        slot.zero_rows += int(zero.sum())
        for row in zero.tolist():
            slot.zero_run = slot.zero_run + 1 if row else 0
            slot.longest_zero_run = max(slot.longest_zero_run, slot.zero_run)
        slot.same_as_first += int((rows == first_rows[number]).all(axis=1).sum())
        kept = rows[good]
        if kept.size:
            slot.low, slot.high = min(slot.low, float(kept.min())), max(slot.high, float(kept.max()))


def _neighbour_cosines(values: np.ndarray) -> np.ndarray:
    """Sum over rows of the cosine between each slot and the next."""
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    # Each row is scaled to at most 1 first: squares of large bfloat16 values leave float32.
    values = values / np.maximum(np.abs(values).max(axis=2, keepdims=True), np.finfo(np.float32).tiny)
    norms = np.linalg.norm(values, axis=2)
    dots = np.einsum("tkh,tkh->tk", values[:, :-1], values[:, 1:])
    total: np.ndarray = (dots / np.maximum(norms[:, :-1] * norms[:, 1:], 1e-30)).sum(axis=0)
    return total


def _slot_problems(layer: int, slot: _Slot, rows: int, *, varied: bool) -> Iterator[str]:
    if slot.bad:
        yield f"layer {layer}: {slot.bad} values are not finite, the first in row {slot.first_bad}"
    elif slot.zero_rows == rows:
        yield f"layer {layer}: all zero"
    elif slot.zero_rows:
        yield f"layer {layer}: {slot.zero_rows} rows are zero, {slot.longest_zero_run} of them in one run"
    elif slot.low == slot.high:
        yield f"layer {layer}: every value is {slot.low}"
    elif varied and slot.same_as_first == rows:
        yield f"layer {layer}: all {rows} rows are equal although the tokens differ"
