"""The header pass: counts, names, shapes, types, ids, sizes and checksums; no torch, and no state becomes a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import ValidationError
from draftkiln.extract import manifest, samples
from draftkiln.validate import several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from draftkiln.extract.manifest import Head, Manifest, Receipt

_AGAIN = "run `draftkiln extract` again: it remakes what is not as its receipt says"


@dataclass(frozen=True)
class Pass:
    """How the files of a manifest are looked at.

    Attributes:
        folder: of the samples.
        found: the manifest.
        lengths: tokens of each row of the dataset; None where it cannot be read, then a sample's receipt says it.
        checksums: also read every file and compare its checksum.
        tell: takes how many samples are done.
    """

    folder: Path
    found: Manifest
    lengths: Sequence[int] | None = None
    checksums: bool = True
    tell: Callable[[int], None] = lambda _done: None

    def problems(self) -> Iterator[ValidationError]:
        """Every problem that headers and bytes show."""
        head, lengths = self.found.head, self.lengths
        if lengths is not None and head.samples != len(lengths):
            yield _problem("manifest", f"speaks of {head.samples} samples, the dataset has {len(lengths)} rows")
            return
        yield from _head_problems(head)
        missing = [index for index in head.indices if index not in self.found.receipts]
        if missing:
            yield _problem("manifest", f"{len(missing)} samples have no receipt, the first is {missing[0]}")
        indices = sorted(self.found.receipts)
        for number, text in enumerate(several.in_order(self._of_file, indices), start=1):
            if text:
                yield _problem(samples.name(indices[number - 1]), text)
            self.tell(number)

    def _of_file(self, index: int) -> str | None:
        receipt, path = self.found.receipts[index], self.folder / samples.name(index)
        tokens = receipt.rows if self.lengths is None else self.lengths[index]
        return _file_problem(path, receipt, tokens, self.found.head, checksums=self.checksums)


def _head_problems(head: Head) -> Iterator[ValidationError]:
    """What the manifest declares of all files must be what is known here; nothing is guessed from the files."""
    if head.norm_state != "pre-norm":
        yield _problem("manifest", f"norm_state is {head.norm_state!r}, the trainer needs 'pre-norm'")
    if head.layout != manifest.LAYOUT:
        yield _problem("manifest", f"layout is {head.layout!r}, this draftkiln knows {manifest.LAYOUT!r}")
    if head.checksum != manifest.CHECKSUM:
        yield _problem("manifest", f"checksum is {head.checksum!r}, this draftkiln knows {manifest.CHECKSUM!r}")


def _file_problem(path: Path, receipt: Receipt, tokens: int, head: Head, *, checksums: bool) -> str | None:
    try:
        found = samples.opening(path)
        if found.size != receipt.bytes:
            return f"{found.size} bytes, its receipt says {receipt.bytes}"
        wrong = _layout_problem(found.entries, tokens, head)
        if wrong is None and samples.token_ids_checksum(found.token_ids) != receipt.token_ids:
            return "its token ids are not those of its receipt: states of another sample"
        if wrong is None and checksums and samples.checksum(path) != receipt.checksum:
            return f"its {head.checksum} is not the one of its receipt: the file was altered after it was written"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"cannot be read: {error}"
    return wrong


def _layout_problem(entries: dict[str, Any], tokens: int, head: Head) -> str | None:
    fp8 = head.dtype == samples.FP8
    names = {"hidden_states", "token_ids"} | ({samples.SCALES} if fp8 else set())
    if set(entries) != names:
        return f"holds {sorted(entries)}, not {' and '.join(sorted(names))}"
    states, ids = entries["hidden_states"], entries["token_ids"]
    if states["dtype"] not in _codes(head.dtype):
        return f"hidden_states is {states['dtype']}, the manifest says {head.dtype}"
    if ids["dtype"] != "I64" or ids["shape"] != [tokens]:
        return f"token_ids is {ids['dtype']} {ids['shape']}, not I64 [{tokens}]"
    if fp8 and (entries[samples.SCALES]["dtype"], entries[samples.SCALES]["shape"]) != ("F32", [tokens, 1, 1]):
        return f"{samples.SCALES} is not F32 [{tokens}, 1, 1]"
    wanted = [tokens, len(head.layer_ids), head.hidden_size]
    if states["shape"] != wanted:
        cause = " (fewer rows than tokens: a prefix cache or a lost chunk)" if states["shape"][:1] < wanted[:1] else ""
        return f"hidden_states has shape {states['shape']}, not {wanted}{cause}"
    return None


def _codes(dtype: str) -> list[str]:
    return [samples.code(dtype)] if dtype in samples.DTYPES else []


def _problem(where: str, text: str) -> ValidationError:
    return ValidationError(f"{where}: {text}", fix=_AGAIN)
