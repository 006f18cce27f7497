"""Conversations to samples: rendered, masked, cut to length, each kept or refused by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from draftkiln.errors import DataError
from draftkiln.prepare import reasoning
from draftkiln.prepare.rows import Conversation, Refusal, RefusedRowError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from draftkiln.prepare.reasoning import Policy
    from draftkiln.prepare.template import Template

TooLong = Literal["cut", "drop", "refuse"]


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
    """What became of every row."""

    samples: list[Sample] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Rows that something happened to without refusing them, by what happened."""

    def add(self, sample: Sample) -> None:
        """Keep a sample."""
        self.samples.append(sample)
        self.counts["cut"] += sample.cut_tokens > 0

    def reasons(self) -> str:
        """Each reason of a refusal with its count and the first row."""
        first: dict[str, Refusal] = {}
        for refusal in self.refusals:
            first.setdefault(refusal.reason, refusal)
        counted = Counter(refusal.reason for refusal in self.refusals).most_common()
        return "; ".join(f"{count} x {reason}, the first: {first[reason].place()}" for reason, count in counted)

    def refuse(self, source: str, error: RefusedRowError) -> None:
        """Refuse a row."""
        self.refusals.append(Refusal(source, error.reason, error.detail))


@dataclass(frozen=True)
class Limits:
    """How long a sample may be, and what happens to a longer one."""

    max_tokens: int
    too_long: TooLong = "cut"

    def check_prompt(self, ids: list[int]) -> None:
        """Hold a prompt to the limit.

        Raises:
            RefusedRowError: it leaves no room for an answer.
        """
        if len(ids) >= self.max_tokens:
            raise RefusedRowError("no trained token", f"the prompt alone has {len(ids)} tokens")

    def apply(self, sample: Sample) -> Sample:
        """The sample within the limit; one of exactly the limit stays whole.

        Raises:
            RefusedRowError: it is too long for a recipe that does not cut, or no trained token is left.
        """
        length = len(sample.input_ids)
        if length > self.max_tokens:
            if self.too_long != "cut":
                raise RefusedRowError("too long", f"{length} tokens, the recipe allows {self.max_tokens}")
            sample = replace(
                sample,
                input_ids=sample.input_ids[: self.max_tokens],
                loss_mask=sample.loss_mask[: self.max_tokens],
                cut_tokens=length - self.max_tokens,
            )
        if not any(sample.loss_mask):
            detail = (
                f"its first {self.max_tokens} of {length} tokens are all prompt" if length > self.max_tokens else ""
            )
            raise RefusedRowError("no trained token", detail)
        return sample


def from_conversations(
    conversations: Iterable[Conversation], template: Template, limits: Limits, policy: Policy, outcome: Outcome
) -> None:
    """Render every conversation into `outcome`, as a sample or a refusal.

    Raises:
        DataError: a conversation is too long and the recipe says refuse; all of them are named.
    """
    reads_field = template.reads_reasoning()
    for conversation in conversations:
        try:
            messages, expected = reasoning.arrange(conversation.messages, policy, template_reads_field=reads_field)
            rendered = template.render(messages)
            lost = reasoning.check(template.text(messages), expected, policy) if expected else 0
            sample = Sample(conversation.source, rendered.input_ids, rendered.loss_mask)
            outcome.add(limits.apply(sample))
        except RefusedRowError as error:
            outcome.refuse(conversation.source, error)
            continue
        outcome.counts["reasoning left out"] += lost > 0
        outcome.counts["earlier answers untrained"] += rendered.untrained_answers > 0
        outcome.counts["trailing turns left out"] += conversation.dropped_turns > 0
    refuse_too_long(outcome, limits)


def refuse_too_long(outcome: Outcome, limits: Limits) -> None:
    """Fail where the recipe says `too_long: refuse` and something is.

    Raises:
        DataError: naming every row that is too long.
    """
    found = [refusal for refusal in outcome.refusals if refusal.reason == "too long"]
    if limits.too_long != "refuse" or not found:
        return
    shown = "; ".join(f"{refusal.source}: {refusal.detail}" for refusal in found[:20])
    more = f" and {len(found) - 20} more" if len(found) > 20 else ""  # noqa: PLR2004 - as many as the line above shows
    raise DataError(
        f"{len(found)} samples are longer than data.max_tokens",
        why=shown + more,
        fix="raise data.max_tokens, or let data.too_long be `cut` or `drop`",
    )


def check_share(outcome: Outcome, max_refused: float) -> None:
    """Fail where nothing is kept or more than the allowed share is refused.

    Raises:
        DataError: with the count of each reason and the first row of each.
    """
    refused, kept = len(outcome.refusals), len(outcome.samples)
    if kept and refused <= max_refused * (kept + refused):
        return
    what = f"{refused} of {kept + refused} rows are refused"
    if not kept:
        what = f"all {refused} rows are refused: nothing is left to train on"
    raise DataError(what, why=outcome.reasons(), fix="mend the rows" + (", or raise data.max_refused" if kept else ""))
