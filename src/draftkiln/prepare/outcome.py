"""The account of every row: kept as samples or refused with a reason, and what happened to it besides."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field

EXAMPLES = 20
"""Refused rows of each reason that are named in messages and in the report; all of them are in refused.jsonl."""


class RefusedRowError(Exception):
    """A row that is not trained on: the reason (one of few, counted) and what was seen in this row."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Refusal:
    """A row that was refused: where it stands, and why."""

    source: str
    reason: str
    detail: str = ""

    def place(self) -> str:
        """Where it stands, with what was seen there."""
        return f"{self.source}: {self.detail}" if self.detail else self.source


@dataclass(frozen=True)
class Sample:
    """One training sequence: `input_ids` int `[T]`, `loss_mask` 0/1 `[T]` (1 = trained), and where it came from."""

    source: str
    input_ids: list[int]
    loss_mask: list[int]
    cut_tokens: int = 0
    """Tokens cut from its end."""


@dataclass
class Outcome:
    """What became of every row: sums that do not grow with the data, and the rows themselves as `store` keeps them."""

    samples: list[Sample] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Rows that something happened to without refusing them, by what happened."""
    kept_rows: int = 0
    kept_samples: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Refused rows by reason."""
    examples: dict[str, list[Refusal]] = field(default_factory=dict)
    """The first rows refused for each reason."""
    lengths: Counter[int] = field(default_factory=Counter)
    """Samples by their length in tokens."""
    trained: Counter[int] = field(default_factory=Counter)
    """Trained tokens by id."""

    def __post_init__(self) -> None:
        for refusal in self.refusals:
            self._count(refusal)

    def add(self, *parts: Sample) -> None:
        """Keep a row: one sample, or the parts that it was split into."""
        self.kept_rows += 1
        self.counts["cut"] += any(sample.cut_tokens > 0 for sample in parts)
        self.counts["split"] += len(parts) > 1
        for sample in parts:
            self.kept_samples += 1
            self.lengths[len(sample.input_ids)] += 1
            self.trained.update(itertools.compress(sample.input_ids, sample.loss_mask))
            self.store(sample)

    def note(self, refusal: Refusal) -> None:
        """Refuse a row."""
        self._count(refusal)
        self.store_refusal(refusal)

    def refuse(self, source: str, error: RefusedRowError) -> None:
        """Refuse a row by the error that it raised."""
        self.note(Refusal(source, error.reason, error.detail))

    def store(self, sample: Sample) -> None:
        """Keep a sample in memory."""
        self.samples.append(sample)

    def store_refusal(self, refusal: Refusal) -> None:
        """Keep a refusal in memory."""
        self.refusals.append(refusal)

    @property
    def refused_rows(self) -> int:
        """How many rows are refused."""
        return self.refused.total()

    @property
    def tokens(self) -> int:
        """Tokens of all samples."""
        return sum(length * count for length, count in self.lengths.items())

    @property
    def trained_tokens(self) -> int:
        """Trained tokens of all samples."""
        return self.trained.total()

    def length_summary(self) -> dict[str, float] | None:
        """Least, median and greatest length in tokens; None without samples."""
        if not self.lengths:
            return None
        ordered = sorted(self.lengths)
        low, high = (self._length_at(rank) for rank in (math.floor(_middle(self)), math.ceil(_middle(self))))
        return {"min": ordered[0], "median": (low + high) / 2 if low != high else low, "max": ordered[-1]}

    def reasons(self) -> str:
        """Each reason of a refusal with its count and the first row."""
        return "; ".join(
            f"{count} x {reason}, the first: {self.examples[reason][0].place()}"
            for reason, count in self.refused.most_common()
        )

    def _count(self, refusal: Refusal) -> None:
        self.refused[refusal.reason] += 1
        shown = self.examples.setdefault(refusal.reason, [])
        if len(shown) < EXAMPLES:
            shown.append(refusal)

    def _length_at(self, rank: int) -> int:
        seen = 0
        for length in sorted(self.lengths):
            seen += self.lengths[length]
            if seen > rank:
                return length
        raise IndexError(rank)


def _middle(outcome: Outcome) -> float:
    return (outcome.lengths.total() - 1) / 2
