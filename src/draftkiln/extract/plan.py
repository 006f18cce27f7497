"""What an extraction will do and need, known before the engine starts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import RunDirectoryError, StorageError
from draftkiln.extract import manifest, samples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_BYTES_PER_VALUE = 2
_TOKEN_ID_BYTES = 8
_HEADER_BYTES = 256


def sample_bytes(tokens: int, slots: int, hidden: int) -> int:
    """Bytes of the file of one sample of `tokens` tokens in bfloat16."""
    return tokens * (slots * hidden * _BYTES_PER_VALUE + _TOKEN_ID_BYTES) + _HEADER_BYTES


@dataclass(frozen=True)
class Todo:
    """What is done and what remains.

    Attributes:
        remaining: indices to compute, ascending.
        remade: of these, the ones whose file was there but is not what its receipt says.
        stray: names in the folder that belong to no receipt; never taken for samples.
    """

    remaining: list[int]
    remade: list[int]
    stray: list[str]


def compare(folder: Path, found: manifest.Manifest) -> Todo:
    """Compare receipts with files by name and size."""
    sizes = {}
    stray = []
    for file in folder.iterdir():
        stem = file.name.removeprefix("hs_").removesuffix(".safetensors")
        if stem.isdecimal() and file.name == samples.name(int(stem)) and int(stem) in found.receipts:
            sizes[int(stem)] = file.stat().st_size
        else:
            stray.append(file.name)
    wrong = sorted(index for index, receipt in found.receipts.items() if sizes.get(index) != receipt.bytes)
    again = set(wrong)
    remaining = [index for index in range(found.head.samples) if index not in found.receipts or index in again]
    return Todo(remaining, wrong, sorted(stray))


def refuse_without_room(folder: Path, needed: int) -> None:
    """Refuse an extraction of `needed` bytes that does not fit beside `folder`.

    Raises:
        StorageError: with both numbers.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise StorageError(
            f"not enough room in {folder}",
            why=f"the states need {needed / 1e9:.2f} GB, {free / 1e9:.2f} GB are free",
            fix="name a --run directory on a larger disk, or lower data.limit or data.max_tokens in the recipe",
        )


def refuse_long(lengths: Sequence[int], limit: int) -> None:
    """Refuse samples longer than the recipe's limit.

    Raises:
        RunDirectoryError: with the first of them and their number.
    """
    long = [(index, length) for index, length in enumerate(lengths) if length > limit]
    if long:
        index, length = long[0]
        raise RunDirectoryError(
            f"{len(long)} samples are longer than the recipe's data.max_tokens of {limit}",
            why=f"the first is sample {index} with {length} tokens",
            fix="run `draftkiln prepare` with this recipe into a new run directory",
        )


def head(values: dict[str, Any], found: manifest.Manifest | None, path: Path) -> manifest.Head:
    """The head of this extraction; equal to the one already there.

    Raises:
        RunDirectoryError: the manifest there was begun for something else.
    """
    wanted = manifest.Head(**values)
    if found is not None and found.head != wanted:
        changed = [
            f"{key}: {getattr(found.head, key)!r} there, {getattr(wanted, key)!r} now"
            for key in values
            if getattr(found.head, key) != getattr(wanted, key)
        ]
        raise RunDirectoryError(f"{path} was begun for something else", why="; ".join(changed), fix="name a new --run")
    return wanted
