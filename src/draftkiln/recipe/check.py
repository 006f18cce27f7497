"""Checks that need the target's facts or the repository's stacks: what a recipe alone cannot tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftkiln import layers

if TYPE_CHECKING:
    from collections.abc import Collection

    from draftkiln.recipe.model import Recipe
    from draftkiln.target.facts import TargetFacts


def problems_on_target(recipe: Recipe, facts: TargetFacts) -> list[str]:
    """What is wrong with `recipe` on this target, each as `key.path: what; what to do`; empty when nothing is."""
    return [
        *_layers(recipe, facts),
        *_tensor_parallel(recipe, facts),
        *_lengths(recipe, facts),
        *_vocabulary(recipe, facts),
    ]


def unknown_stacks(recipe: Recipe, known: Collection[str]) -> dict[str, str]:
    """Keys of the section `stacks` whose value is none of `known`, and that value."""
    named: dict[str, str] = recipe.stacks.model_dump(by_alias=True, exclude_none=True)
    return {key: name for key, name in named.items() if name not in known}


def _layers(recipe: Recipe, facts: TargetFacts) -> list[str]:
    found = layers.problems(recipe.layers.aux, facts.num_layers)
    if not found:
        return []
    default = layers.default_aux_ids(facts.num_layers)
    if layers.problems(default, facts.num_layers):
        advice = (
            f"the default {list(default)} does not fit a target this shallow either: "
            f"name three different ids in 1..{facts.num_layers - 1}"
        )
    else:
        advice = f"for example {list(default)}, which vLLM captures by default"
    return [f"layers.aux: {problem}; {advice}" for problem in found]


def _tensor_parallel(recipe: Recipe, facts: TargetFacts) -> list[str]:
    size, heads = recipe.target.tensor_parallel_size, facts.num_heads
    if heads % size == 0:
        return []
    fits = [number for number in range(1, min(heads, 64) + 1) if heads % number == 0]
    return [
        f"target.tensor_parallel_size: {size} does not divide the target's {heads} attention heads; use one of {fits}"
    ]


def _lengths(recipe: Recipe, facts: TargetFacts) -> list[str]:
    longest, asked = facts.max_positions, recipe.data.max_tokens
    if not longest or asked <= longest:
        return []
    return [
        f"data.max_tokens: {asked} is more than the {longest} positions of the target; lower it to at most {longest}"
    ]


def _vocabulary(recipe: Recipe, facts: TargetFacts) -> list[str]:
    draft = recipe.train.draft.vocab_size
    if draft is None or draft <= facts.vocab_size:
        return []
    return [f"train.draft.vocab_size: {draft} is more than the target's {facts.vocab_size}; lower it or leave it out"]
