"""What two sets of answers say: acceptance, speed, and whether the draft changed the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln.errors import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Acceptance:
    """How far the target followed its draft."""

    length: float
    """Mean tokens a step of the target yields: 1 + accepted draft tokens a draft; 1.0 = nothing accepted."""
    per_position: tuple[float, ...]
    """Share of drafts whose tokens 1..k were all accepted, for each k."""
    drafts: int
    accepted: int


def acceptance(counters: Mapping[str, int | Sequence[int]]) -> Acceptance:
    """Acceptance out of the engine's own counters.

    Raises:
        EvaluationError: nothing was drafted, so there is nothing to measure.
    """
    drafts, accepted = counters.get("drafts", 0), counters.get("accepted", 0)
    positions = counters.get("accepted_per_position", ())
    if not isinstance(drafts, int | float) or not isinstance(accepted, int | float) or not drafts:
        raise EvaluationError(
            "the engine drafted nothing",
            why="its counter of drafts is zero: no answer was long enough, or the draft was not used",
            fix="raise evaluate.max_tokens, or set evaluate.ignore_eos for a target that ends at once",
        )
    shares = tuple(count / drafts for count in positions) if not isinstance(positions, int | float) else ()
    return Acceptance(1 + accepted / drafts, shares, int(drafts), int(accepted))


@dataclass(frozen=True)
class Divergence:
    """Where an answer with the draft leaves the answer of the target alone."""

    prompt: int
    position: int
    """Tokens that agree."""


def divergences(alone: Sequence[Sequence[int]], drafted: Sequence[Sequence[int]]) -> list[Divergence]:
    """Every prompt whose two answers differ, and where they part."""
    found = []
    for index, (one, other) in enumerate(zip(alone, drafted, strict=True)):
        if list(one) != list(other):
            agreed = next(
                (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
            )
            found.append(Divergence(index, agreed))
    return found
