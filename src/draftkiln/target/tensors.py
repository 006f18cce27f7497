"""Tensors that are made one at a time, and safetensors shards that hold them.

Format: https://huggingface.co/docs/safetensors (8 bytes little-endian header length, JSON header, data).
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from draftkiln import durable
from draftkiln.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_BYTES = {"BF16": 2, "F32": 4, "I32": 4, "I64": 8}


@dataclass(frozen=True)
class Tensor:
    """A tensor of known shape whose data is made when it is written."""

    name: str
    shape: tuple[int, ...]
    build: Callable[[], np.ndarray[Any, Any]]
    """Makes the data: bit patterns (uint16) of bfloat16, or numbers of the type."""
    dtype: str = "BF16"

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        count = 1
        for size in self.shape:
            count *= size
        return count * _BYTES[self.dtype]


def write_shards(folder: Path, tensors: Sequence[Tensor], shard_bytes: int, threads: int = 1) -> list[Path]:
    """Write `tensors` as `model-*.safetensors` of at most about `shard_bytes`, with their index; gives the files."""
    starts = accumulate((tensor.nbytes for tensor in tensors), initial=0)
    groups: dict[int, list[Tensor]] = {}
    for start, tensor in zip(starts, tensors, strict=False):
        groups.setdefault(start // shard_bytes, []).append(tensor)
    names = [f"model-{number:05}-of-{len(groups):05}.safetensors" for number in range(1, len(groups) + 1)]
    files = [folder / name for name in names]
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(_write_shard, files, groups.values()):  # raises what a shard's writing raised
            pass
    index = {
        "metadata": {"total_size": sum(tensor.nbytes for tensor in tensors)},
        "weight_map": {
            tensor.name: name for name, group in zip(names, groups.values(), strict=True) for tensor in group
        },
    }
    durable.write_json(folder / "model.safetensors.index.json", index)
    return files


def _write_shard(path: Path, tensors: Sequence[Tensor]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        end = offset + tensor.nbytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format wants data aligned to 8 bytes
    with durable.storage_errors(path), path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            data = tensor.build()
            if data.shape != tensor.shape or data.nbytes != tensor.nbytes:
                raise StorageError(f"{tensor.name}: made {data.shape} of {data.dtype}, announced {tensor.shape}")
            file.write(np.ascontiguousarray(data).data)
        file.flush()
        os.fsync(file.fileno())
