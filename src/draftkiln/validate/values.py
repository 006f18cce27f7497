"""The value pass: states that are finite, not constant, not zero, not repeated, and different from layer to layer.

Rows are read in blocks and judged by their bits, so memory stays flat and no type needs converting. A row that was
copied, left over or captured twice is bit for bit another row; honest rows never are, not even of neighbouring layers
of a deep model or of tokens that go to the same experts. So no threshold stands between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from draftkiln.extract import samples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_BLOCK_BYTES = 8 << 20
_SAME_SHARE = 0.01
"""Share of the rows from which on two layers count as one: one row may be carried through unchanged."""


@dataclass(frozen=True)
class _Coding:
    """How the bits of a type are told apart: sign cleared, those at or above `first_bad` are not finite."""

    dtype: np.dtype[Any]
    magnitude: int
    first_bad: int


_CODINGS = {
    "BF16": _Coding(np.dtype("<u2"), 0x7FFF, 0x7F80),
    "F8_E4M3": _Coding(np.dtype("u1"), 0x7F, 0x7F),
}


@dataclass(frozen=True)
class _Rows:
    """What is kept of the rows of all slots, `[tokens, slots]` each."""

    bad: np.ndarray[Any, Any]
    """Values that are not finite."""
    zero: np.ndarray[Any, Any]
    constant: np.ndarray[Any, Any]
    """Whether all values are one."""
    print: np.ndarray[Any, Any]
    """xxh3_64 of the bits."""


def problems(path: Path, token_ids: Sequence[int], layer_ids: Sequence[int]) -> list[str]:
    """What is wrong with the values of one sample; empty when nothing is.

    Args:
        path: of the sample's file.
        token_ids: of the dataset's row, which the file must echo.
        layer_ids: id of each slot.
    """
    entries = samples.header(path)
    found = [*_echo_problems(path, entries, np.asarray(token_ids)), *_scale_problems(path, entries)]
    rows = _read(path, entries)
    bad_slots = set()
    for number, layer in enumerate(layer_ids):
        texts = list(_slot_problems(rows, number, np.asarray(token_ids)))
        found.extend(f"layer {layer}: {text}" for text in texts)
        if texts:
            bad_slots.add(number)
    good = [number for number in range(len(layer_ids)) if number not in bad_slots]
    found.extend(_pair_problems(rows, good, layer_ids))
    return found


def _echo_problems(path: Path, entries: dict[str, Any], wanted: np.ndarray[Any, Any]) -> Iterator[str]:
    echoed = np.concatenate(list(blocks(path, entries, "token_ids", np.dtype("<i8"))))
    if not np.array_equal(echoed, wanted):
        common = min(len(echoed), len(wanted))
        differ = np.flatnonzero(echoed[:common] != wanted[:common])
        first = int(differ[0]) if len(differ) else common
        yield f"token_ids differ from the dataset's row from position {first} on: states of another sample"


def _scale_problems(path: Path, entries: dict[str, Any]) -> Iterator[str]:
    if samples.SCALES not in entries:
        return
    scales = np.concatenate(list(blocks(path, entries, samples.SCALES, np.dtype("<f4")))).ravel()
    bad = np.flatnonzero(~(np.isfinite(scales) & (scales > 0)))
    if len(bad):
        yield f"{len(bad)} scales are not finite and above 0, the first is of row {bad[0]}"


def blocks(path: Path, entries: dict[str, Any], name: str, dtype: np.dtype[Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Rows of the tensor `name` of a file whose header is `entries`, block by block, so that memory stays flat."""
    shape, (begin, _) = entries[name]["shape"], entries[name]["data_offsets"]
    with path.open("rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little") + begin
        row = int(np.prod(shape[1:], dtype=np.int64))
        step = max(1, _BLOCK_BYTES // (row * dtype.itemsize))
        file.seek(start)
        for at in range(0, shape[0], step):
            count = min(step, shape[0] - at)
            yield np.fromfile(file, dtype=dtype, count=count * row).reshape(count, *shape[1:])


def _read(path: Path, entries: dict[str, Any]) -> _Rows:
    coding = _CODINGS[entries["hidden_states"]["dtype"]]
    parts = [_judge(block, coding) for block in blocks(path, entries, "hidden_states", coding.dtype)]
    return _Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _judge(block: np.ndarray[Any, Any], coding: _Coding) -> tuple[np.ndarray[Any, Any], ...]:
    magnitudes = block & coding.dtype.type(coding.magnitude)
    highest = magnitudes.max(axis=2)
    bad = np.zeros(highest.shape, dtype=np.int32)
    for row, slot in np.argwhere(highest >= coding.first_bad):
        bad[row, slot] = (magnitudes[row, slot] >= coding.first_bad).sum()
    constant = (block == block[:, :, :1]).all(axis=2) & (block.shape[2] > 1)
    data, size = block.data.cast("B"), block.shape[2] * block.itemsize
    prints = [xxhash.xxh3_64_intdigest(data[at : at + size]) for at in range(0, len(data), size)]
    return bad, highest == 0, constant, np.array(prints, dtype=np.uint64).reshape(highest.shape)


def _slot_problems(rows: _Rows, slot: int, token_ids: np.ndarray[Any, Any]) -> Iterator[str]:
    """What is wrong with one slot; the first cause that is found, which explains those after it."""
    bad, zero, constant, prints = rows.bad[:, slot], rows.zero[:, slot], rows.constant[:, slot], rows.print[:, slot]
    count = len(prints)
    if bad.any():
        yield f"{bad.sum()} values are not finite, in {(bad > 0).sum()} rows, the first in row {np.argmax(bad > 0)}"
    elif zero.all():
        yield "all zero"
    elif zero.any():
        yield f"{zero.sum()} rows are zero, {_longest_run(zero)} of them in one run, the first is row {np.argmax(zero)}"
    elif constant.any():
        yield f"{constant.sum()} of {count} rows are one value all over, the first is row {np.argmax(constant)}"
    elif len(token_ids) == count:
        first = _repeated(prints, token_ids)
        if (prints == prints[0]).all() and len(set(token_ids.tolist())) > 1:
            yield f"all {count} rows are equal although the tokens differ"
        elif first:
            row, earlier, total = first
            yield f"{total} rows repeat a row of another token, the first is row {row}, equal to row {earlier}"


def _longest_run(rows: np.ndarray[Any, Any]) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], rows.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max())


def _repeated(prints: np.ndarray[Any, Any], token_ids: np.ndarray[Any, Any]) -> tuple[int, int, int] | None:
    """The first row that is bit for bit an earlier row of another token, that row, and how many such rows there are."""
    _, earliest, inverse = np.unique(prints, return_index=True, return_inverse=True)
    origin = earliest[inverse]
    repeats = np.flatnonzero(token_ids != token_ids[origin])
    return (int(repeats[0]), int(origin[repeats[0]]), len(repeats)) if len(repeats) else None


def _pair_problems(rows: _Rows, slots: list[int], layer_ids: Sequence[int]) -> Iterator[str]:
    count = len(rows.print)
    for place, left in enumerate(slots):
        for right in slots[place + 1 :]:
            same = rows.print[:, left] == rows.print[:, right]
            if same.sum() > _SAME_SHARE * count:
                yield (
                    f"layers {layer_ids[left]} and {layer_ids[right]} are the same in {same.sum()} of {count} rows, "
                    f"the first is row {np.argmax(same)}: one was captured twice"
                )
