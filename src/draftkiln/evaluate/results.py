"""What a measurement came to: the figures of every round, what they are compared with, and what is refused."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from draftkiln.errors import EvaluationError
from draftkiln.evaluate import measure
from draftkiln.evaluate.job import GREEDY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from draftkiln.evaluate.job import Round
    from draftkiln.evaluate.measure import Divergence

SCHEMA_VERSION = 1
ENOUGH_SAMPLES = 100_000
"""Fewer show that the steps work. Drafts worth serving were trained on several hundred thousand conversations whose
answers the target wrote itself (vllm-project/speculators #751, sgl-project/SpecForge #113, #128)."""


@dataclass(frozen=True)
class Measured:
    """One set, drawn in one way, with the draft and without."""

    drafted: Round
    alone: Round | None
    num_draft_tokens: int
    differ: list[Divergence] = field(default_factory=list)
    """Only greedy answers are compared: sampled ones may differ."""

    @classmethod
    def of(cls, drafted: Round, alone: Round | None, num_draft_tokens: int) -> Measured:
        """Compare a round with that of the target alone, where there is one."""
        compared = alone is not None and drafted.sampling == GREEDY
        differ = measure.divergences(alone.outputs, drafted.outputs) if alone is not None and compared else []
        return cls(drafted, alone, num_draft_tokens, differ)

    def as_results(self) -> dict[str, Any]:
        """The figures of this round.

        Raises:
            EvaluationError: nothing was drafted.
        """
        drafted, alone = self.drafted, self.alone
        return {
            **measure.acceptance(drafted.counters).as_results(),
            "num_draft_tokens": self.num_draft_tokens,
            "prompts": len(drafted.outputs),
            "answers": len(drafted.answers),
            "tokens": drafted.tokens,
            "lossless": not self.differ if alone is not None and drafted.sampling == GREEDY else None,
            "tokens_per_second": measure.rate(drafted.tokens, drafted.seconds),
            "tokens_per_second_alone": None if alone is None else measure.rate(alone.tokens, alone.seconds),
            # A server may keep the token ids to itself.
            "unigram_length": round(measure.unigram_length(drafted.answers, self.num_draft_tokens), 4)
            if any(drafted.answers)
            else None,
        }

    def as_report(self, prompts_sha256: str, file_sha256: str) -> dict[str, Any]:
        """The same with what they were measured on."""
        return {
            "set": self.drafted.set,
            "sampling": asdict(self.drafted.sampling),
            **self.as_results(),
            "prompts_sha256": prompts_sha256,
            "file_sha256": file_sha256,
            "divergences": [asdict(one) for one in self.differ],
        }


def lines(report: Mapping[str, Any]) -> str:
    """One round for people."""
    positions = ", ".join(f"{share:.2f}" for share in report["acceptance_per_position"])
    alone = report["tokens_per_second_alone"]
    temperature = report["sampling"]["temperature"]
    drawn = f"temperature {temperature:g}" if temperature else "greedy"
    unigram = report["unigram_length"]
    turns = f", {report['answers']} turns" if report["answers"] != report["prompts"] else ""
    return (
        f"{report['set']} ({report['prompts']} prompts{turns}, {drawn}): "
        f"acceptance length {report['acceptance_length']:.3f} ({positions}; {report['drafts']} drafts"
        + (f"; always the most frequent token: {unigram:.2f}" if unigram is not None else "")
        + f"), {report['tokens_per_second']:.1f} tok/s"
        + (f", {alone:.1f} without the draft" if alone is not None else "")
    )


def expectation(trained_on: Mapping[str, Any]) -> str:
    """What a person may expect of the figures, from what the draft was trained on."""
    told = f"trained on {trained_on['samples']} samples, {trained_on['tokens']} tokens, answers {trained_on['answers']}"
    if trained_on["samples"] >= ENOUGH_SAMPLES and trained_on["on_policy"]:
        return told
    return (
        f"{told}: this shows that the steps work, not what a draft can reach "
        f"(that takes {ENOUGH_SAMPLES} samples or more, with answers by the target)"
    )


def refuse_lossy(rounds: Sequence[Measured], where: str, decode: Callable[[int], str] | None = None) -> None:
    """Refuse a draft that changes what the greedy target answers, showing the first difference.

    Args:
        rounds: all.
        where: the result file.
        decode: a token's text.

    Raises:
        EvaluationError: an answer differs.
    """
    lossy = [one for one in rounds if one.differ]
    if not lossy:
        return
    total = sum(len(one.differ) for one in lossy)
    count = sum(len(one.drafted.outputs) for one in rounds if one.drafted.sampling == GREEDY)
    first = lossy[0].differ[0]
    turn = f", turn {first.turn}" if first.turn else ""
    raise EvaluationError(
        f"greedy answers to {total} of {count} prompts change when the draft is used",
        why=f"the first is prompt {first.prompt}{turn} of set {lossy[0].drafted.set}, after {first.position} equal "
        f"tokens: alone {_told(first.alone, decode)}, with the draft {_told(first.drafted, decode)}",
        fix=f"look at {where}; a draft must not change what a greedy target answers",
    )


def refuse_below(reports: Sequence[Mapping[str, Any]], least: float | None) -> None:
    """Refuse acceptance lengths under what was asked with `--fail-under`.

    Raises:
        EvaluationError: naming every set that is below.
    """
    if least is None:
        return
    below = [one for one in reports if one["acceptance_length"] < least]
    if below:
        told = ", ".join(f"{_named(one)} {one['acceptance_length']:.3f}" for one in below)
        raise EvaluationError(
            f"acceptance length under {least:g}: {told}",
            why="--fail-under asks for more on every set",
            fix="train on more data, or ask for less",
        )


def _named(report: Mapping[str, Any]) -> str:
    temperature = report.get("sampling", {}).get("temperature")
    return f"{report.get('set', 'held-out')}" + (f" (temperature {temperature:g})" if temperature else "")


def _told(token: int | None, decode: Callable[[int], str] | None) -> str:
    if token is None:
        return "the answer ends"
    return f"token {token}" + (f" {decode(token)!r}" if decode is not None else "")
