"""The draft's vocabulary: which of the target's tokens it can propose."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True)
class Vocabulary:
    """A draft vocabulary smaller than the target's.

    Attributes:
        targets: the target id of each draft id, ascending.
        target_size: rows of the target's vocabulary.
        seen: how many of them occur in the trained tokens.
    """

    targets: tuple[int, ...]
    target_size: int
    seen: int

    @property
    def d2t(self) -> list[int]:
        """Offset of each draft id: target id = draft id + offset."""
        return [target - draft for draft, target in enumerate(self.targets)]

    @property
    def t2d(self) -> list[bool]:
        """Whether each target id is in the draft vocabulary."""
        chosen = set(self.targets)
        return [target in chosen for target in range(self.target_size)]

    def unseen(self, counts: Mapping[int, int]) -> int:
        """How many of its tokens are not among the counted ones."""
        return sum(target not in counts for target in self.targets)


def choose(
    counts: Mapping[int, int], size: int | None, target_size: int, always: Iterable[int] = ()
) -> Vocabulary | None:
    """Choose a draft vocabulary of exactly `size` tokens; None when it is the target's whole vocabulary.

    Tokens in `always` come first, then the most frequent trained ones (the lower id on a tie), then the lowest ids not
    seen: a small corpus never shrinks the vocabulary, and the same input gives the same answer.

    Raises:
        RecipeError: `size` is larger than the target's vocabulary, or smaller than `always`.
    """
    if size is None or size == target_size:
        return None
    needed = sorted({token for token in always if 0 <= token < target_size})
    if not len(needed) <= size < target_size:
        raise RecipeError(
            f"train.draft.vocab_size: {size} tokens",
            why=f"the target has {target_size}, and {len(needed)} of them (ends of text and turn) must be in",
            fix=f"choose a number from {max(len(needed), 1)} to {target_size}, or leave it out",
        )
    frequent = sorted(counts, key=lambda token: (-counts[token], token))
    ordered = dict.fromkeys([*needed, *frequent, *range(target_size)])
    return Vocabulary(tuple(sorted(list(ordered)[:size])), target_size, len(counts))


def count(rows: Iterable[Mapping[str, Sequence[int]]]) -> Counter[int]:
    """Count the tokens that carry loss in rows of `input_ids` and `loss_mask`."""
    counts: Counter[int] = Counter()
    for row in rows:
        counts.update(token for token, used in zip(row["input_ids"], row["loss_mask"], strict=True) if used)
    return counts


def ends(*configs: Mapping[str, Any]) -> set[int]:
    """Ids that end a text or a turn, as the target's configurations name them."""
    found: set[int] = set()
    for config in configs:
        value = config.get("eos_token_id")
        found.update(value if isinstance(value, list) else [value] if isinstance(value, int) else [])
    return found
