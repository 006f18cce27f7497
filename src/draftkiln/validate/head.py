"""`lm_head(norm(last slot))`, computed from the checkpoint's own weights, against what the engine said itself.

numpy is enough, and the head is read in blocks of rows: a head of 2.3 GB costs no more memory than a small one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from draftkiln.extract import samples
from draftkiln.target.facts import text_config
from draftkiln.train import verifier

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_BLOCK_ROWS = 8192
_TIE = 2.0**-7
"""Logits of two tokens that are this near, as a share of the higher, are one bfloat16 number or neighbours: the engine
may say either. With 163,840 random rows of a head a fiftieth of the tokens has such a tie."""
_SHIFTED_NORMS = ("gemma",)
"""Model types whose norm multiplies by 1 + weight, or is another one altogether."""


@dataclass(frozen=True)
class Answer:
    """How the head's words on one sample agree with the engine's.

    Attributes:
        index: of the sample.
        rows: tokens compared.
        same: of these, the ones where the engine's next token has the head's highest logit, or one that ties with it.
        row: first token where it has not; -1 if none.
    """

    index: int
    rows: int
    same: int
    row: int


def why_not(target: Path) -> str | None:
    """Why the check cannot be made on this target; None when it can."""
    raw = json.loads((target / "config.json").read_text(encoding="utf-8"))
    text = text_config(raw)
    kind = str(text.get("model_type", raw.get("model_type", "")))
    if kind.startswith(_SHIFTED_NORMS):
        return f"the final norm of {kind} is another one"
    return None if "rms_norm_eps" in text else "config.json names no rms_norm_eps"


def compare(
    target: Path, states: Mapping[int, np.ndarray[Any, Any]], said: Mapping[int, Sequence[int]]
) -> list[Answer]:
    """Compare next tokens sample by sample.

    Args:
        target: its directory.
        states: last slot `[tokens, hidden]` in float32, by index of the sample.
        said: next token after each token as the engine said it, likewise.
    """
    raw = json.loads((target / "config.json").read_text(encoding="utf-8"))
    text = text_config(raw)
    files = verifier.weight_map(target)
    names = verifier.find(files, tied=bool(text.get("tie_word_embeddings", raw.get("tie_word_embeddings", False))))
    norm = np.concatenate(list(_rows(target / files[names.norm], names.norm)))
    head = names.head or names.embeddings
    indices = sorted(states)
    normed = _normed(np.concatenate([states[index] for index in indices]), norm, float(text["rms_norm_eps"]))
    words = np.concatenate([np.asarray(said[index], dtype=np.int64) for index in indices])
    highest, told = _logits(normed, _rows(target / files[head], head), words)
    same = told >= highest - _TIE * np.abs(highest)
    found, at = [], 0
    for index in indices:
        rows = len(states[index])
        differ = np.flatnonzero(~same[at : at + rows])
        at += rows
        found.append(Answer(index, rows, rows - len(differ), int(differ[0]) if len(differ) else -1))
    return found


def last_slot(path: Path) -> np.ndarray[Any, Any]:
    """The last slot `[tokens, hidden]` of a sample's file, in float32."""
    entries = samples.header(path)
    entry = entries["hidden_states"]
    states = _floats(_read(path, entry, 0, entry["shape"][0]), entry["dtype"])[:, -1]
    if samples.SCALES in entries:
        scales = _read(path, entries[samples.SCALES], 0, entry["shape"][0])
        states = states * _floats(scales, "F32")[:, 0]
    return states


def _normed(states: np.ndarray[Any, Any], weight: np.ndarray[Any, Any], epsilon: float) -> np.ndarray[Any, Any]:
    """RMSNorm, Zhang and Sennrich 2019, equation 4."""
    normed: np.ndarray[Any, Any] = states / np.sqrt(np.square(states).mean(axis=1, keepdims=True) + epsilon) * weight
    return normed


def _logits(
    states: np.ndarray[Any, Any], head: Iterator[np.ndarray[Any, Any]], words: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The highest logit of each token, and that of the word said after it; -inf where the head has no such row."""
    highest, told, at = np.full(len(states), -np.inf), np.full(len(states), -np.inf), 0
    for block in head:
        logits = states @ block.T
        highest = np.maximum(highest, logits.max(axis=1))
        here = np.flatnonzero((words >= at) & (words < at + len(block)))
        told[here] = logits[here, words[here] - at]
        at += len(block)
    return highest, told


def _rows(path: Path, name: str) -> Iterator[np.ndarray[Any, Any]]:
    entry = samples.header(path)[name]
    for at in range(0, entry["shape"][0], _BLOCK_ROWS):
        yield _floats(_read(path, entry, at, min(_BLOCK_ROWS, entry["shape"][0] - at)), entry["dtype"])


_TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F8_E4M3": "u1"}


def _read(path: Path, entry: Mapping[str, Any], first: int, count: int) -> np.ndarray[Any, Any]:
    """Rows of a tensor, as its bits where numpy does not know the type."""
    dtype, inner = np.dtype(_TYPES[entry["dtype"]]), entry["shape"][1:]
    size = int(np.prod(inner, dtype=np.int64))
    with path.open("rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little") + entry["data_offsets"][0]
        file.seek(start + first * size * dtype.itemsize)
        return np.fromfile(file, dtype=dtype, count=count * size).reshape(count, *inner)


def _floats(values: np.ndarray[Any, Any], code: str) -> np.ndarray[Any, Any]:
    if code == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    if code == "F8_E4M3":
        values = _E4M3[values]
    return values.astype(np.float32, copy=False)


def _e4m3() -> np.ndarray[Any, Any]:
    """Value of each bit pattern of float8_e4m3fn: OCP 8-bit floating point, revision 1.0, table 2."""
    bits = np.arange(256)
    exponent, fraction = (bits >> 3) & 15, bits & 7
    size = np.where(exponent == 0, fraction / 8 * 2.0**-6, (1 + fraction / 8) * 2.0 ** (exponent - 7.0))
    size[(bits & 127) == 127] = np.nan  # noqa: PLR2004 - the one pattern that is no number
    return np.where(bits & 128, -size, size).astype(np.float32)


_E4M3 = _e4m3()
