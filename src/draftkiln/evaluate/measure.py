"""What two sets of answers say: acceptance, speed, and whether the draft changed the output."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

    def as_results(self) -> dict[str, Any]:
        """The figures under the names that result files use."""
        return {
            "acceptance_length": round(self.length, 4),
            "acceptance_per_position": [round(share, 4) for share in self.per_position],
            "drafts": self.drafts,
            "accepted": self.accepted,
        }


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


def unigram_length(outputs: Sequence[Sequence[int]], num_draft_tokens: int) -> float:
    """Acceptance length of the simplest draft there is: always the most frequent token of these very answers.

    A draft that has learnt anything is above it. The walk is that of greedy verification: a step yields the drafted
    tokens that the target agrees with, and one of its own.
    """
    counts = Counter(token for output in outputs for token in output)
    if not counts:
        return 1.0
    token = counts.most_common(1)[0][0]
    steps = accepted = 0
    for output in outputs:
        place = 1  # the first token is the prompt's own answer, drafted by nobody
        while place < len(output):
            run = 0
            while run < num_draft_tokens and place + run < len(output) and output[place + run] == token:
                run += 1
            steps, accepted, place = steps + 1, accepted + run, place + run + 1
    return 1 + accepted / steps if steps else 1.0


@dataclass(frozen=True)
class Divergence:
    """Where an answer with the draft leaves the answer of the target alone."""

    prompt: int
    turn: int
    """0 = the first; a later one is compared where all before it are equal."""
    position: int
    """Tokens that agree."""
    alone: int | None = None
    """The token of the target alone there; None where its answer ended."""
    drafted: int | None = None


def divergences(
    alone: Sequence[Sequence[Sequence[int]]], drafted: Sequence[Sequence[Sequence[int]]]
) -> list[Divergence]:
    """Every prompt whose answers differ in some turn, and where they part: later turns answer other prompts."""
    found = []
    for index, turns in enumerate(zip(alone, drafted, strict=True)):
        for turn, (one, other) in enumerate(zip(*turns, strict=True)):
            if list(one) != list(other):
                place = agreed(one, other)
                found.append(Divergence(index, turn, place, _at(one, place), _at(other, place)))
                break
    return found


def agreed(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many tokens, or characters, two answers share from their start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _at(tokens: Sequence[int], place: int) -> int | None:
    return tokens[place] if place < len(tokens) else None


def rate(tokens: int, seconds: float) -> float:
    """Tokens a second."""
    return round(tokens / seconds, 1) if seconds > 0 else 0.0
