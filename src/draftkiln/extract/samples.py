"""The file of one sample: `hidden_states` [tokens, slots, hidden] and `token_ids` [tokens] in safetensors.

The format is the one that speculators 0.5 and later train from.
"""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import xxhash

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "hidden_states"
SCALES = "hidden_states_scales"
"""Tensor of the scales of states in FP8, as hs-connectors names it."""
TOKEN_ID_BYTES = 8
SCALE_BYTES = 4
_CODES = {"bfloat16": ("BF16", 2), "float8_e4m3fn": ("F8_E4M3", 1)}
FP8 = "float8_e4m3fn"
DTYPES = tuple(_CODES)
_LENGTH_BYTES = 8
_BLOCK = 1 << 20
_NAME = re.compile(r"hs_(0|[1-9]\d*)\.safetensors", re.ASCII)
_TEMPORARY = re.compile(r"\.hs_\d+\.safetensors\.tmp")


def name(index: int) -> str:
    """File name of sample `index`."""
    return f"hs_{index}.safetensors"


def index_of(file: str) -> int | None:
    """Index of the sample whose file is named `file`; None when it is no sample's name."""
    found = _NAME.fullmatch(file)
    return int(found[1]) if found else None


def temporary(index: int) -> str:
    """File name of sample `index` while it is written."""
    return f".{name(index)}.tmp"


def is_temporary(file: str) -> bool:
    """Whether `file` is the name of a sample that was being written."""
    return _TEMPORARY.fullmatch(file) is not None


def code(dtype: str) -> str:
    """Name of a type of states in a safetensors header."""
    return _CODES[dtype][0]


def row_bytes(slots: int, hidden: int, dtype: str = "bfloat16") -> int:
    """Bytes of the states of one token, without a scale."""
    return slots * hidden * _CODES[dtype][1]


def scale_bytes(dtype: str = "bfloat16") -> int:
    """Bytes of the scale of one token; none but for states in FP8."""
    return SCALE_BYTES if dtype == FP8 else 0


@functools.lru_cache(maxsize=4096)
def head_bytes(tokens: int, slots: int, hidden: int, dtype: str = "bfloat16") -> bytes:
    """What a sample's file begins with: length and JSON header, padded so that the tensors after it are aligned.

    Ids come first, then states; scales come last, so that states can be written before all scales are known.

    Source: the safetensors format, https://github.com/huggingface/safetensors#format; without scales byte for byte what
    its library writes. FP8 with one scale a token `[tokens, 1, 1]`: hs_connectors 0.9.0, fp8_utils.py.
    """
    ids, states = tokens * TOKEN_ID_BYTES, tokens * row_bytes(slots, hidden, dtype)
    end = ids + states
    entries = {
        "token_ids": {"dtype": "I64", "shape": [tokens], "data_offsets": [0, ids]},
        "hidden_states": {"dtype": code(dtype), "shape": [tokens, slots, hidden], "data_offsets": [ids, end]},
    }
    if scales := tokens * scale_bytes(dtype):
        entries[SCALES] = {"dtype": "F32", "shape": [tokens, 1, 1], "data_offsets": [end, end + scales]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def size(tokens: int, slots: int, hidden: int, dtype: str = "bfloat16") -> int:
    """Bytes of the file of a sample."""
    row = TOKEN_ID_BYTES + row_bytes(slots, hidden, dtype) + scale_bytes(dtype)
    return len(head_bytes(tokens, slots, hidden, dtype)) + tokens * row


def token_ids_checksum(token_ids: bytes) -> str:
    """Checksum of the token ids of a sample, given as little-endian int64."""
    return xxhash.xxh3_64_hexdigest(token_ids)


def checksum(path: Path) -> str:
    """Checksum of a sample's file, read in blocks."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def header(path: Path) -> dict[str, Any]:
    """Header of a safetensors file: name -> {dtype, shape, data_offsets}; no tensor is read.

    Raises:
        ValueError: the file is cut short or is no safetensors file.
    """
    with path.open("rb") as file:
        return _header(file)[0]


@dataclass(frozen=True)
class Opening:
    """What a sample's file says without its states.

    Attributes:
        entries: its header.
        size: of the file in bytes.
        token_ids: as little-endian int64; empty where there are none.
    """

    entries: dict[str, Any]
    size: int
    token_ids: bytes


def opening(path: Path) -> Opening:
    """Header, size and token ids of a sample's file, opened once: a run has a million of them.

    Raises:
        ValueError: the file is cut short or is no safetensors file.
        KeyError, TypeError: an entry of its header is none.
    """
    with path.open("rb") as file:
        entries, start, size = _header(file)
        begin, end = entries["token_ids"]["data_offsets"] if "token_ids" in entries else (0, 0)
        file.seek(start + begin)
        return Opening(entries, size, file.read(end - begin))


def _header(file: BinaryIO) -> tuple[dict[str, Any], int, int]:
    """Header of an open file, where its tensors start, and its size."""
    first = file.read(_LENGTH_BYTES)
    length = int.from_bytes(first, "little")
    size = os.fstat(file.fileno()).st_size
    if len(first) < _LENGTH_BYTES or length > size - _LENGTH_BYTES:
        raise ValueError(f"cut short: {size} bytes hold no complete header")
    try:
        found = json.loads(file.read(length))
    except ValueError as error:
        raise ValueError(f"not a safetensors file: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("not a safetensors file: its header is no object")  # noqa: TRY004 - one kind of error for a bad file
    found.pop("__metadata__", None)
    start = _LENGTH_BYTES + length
    wanted = start + max((entry["data_offsets"][1] for entry in found.values()), default=0)
    if size != wanted:
        raise ValueError(f"{size} bytes, its header speaks of {wanted}")
    return found, start, size
