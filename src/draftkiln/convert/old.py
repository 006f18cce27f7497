"""A folder of `data_{i}.pt`, as speculators 0.3 and 0.4 wrote it: looked at by shapes, read one file at a time.

Each file holds `input_ids` int64 `[T]`, `loss_mask` `[T]` and `hidden_states`, a list of `[T, H]`, one a captured layer
(speculators 0.3.0, scripts/data_generation_offline.py). Only tensors are loaded; a file with anything else is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import torch

_NAME = re.compile(r"data_(0|[1-9]\d*)\.pt", re.ASCII)
_SHOWN = 5


@dataclass(frozen=True)
class OldSample:
    """One file.

    Attributes:
        name: of the file.
        input_ids: token ids.
        loss_mask: 1 where a token is trained.
        states: `[T, H]` of each captured layer, in the order of the file.
    """

    name: str
    input_ids: list[int]
    loss_mask: list[int]
    states: Sequence[torch.Tensor]


@dataclass(frozen=True)
class Expected:
    """What every file must hold.

    Attributes:
        slots: captured layers.
        hidden_size: columns of a state.
        vocab_size: of the target.
        max_tokens: that a sample may have.
        dtype: of the states, such as `bfloat16`.
    """

    slots: int
    hidden_size: int
    vocab_size: int
    max_tokens: int
    dtype: str = "bfloat16"


def files(folder: Path) -> list[Path]:
    """The files of a folder in the order of their numbers.

    Raises:
        DataError: there are none, or numbers are missing: sample i must stay sample i.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder", fix="name the folder that holds data_0.pt, data_1.pt, …")
    found = {int(match[1]): entry for entry in folder.iterdir() if (match := _NAME.fullmatch(entry.name))}
    if not found:
        raise DataError(
            f"{folder} holds no data_0.pt, data_1.pt, …",
            why="that is how speculators 0.3 and 0.4 name samples",
            fix="name the folder that `data_generation_offline.py` wrote",
        )
    missing = [number for number in range(max(found) + 1) if number not in found]
    if missing:
        names = ", ".join(f"data_{number}.pt" for number in missing[:_SHOWN])
        raise DataError(
            f"{folder}: {len(missing)} of {max(found) + 1} files are missing: {names}",
            why="the extraction did not finish, or files were lost",
            fix="finish it, or rename the files so that their numbers have no gap",
        )
    return [found[number] for number in sorted(found)]


def read(path: Path) -> OldSample:
    """Read a file; its states are mapped into memory and come from the disk when they are used.

    Raises:
        DataError: it is no such file.
    """
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        ids, mask, states = (content[key] for key in ("input_ids", "loss_mask", "hidden_states"))
        return OldSample(path.name, ids.long().tolist(), mask.long().tolist(), list(states))
    except Exception as error:  # what torch raises of a foreign file is not one class
        text = " ".join(str(error).split())
        raise DataError(
            f"{path} is no sample of speculators 0.3 or 0.4",
            why=f"{type(error).__name__}: {text[:200]}",
            fix="a sample is a dict of input_ids, loss_mask and hidden_states, tensors alone: write this file again",
        ) from error


def problems(sample: OldSample, expected: Expected) -> Iterator[str]:
    """What is wrong with a sample's shapes, types and ids; its values are not looked at."""
    tokens = len(sample.input_ids)
    if tokens == 0:
        yield "it has no token"
    if tokens > expected.max_tokens:
        yield f"{tokens} tokens, data.max_tokens of the recipe is {expected.max_tokens}"
    if len(sample.loss_mask) != tokens:
        yield f"{len(sample.loss_mask)} entries of loss_mask for {tokens} tokens"
    if strange := set(sample.loss_mask) - {0, 1}:
        yield f"loss_mask holds {min(strange)}, it is made of 0 and 1"
    if len(sample.states) != expected.slots:
        yield f"{len(sample.states)} captured layers, {expected.slots} were named"
    for slot, state in enumerate(sample.states):
        yield from _state_problems(slot, state, tokens, expected)
    outside = [token for token in sample.input_ids if not 0 <= token < expected.vocab_size]
    if outside:
        yield f"token id {outside[0]} is none of the target's {expected.vocab_size}"


def _state_problems(slot: int, state: Any, tokens: int, expected: Expected) -> Iterator[str]:
    shape, dtype = list(state.shape), str(state.dtype).removeprefix("torch.")
    wanted = [tokens, expected.hidden_size]
    if shape != wanted:
        yield f"hidden_states[{slot}] is {shape}, {tokens} tokens of this target make it {wanted}"
    if dtype != expected.dtype:
        yield f"hidden_states[{slot}] is {dtype}, the recipe's states are {expected.dtype}"
