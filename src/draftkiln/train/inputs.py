"""What the trainer may be fed: states whose layer ids, type and norm state are the recipe's, of the same target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from draftkiln import durable
from draftkiln.errors import DataError, ProblemsError, RunDirectoryError
from draftkiln.extract import manifest, samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

PRE_NORM = "pre-norm"


class Head(Protocol):
    """What the head of a manifest says of all its samples (`draftkiln.extract.manifest.Head`)."""

    @property
    def layer_ids(self) -> Sequence[int]:
        """Id of each slot, the last one after the last layer."""

    @property
    def hidden_size(self) -> int:
        """Columns of a slot."""

    @property
    def dtype(self) -> str:
        """Type of the states."""

    @property
    def norm_state(self) -> str:
        """Whether the final norm is applied to the last slot."""

    @property
    def samples(self) -> int:
        """Samples there are."""


def refuse_other_states(head: Head, aux: Sequence[int], num_layers: int, hidden_size: int, dtype: str) -> None:
    """Refuse states that a draft of this recipe and target must not learn from; all reasons at once.

    Args:
        head: of the manifest.
        aux: the recipe's auxiliary layer ids.
        num_layers: decoder layers of the target.
        hidden_size: of the target.
        dtype: type that the recipe stores states in.

    Raises:
        ProblemsError: of `DataError`s.
    """
    problems = list(_slot_problems(list(head.layer_ids), list(aux), num_layers))
    if head.hidden_size != hidden_size:
        problems.append(
            DataError(
                f"the manifest's states have {head.hidden_size} columns, the target's have {hidden_size}",
                why="they come from another target",
                fix="extract from this target into a new run directory",
            )
        )
    if head.dtype != dtype:
        problems.append(
            DataError(
                f"the manifest's states are {head.dtype}, the recipe's are {dtype}",
                why="a draft learns the numbers that it will be served with",
                fix="extract again with this recipe",
            )
        )
    if head.norm_state != PRE_NORM:
        problems.append(
            DataError(
                f"the manifest's last slot is {head.norm_state!r}, not {PRE_NORM!r}",
                why="the trainer applies the target's final norm itself, so it would be applied twice",
                fix="extract states from before the final norm, as `draftkiln extract` does",
            )
        )
    if problems:
        raise ProblemsError(problems)


def _slot_problems(slots: list[int], aux: list[int], num_layers: int) -> list[DataError]:
    if slots == [*aux, num_layers]:
        return []
    if num_layers not in slots:
        return [
            DataError(
                f"the manifest's slots are layers {slots}: none is {num_layers}, the state after the last layer",
                why="the trainer takes the last slot for it, and computes what the target answers from it",
                fix=f"extract layers {[*aux, num_layers]}",
            )
        ]
    return [
        DataError(
            f"the manifest's slots are layers {slots}, the recipe's layers.aux are {aux} and {num_layers} after them",
            why="the draft would be served with other states than it learnt from",
            fix="set layers.aux to what was extracted, or extract again into a new run directory",
        )
    ]


def refuse_made_up(load_format: str) -> None:
    """Refuse states of weights that the engine made up: they pass every check, and a draft of them fits no target.

    Raises:
        DataError: `target.load_format` is `dummy`.
    """
    if load_format == "dummy":
        raise DataError(
            "the states come from made-up weights",
            why="target.load_format is dummy, which is for speed tests: a draft of them would be accepted by no target",
            fix="load the weights, extract into a new run directory and train on that",
        )


def refuse_too_few(samples: int) -> None:
    """Refuse a dataset that cannot be split into training and validation.

    Raises:
        DataError: fewer than two samples.
    """
    if samples < 2:  # noqa: PLR2004 - one to train on, one to validate on
        raise DataError(
            f"{samples} samples cannot be trained on",
            why="one sample at least is set apart for the validation loss",
            fix="prepare more conversations",
        )


def refuse_not_validated(
    validated: Mapping[str, Any], extracted: Mapping[str, Any], samples: int, receipts: int
) -> None:
    """Refuse states that are not the ones that passed `validate`.

    Args:
        validated: record of the stage validate.
        extracted: record of the stage extract.
        samples: that the manifest's head speaks of.
        receipts: that it holds.

    Raises:
        DataError: they were extracted anew since, or are not complete.
    """
    fix = "run `draftkiln validate` with the same --recipe and --run"
    if validated["inputs"].get("extract.record") != durable.sha256_json(extracted["inputs"]):
        raise DataError("the states were extracted anew since they were validated", why="nobody checked these", fix=fix)
    checked = validated["results"].get("samples", samples)
    if checked != samples or receipts != samples:
        raise DataError(
            f"{samples} samples are to be there, {receipts} are, and {checked} were validated",
            why="the extraction was taken up again since",
            fix=f"finish it with `draftkiln extract`, then {fix}",
        )


def refuse_cut(extract: Path, receipts: Mapping[int, manifest.Receipt]) -> None:
    """Refuse states whose files are gone or of another size than their receipts say; the trainer would meet them late.

    Args:
        extract: RUN/extract.
        receipts: of the manifest.

    Raises:
        DataError: with how many they are.
    """
    folder = extract / samples.FOLDER
    wrong = [index for index, one in receipts.items() if _size(folder / samples.name(index)) != one.bytes]
    if wrong:
        raise DataError(
            f"{folder}: the states of {len(wrong)} samples are gone or were cut, {samples.name(wrong[0])} first",
            why="their files have not the size that extraction recorded",
            fix="run `draftkiln extract` with the same --recipe and --run, which makes them again, then validate",
        )


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def altered(extract: Path, indices: Iterable[int]) -> list[int]:
    """Which of these samples' files are not as their receipts say; none where nothing tells.

    Args:
        extract: RUN/extract.
        indices: of samples; each file is read as a whole.
    """
    try:
        receipts = manifest.read(extract / manifest.FILE, mend=False).receipts
    except RunDirectoryError:
        return []
    return [
        index
        for index in indices
        if index in receipts and _checksum(extract / samples.FOLDER / samples.name(index)) != receipts[index].checksum
    ]


def _checksum(file: Path) -> str | None:
    try:
        return samples.checksum(file)
    except OSError:
        return None


def refuse_other_tokenizer(recorded: Mapping[str, str] | None, now: Mapping[str, str]) -> None:
    """Refuse token ids that another tokenizer than the target's gave; a shape check would not see it.

    Args:
        recorded: hashes of the tokenizer's files when the samples were prepared, None where nobody wrote them down.
        now: of the target's.

    Raises:
        DataError: naming the files that differ.
    """
    if recorded is None or dict(recorded) == dict(now):
        return
    changed = sorted(name for name in {*recorded, *now} if recorded.get(name) != now.get(name))
    raise DataError(
        f"the samples were prepared with another tokenizer: {', '.join(changed)} differ",
        why="the same id would mean another token, and the draft would learn to propose wrong ones",
        fix="use the target that the samples were prepared with, or prepare and extract into a new run directory",
    )
