"""How often each token is trained, and how much of that a draft vocabulary would cover; tied to what was counted."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import DraftkilnError, RunDirectoryError
from draftkiln.prepare import tokenizer
from draftkiln.target.facts import text_config
from draftkiln.train import vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from draftkiln.prepare.outcome import Outcome
    from draftkiln.stage import Context

NAME = "token-counts.json"
SCHEMA_VERSION = 1
"""Of token-counts.json."""


def facts(context: Context, outcome: Outcome) -> dict[str, Any]:
    """Distinct trained tokens, and the share of trained tokens inside a draft vocabulary of the recipe's size."""
    size = context.recipe.train.draft.vocab_size
    found: dict[str, Any] = {"distinct_trained_tokens": len(outcome.trained)}
    if size is not None and outcome.trained:
        found["draft_vocabulary"] = {"size": size, "coverage": coverage(context, outcome, size)}
    return found


def coverage(context: Context, outcome: Outcome, size: int) -> float | None:
    """Share of trained tokens inside a draft vocabulary of `size`; None where there is no such vocabulary."""
    try:
        chosen = draft_vocabulary(context.target, outcome.trained, size, context.facts.vocab_size)
    except DraftkilnError:
        return None  # the training stage refuses it with the reason
    if chosen is None:
        return 1.0
    inside = sum(outcome.trained[token] for token in chosen.targets)
    return round(inside / outcome.trained_tokens, 6)


def draft_vocabulary(
    target: Path, counts: Mapping[int, int], size: int | None, target_size: int
) -> vocabulary.Vocabulary | None:
    """The draft's vocabulary for counted tokens, with the ends of text and turn that the target's files name.

    Raises:
        RecipeError: it cannot have that size.
    """
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    generation = target / "generation_config.json"
    more = [json.loads(generation.read_text(encoding="utf-8"))] if generation.exists() else []
    always = vocabulary.ends(config, text_config(config), *more)
    return vocabulary.choose(counts, size, target_size, always)


def write(folder: Path, outcome: Outcome, dataset_sha256: str, context: Context) -> None:
    """Write `token-counts.json`: how often each id is trained, by dataset, tokenizer and target vocabulary."""
    durable.write_json(
        folder / NAME,
        {
            "schema_version": SCHEMA_VERSION,
            "dataset_sha256": dataset_sha256,
            "tokenizer_sha256": durable.sha256_json(tokenizer.hashes(context.target)),
            "target_vocab_size": context.facts.vocab_size,
            "counts": {str(number): count for number, count in sorted(outcome.trained.items())},
        },
    )


def read(folder: Path, context: Context) -> Counter[int] | None:
    """How often each id is trained, as `write` left it; None where an older version left nothing.

    Raises:
        RunDirectoryError: it was counted on other samples, with another tokenizer or for another vocabulary.
    """
    file = folder / NAME
    if not file.is_file():
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    wanted = {
        "schema_version": SCHEMA_VERSION,
        "dataset_sha256": context.inputs["dataset_sha256"],
        "tokenizer_sha256": durable.sha256_json(tokenizer.hashes(context.target)),
        "target_vocab_size": context.facts.vocab_size,
    }
    pairs = ((name, found.get(name), value) for name, value in wanted.items())
    if other := [f"{name} {there}, now {value}" for name, there, value in pairs if there != value]:
        raise RunDirectoryError(
            f"{file}: tokens were not counted for this dataset and target",
            why="; ".join(other),
            fix="remove the folder of the prepare stage and run it again",
        )
    return Counter({int(number): count for number, count in found["counts"].items()})
