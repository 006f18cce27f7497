"""The file of one sample: `hidden_states` [tokens, slots, hidden] and `token_ids` [tokens] in safetensors.

The format is the one that speculators 0.5 and later train from.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import xxhash

from draftkiln import durable

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "hidden_states"
_LENGTH_BYTES = 8
_BLOCK = 1 << 20


def name(index: int) -> str:
    """File name of sample `index`."""
    return f"hs_{index}.safetensors"


def write(folder: Path, index: int, data: bytes) -> str:
    """Write the bytes of a sample under its final name, complete but not yet synced, and return their checksum."""
    path = folder / name(index)
    temporary = path.with_name(f".{path.name}.tmp")
    with durable.storage_errors(path):
        temporary.write_bytes(data)
        temporary.rename(path)
    return xxhash.xxh3_128_hexdigest(data)


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
