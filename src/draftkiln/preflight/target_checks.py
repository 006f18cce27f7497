"""The recipe against the target's files: layers, sizes, tokenizer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from draftkiln import layers
from draftkiln.preflight.finding import Finding, failed, passed, unknown, warned
from draftkiln.seams.extract import LAST_PATCHABLE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from draftkiln.recipe.model import Recipe
    from draftkiln.target.facts import TargetFacts


def check_generator(release: str) -> Finding:
    """Whether the stack's speculators still has the generator that extracts."""
    if Version(release) > Version(LAST_PATCHABLE):
        reason = f"speculators {release} has none: {LAST_PATCHABLE} is the last release that extracts"
        return failed("generator", reason, "name a stack with 0.3.0 or 0.4.x under stacks.extract, or with --stack")
    return passed("generator", f"speculators {release}")


def check_layers(recipe: Recipe, facts: TargetFacts) -> Finding:
    """Layer ids against the text part's number of layers."""
    aux, count = recipe.layers.aux, facts.num_layers
    wrong = layers.problems(aux, count)
    if wrong:
        return failed("layer ids", "; ".join(wrong), f"name three ascending ids within 1..{count - 1} under layers.aux")
    default = layers.default_aux_ids(count)
    served = f"ids {', '.join(map(str, aux))} and {count} of {count} layers"
    if tuple(aux) != default:
        return passed(
            "layer ids", f"{served} (vLLM's own default would be {default}; the draft's config carries yours)"
        )
    return passed("layer ids", served)


def check_lengths(recipe: Recipe, facts: TargetFacts) -> Finding:
    """Sample length against the model's positions and the step's token budget."""
    longest = recipe.data.max_tokens
    if facts.max_positions and longest > facts.max_positions:
        fix = f"lower data.max_tokens to {facts.max_positions}"
        return failed("sample length", f"{longest} tokens, the target has {facts.max_positions} positions", fix)
    if longest > recipe.extract.token_budget:
        reason = f"samples of {longest} tokens are split across steps of {recipe.extract.token_budget}"
        return warned("sample length", reason, "raise extract.token_budget to data.max_tokens or more")
    return passed("sample length", f"{longest} tokens, positions {facts.max_positions or 'not stated'}")


def check_parallelism(recipe: Recipe, facts: TargetFacts) -> Finding:
    """Whether the attention heads divide over the devices."""
    size = recipe.target.tensor_parallel_size
    if facts.num_heads % size:
        fix = f"take a divisor of {facts.num_heads} as target.tensor_parallel_size"
        return failed("tensor parallel size", f"{facts.num_heads} heads do not divide over {size} devices", fix)
    return passed("tensor parallel size", f"{facts.num_heads} heads over {size} device{'s' if size > 1 else ''}")


def check_weights(recipe: Recipe, facts: TargetFacts) -> Finding:
    """Whether the weights are complete."""
    if recipe.target.load_format == "dummy":
        return warned("weights", "load_format is dummy: the values are made up", "use it for speed tests only")
    if not facts.has_weights:
        return failed("weights", f"{facts.path} has no complete weights", "fetch the target again; it resumes")
    quantized = f", {facts.quantization}" if facts.quantization else ""
    return passed("weights", f"{facts.weight_bytes / 1e9:.2f} GB, {facts.dtype}{quantized}")


def check_tokenizer(recipe: Recipe, facts: TargetFacts) -> Finding:
    """Tokenizer class, remote code and special tokens, as far as files tell."""
    settings = _read(facts.path / "tokenizer_config.json")
    fast = (facts.path / "tokenizer.json").is_file()
    name = settings.get("tokenizer_class") or ("a tokenizer.json" if fast else "")
    if not name:
        return failed("tokenizer", f"{facts.path} has none", "copy the tokenizer's files beside the weights")
    if facts.tokenizer_needs_remote_code and not recipe.target.trust_remote_code:
        fix = "read its Python file, then set target.trust_remote_code: true"
        return failed(
            "tokenizer", f"{name} is Python code of the target directory, which the recipe does not allow", fix
        )
    wrong, unseen = _special_tokens(recipe.target.must_be_single_token, _known_tokens(facts.path, settings))
    if wrong:
        return failed("tokenizer", "; ".join(wrong), "take the tokenizer of the pinned revision")
    if unseen:
        reason = f"{name}; files do not say whether {', '.join(unseen)} are single tokens"
        return unknown("tokenizer", reason, "the prepare stage asks the loaded tokenizer")
    kind = "remote code" if facts.tokenizer_needs_remote_code else "fast" if fast else "slow"
    return passed(
        "tokenizer", f"{name} ({kind}), {len(recipe.target.must_be_single_token)} special tokens as the recipe says"
    )


def _special_tokens(wanted: Mapping[str, int | None], known: Mapping[str, int]) -> tuple[list[str], list[str]]:
    wrong = [
        f"{text!r} is token {known[text]}, the recipe says {number}"
        for text, number in wanted.items()
        if text in known and number is not None and known[text] != number
    ]
    return wrong, [text for text in wanted if text not in known]


def _known_tokens(path: Path, settings: Mapping[str, Any]) -> dict[str, int]:
    """Ids of added tokens, from tokenizer_config.json and tokenizer.json."""
    known = {}
    for number, entry in (settings.get("added_tokens_decoder") or {}).items():
        if isinstance(entry, dict) and str(number).isdigit():
            known[str(entry.get("content"))] = int(number)
    for entry in _read(path / "tokenizer.json").get("added_tokens") or []:
        if isinstance(entry, dict) and isinstance(entry.get("id"), int):
            known[str(entry.get("content"))] = entry["id"]
    return known


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
