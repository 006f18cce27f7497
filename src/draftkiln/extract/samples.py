"""The file of one sample: `hidden_states` [tokens, slots, hidden] and `token_ids` [tokens] in safetensors.

The format is the one that speculators 0.5 and later train from.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "hidden_states"
VALUE_BYTES = 2
TOKEN_ID_BYTES = 8
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


def row_bytes(slots: int, hidden: int) -> int:
    """Bytes of the states of one token."""
    return slots * hidden * VALUE_BYTES


@functools.lru_cache(maxsize=4096)
def head_bytes(tokens: int, slots: int, hidden: int) -> bytes:
    """What a sample's file begins with: length and JSON header, padded so that the tensors after it are aligned.

    Source: the safetensors format, https://github.com/huggingface/safetensors#format; byte for byte what its library
    writes.
    """
    ids, states = tokens * TOKEN_ID_BYTES, tokens * row_bytes(slots, hidden)
    entries = {
        "token_ids": {"dtype": "I64", "shape": [tokens], "data_offsets": [0, ids]},
        "hidden_states": {"dtype": "BF16", "shape": [tokens, slots, hidden], "data_offsets": [ids, ids + states]},
    }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def size(tokens: int, slots: int, hidden: int) -> int:
    """Bytes of the file of a sample."""
    return len(head_bytes(tokens, slots, hidden)) + tokens * (TOKEN_ID_BYTES + row_bytes(slots, hidden))


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
        start = file.read(_LENGTH_BYTES)
        length = int.from_bytes(start, "little")
        size = path.stat().st_size
        if len(start) < _LENGTH_BYTES or length > size - _LENGTH_BYTES:
            raise ValueError(f"cut short: {size} bytes hold no complete header")
        try:
            found = json.loads(file.read(length))
        except ValueError as error:
            raise ValueError(f"not a safetensors file: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("not a safetensors file: its header is no object")  # noqa: TRY004 - one kind of error for a bad file
    found.pop("__metadata__", None)
    ends = [entry["data_offsets"][1] for entry in found.values()]
    if size != _LENGTH_BYTES + length + max(ends, default=0):
        raise ValueError(f"{size} bytes, its header speaks of {_LENGTH_BYTES + length + max(ends, default=0)}")
    return found
