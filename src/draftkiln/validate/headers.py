"""The header pass: counts, names, shapes, types, sizes and checksums, without reading values into tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftkiln.errors import ValidationError
from draftkiln.extract import samples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from draftkiln.extract.manifest import Head, Manifest, Receipt

_DTYPES = {"bfloat16": "BF16"}


def problems(folder: Path, found: Manifest, lengths: list[int], *, checksums: bool = True) -> Iterator[ValidationError]:
    """Every problem of the files of `folder` that their headers and bytes show.

    Args:
        folder: of the samples.
        found: the manifest.
        lengths: tokens of each row of the dataset.
        checksums: also read every file and compare its checksum.
    """
    if found.head.samples != len(lengths):
        yield _problem("manifest", f"speaks of {found.head.samples} samples, the dataset has {len(lengths)} rows")
        return
    if found.head.norm_state != "pre-norm":
        yield _problem("manifest", f"norm_state is {found.head.norm_state!r}, the trainer needs 'pre-norm'")
    missing = [index for index in range(found.head.samples) if index not in found.receipts]
    if missing:
        yield _problem("manifest", f"{len(missing)} samples have no receipt, the first is {missing[0]}")
    for index, receipt in sorted(found.receipts.items()):
        text = _file_problem(folder / samples.name(index), receipt, lengths[index], found.head, checksums=checksums)
        if text:
            yield _problem(samples.name(index), text)


def _file_problem(path: Path, receipt: Receipt, tokens: int, head: Head, *, checksums: bool) -> str | None:
    try:
        entries = samples.header(path)
    except (OSError, ValueError) as error:
        return f"cannot be read: {error}"
    if path.stat().st_size != receipt.bytes:
        return f"{path.stat().st_size} bytes, its receipt says {receipt.bytes}"
    wrong = _layout_problem(entries, tokens, head)
    if wrong is None and checksums and samples.checksum(path) != receipt.checksum:
        return f"its {head.checksum} is not the one of its receipt: the file was altered after it was written"
    return wrong


def _layout_problem(entries: dict[str, Any], tokens: int, head: Head) -> str | None:
    if set(entries) != {"hidden_states", "token_ids"}:
        return f"holds {sorted(entries)}, not hidden_states and token_ids"
    states, ids = entries["hidden_states"], entries["token_ids"]
    if states["dtype"] != _DTYPES.get(head.dtype):
        return f"hidden_states is {states['dtype']}, the manifest says {head.dtype}"
    if ids["dtype"] != "I64" or ids["shape"] != [tokens]:
        return f"token_ids is {ids['dtype']} {ids['shape']}, not I64 [{tokens}]"
    wanted = [tokens, len(head.layer_ids), head.hidden_size]
    if states["shape"] != wanted:
        cause = " (fewer rows than tokens: a prefix cache or a lost chunk)" if states["shape"][:1] < wanted[:1] else ""
        return f"hidden_states has shape {states['shape']}, not {wanted}{cause}"
    return None


def _problem(where: str, text: str) -> ValidationError:
    return ValidationError(
        f"{where}: {text}", fix="run `draftkiln extract` again: it remakes what is not as its receipt says"
    )
