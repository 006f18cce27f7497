"""The manifest: its head says what every sample is, each further line is the receipt of one finished sample.

The head is written before the first sample. Receipts become durable in groups, after the files they speak of; a
receipt that is there can be trusted, a file without one cannot.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import RunDirectoryError
from draftkiln.extract.shards import Shard

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCHEMA_VERSION = 1
FILE = "manifest.jsonl"
LAYOUT = "hidden_states[tokens, slots, hidden], token_ids[tokens]"
CHECKSUM = "xxh3_128"
_BATCH_BYTES = 1 << 20


@dataclass(frozen=True)
class Head:
    """What all samples of a manifest share."""

    layer_ids: tuple[int, ...]
    """Id of each slot, in vLLM's convention; the last is the state after the last layer."""
    hidden_size: int
    dtype: str
    """Of the stored states."""
    computed_in: str
    """Type that the engine computed in."""
    samples: int
    """Samples of the dataset."""
    dataset_sha256: str
    stack: str
    patched_wheel_sha256: str
    checksum: str = CHECKSUM
    norm_state: str = "pre-norm"
    """The final norm is not applied to the last slot."""
    layout: str = LAYOUT
    schema_version: int = SCHEMA_VERSION
    shard: Shard | None = None
    """The part of the samples that is extracted here; None: all."""

    @property
    def indices(self) -> range:
        """Indices of the samples there will be when extraction is finished."""
        return range(self.samples) if self.shard is None else self.shard.indices(self.samples)


@dataclass(frozen=True, slots=True)
class Receipt:
    """One finished sample."""

    index: int
    rows: int
    """Tokens, and so rows of its states."""
    bytes: int
    checksum: str
    """Of the whole file."""
    token_ids: str
    """xxh3_64 of its token ids as little-endian int64: shows whose states they are without a look into the file."""


@dataclass(frozen=True)
class Manifest:
    """A manifest, read."""

    head: Head
    receipts: dict[int, Receipt]


def create(path: Path, head: Head, receipts: Iterable[Receipt] = ()) -> None:
    """Write the head, durably, before any sample; or at once a whole manifest of samples that are there."""
    lines = [json.dumps(asdict(head)), *(json.dumps(asdict(receipt)) for receipt in receipts)]
    durable.write_text(path, "".join(line + "\n" for line in lines))


def append(path: Path, receipts: Iterable[Receipt]) -> None:
    """Append receipts and make them durable."""
    _append(path, (asdict(receipt) for receipt in receipts))


def withdraw(path: Path, indices: Iterable[int]) -> None:
    """Append, durably, that the receipts of `indices` hold no more: their files are about to be replaced."""
    _append(path, [{"withdrawn": sorted(indices)}])


def _append(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    with durable.storage_errors(path), path.open("ab") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        file.flush()
        os.fsync(file.fileno())


def read(path: Path, *, mend: bool = True) -> Manifest:
    """Read a manifest; a last line cut short by a crash is left out, and cut off unless `mend` is off.

    Raises:
        RunDirectoryError: there is none, or a line before the last is not what it must be.
    """
    receipts: dict[int, Receipt] = {}
    torn = b""
    try:
        with path.open("rb") as file:
            head = _head(json.loads(file.readline()))
            number = 2
            while lines := file.readlines(_BATCH_BYTES):
                if not lines[-1].endswith(b"\n"):
                    torn = lines.pop()
                _take(lines, number, head, receipts)
                number += len(lines)
            size = file.tell()
    except FileNotFoundError:
        raise RunDirectoryError(f"no manifest {path}", fix="run `draftkiln extract` first") from None
    except (ValueError, TypeError, KeyError) as error:
        raise RunDirectoryError(
            f"{path} is not a manifest", why=str(error), fix="restore it, or extract into a new run directory"
        ) from error
    if torn and mend:
        os.truncate(path, size - len(torn))
    return Manifest(head, receipts)


def _take(lines: list[bytes], number: int, head: Head, receipts: dict[int, Receipt]) -> None:
    """Take over the lines of a batch, whose first is line `number`."""
    wanted = head.indices
    for at, values in enumerate(_values(lines), start=number):
        if "withdrawn" in values:
            for index in values["withdrawn"]:
                receipts.pop(index, None)
            continue
        receipt = Receipt(**values)
        if receipt.index not in wanted:
            part = f"shard {head.shard} of " if head.shard else ""
            raise ValueError(f"line {at}: index {receipt.index} is none of {part}{head.samples} samples")
        receipts[receipt.index] = receipt


def _values(lines: list[bytes]) -> Iterable[Any]:
    """The JSON value of each line; all at once, which is twice as fast, where all are good."""
    with contextlib.suppress(ValueError):
        together: list[Any] = json.loads(b"[" + b",".join(lines) + b"]")
        if len(together) == len(lines):
            return together
    return map(json.loads, lines)


def _head(values: dict[str, Any]) -> Head:
    if values.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"schema_version {values.get('schema_version')!r}, this draftkiln reads {SCHEMA_VERSION}")
    shard = values.get("shard")
    more = {"layer_ids": tuple(values["layer_ids"]), "shard": shard and Shard(**shard)}
    return Head(**{**values, **more})
