"""What an extraction will do and need, known before the engine starts."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import RunDirectoryError, StorageError
from draftkiln.extract import manifest, samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Todo:
    """What is done and what remains.

    Attributes:
        remaining: indices to compute, ascending.
        remade: of these, the ones whose file is not what its receipt says.
        unfinished: names of files that were being written when an extraction ended.
        unrecorded: names of whole files whose receipts were not written any more; their samples remain.
        stray: names in the folder that are no sample's; never taken for one.
    """

    remaining: list[int]
    remade: list[int]
    unfinished: list[str]
    unrecorded: list[str]
    stray: list[str]


def compare(folder: Path, found: manifest.Manifest, *, full: bool = False) -> Todo:
    """Compare receipts with files: by name and size, or in full by their checksums as well."""
    sizes: dict[int, int] = {}
    others: dict[str, list[str]] = {"unfinished": [], "unrecorded": [], "stray": []}
    with os.scandir(folder) as entries:
        for entry in entries:
            index = samples.index_of(entry.name)
            if index is not None and index in found.receipts:
                sizes[index] = entry.stat().st_size
            elif index is not None and index in found.head.indices:
                others["unrecorded"].append(entry.name)
            else:
                others["unfinished" if samples.is_temporary(entry.name) else "stray"].append(entry.name)
    wrong = [index for index, receipt in found.receipts.items() if sizes.get(index) != receipt.bytes]
    if full:
        known = set(wrong)
        wrong += [
            index
            for index, receipt in found.receipts.items()
            if index not in known and samples.checksum(folder / samples.name(index)) != receipt.checksum
        ]
    again = set(wrong)
    remaining = [index for index in found.head.indices if index not in found.receipts or index in again]
    return Todo(remaining, sorted(wrong), **{kind: sorted(names) for kind, names in others.items()})


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
            fix="name a --run directory on a larger disk, lower data.limit or data.max_tokens, or begin with --force",
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


def clear(folder: Path, path: Path, todo: Todo, tell: Callable[[str], None]) -> None:
    """Before samples are made again: take back receipts that hold no more, remove unfinished files, name strays.

    Args:
        folder: of the samples.
        path: the manifest.
        todo: what `compare` found.
        tell: takes a line for people.
    """
    for name in todo.unfinished:
        with durable.storage_errors(folder / name):
            (folder / name).unlink(missing_ok=True)
    if todo.unfinished:
        tell(f"extract: {len(todo.unfinished)} unfinished files removed, the first: {todo.unfinished[0]}")
    if todo.unrecorded:
        tell(f"extract: {len(todo.unrecorded)} samples have no receipt and are made again: {todo.unrecorded[0]} …")
    if todo.stray:
        tell(f"extract: {len(todo.stray)} stray files left alone in {folder}, the first: {todo.stray[0]}")
    if todo.remade:
        manifest.withdraw(path, todo.remade)
        tell(f"extract: {len(todo.remade)} samples are not what their receipts say and are made again")
