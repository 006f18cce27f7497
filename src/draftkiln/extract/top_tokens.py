"""What the engine itself would say next after each token of a few samples: the check that needs no second model.

The engine is asked for the prompt log-probabilities of the very requests whose states are captured, so that the same
forward pass gives both; `validate` computes `lm_head(norm(last slot))` and compares.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from draftkiln import durable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

FILE = "top_tokens.jsonl"
_SAMPLES = 8
_LONGEST = 1024
"""Logits of all tokens of a sample lie in the engine's memory at a time: with 163,840 words 0.7 MB a token."""


def choose(lengths: Sequence[int], indices: Sequence[int]) -> frozenset[int]:
    """Samples to ask for, spread over those of `indices` that are short enough, the shorter half first."""
    short = [index for index in indices if 1 < lengths[index] <= _LONGEST]
    middle = sorted(lengths[index] for index in short)[len(short) // 2] if short else 0
    short = [index for index in short if lengths[index] <= middle]
    return frozenset(short[:: -(-len(short) // _SAMPLES) or 1])


def of_output(prompt_logprobs: Sequence[Mapping[int, Any] | None], sampled: int) -> list[int]:
    """Most likely next token after each token of a prompt, of vLLM's request output.

    Args:
        prompt_logprobs: token id -> object with `logprob` for each token given those before it; None for the first.
        sampled: the token that followed the prompt, chosen greedily.
    """
    return [max(entry, key=lambda token: entry[token].logprob) for entry in prompt_logprobs if entry] + [sampled]


def append(path: Path, answers: Mapping[int, Sequence[int]]) -> None:
    """Append answers, by index of the sample."""
    with durable.storage_errors(path), path.open("a", encoding="utf-8") as file:
        # A line that a kill cut short must not spoil the one after it.
        file.write("\n" + _lines(answers))


def read(path: Path) -> dict[int, list[int]]:
    """Answers by index of the sample, the last of each; lines that a kill cut short are left out."""
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):
            if line:
                values = json.loads(line)
                found[values["index"]] = values["tokens"]
    return found


def join(paths: Iterable[Path], into: Path) -> None:
    """Write the answers of several shards into one file."""
    durable.write_text(into, _lines({index: ids for path in paths for index, ids in read(path).items()}))


def _lines(answers: Mapping[int, Sequence[int]]) -> str:
    return "".join(json.dumps({"index": index, "tokens": list(ids)}) + "\n" for index, ids in answers.items())
