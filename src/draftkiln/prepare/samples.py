"""Rows to samples: rendered, masked, cut to length, each kept or refused by name."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from draftkiln.errors import DataError
from draftkiln.prepare import rawtext, reasoning, toolcalls, turns
from draftkiln.prepare.conversation import TextRow
from draftkiln.prepare.outcome import EXAMPLES, Refusal, RefusedRowError, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable

    from draftkiln.prepare.conversation import Conversation, Message, Row
    from draftkiln.prepare.outcome import Outcome
    from draftkiln.prepare.reasoning import Policy
    from draftkiln.prepare.template import Template
    from draftkiln.recipe.model import RawText

TooLong = Literal["cut", "split", "drop", "refuse"]
_TOO_LONG = "too long"


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
            if self.too_long in {"drop", "refuse"}:
                raise RefusedRowError(_TOO_LONG, f"{length} tokens, the recipe allows {self.max_tokens}")
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

    def parts(self, sample: Sample) -> tuple[Sample, ...]:
        """The samples that a row gives: one, or where the recipe splits, pieces one after the other.

        A piece begins where the one before it ends, in the middle of a turn where need be; one without a trained token
        is left out.

        Raises:
            RefusedRowError: as `apply` does.
        """
        length = len(sample.input_ids)
        if self.too_long != "split" or length <= self.max_tokens:
            return (self.apply(sample),)
        pieces = tuple(
            replace(
                sample,
                source=f"{sample.source} part {number}",
                input_ids=sample.input_ids[start : start + self.max_tokens],
                loss_mask=sample.loss_mask[start : start + self.max_tokens],
            )
            for number, start in enumerate(range(0, length, self.max_tokens), 1)
        )
        trained = tuple(piece for piece in pieces if any(piece.loss_mask))
        if not trained:
            raise RefusedRowError("no trained token", f"in none of its {len(pieces)} parts")
        return trained


@dataclass(frozen=True)
class Made:
    """What one row gave: its samples, and what happened to it besides."""

    parts: tuple[Sample, ...]
    counts: tuple[str, ...] = ()

    def into(self, outcome: Outcome) -> None:
        """Add it to the account."""
        outcome.add(*self.parts)
        outcome.counts.update(self.counts)


@dataclass(frozen=True)
class Renderer:
    """Turns rows into samples; without state between rows, so their order and number of workers change nothing."""

    template: Template
    limits: Limits
    policy: Policy = "template"
    raw_text: RawText | None = None

    @functools.cached_property
    def _reads_field(self) -> bool:
        return self.template.reads_reasoning()

    @functools.cached_property
    def _special_tokens(self) -> turns.SpecialTokens:
        return turns.SpecialTokens.of(self.template)

    @functools.cached_property
    def _call_style(self) -> toolcalls.Style | None:
        return toolcalls.style_of(self.template)

    def render(self, row: Row) -> Made | Refusal:
        """The samples of a row, or why it has none."""
        try:
            if isinstance(row, TextRow):
                return self._text(row)
            return self._conversation(row)
        except RefusedRowError as error:
            return Refusal(row.source, error.reason, error.detail)

    def _text(self, row: TextRow) -> Made:
        if self.raw_text is None:
            raise RefusedRowError("raw text without a rule", "the recipe has no data.raw_text")
        ids, mask = rawtext.render(self.template.tokenizer, row.text, self.raw_text)
        return Made(self.limits.parts(Sample(row.source, ids, mask)))

    def prompt_ids(self, prompt: Conversation) -> list[int]:
        """Token ids that ask for an answer to `prompt`.

        Raises:
            RefusedRowError: the template raised, or they leave no room for an answer.
        """
        template, messages, _ = self._arranged(prompt)
        ids = template.ids(messages, generation_prompt=True)
        self.limits.check_prompt(ids)
        return ids

    def _arranged(self, row: Conversation) -> tuple[Template, list[Message], list[str]]:
        """The template bound to a row's tools, the messages as it wants them, and the reasoning it should write."""
        messages, expected = reasoning.arrange(row.messages, self.policy, template_reads_field=self._reads_field)
        template = self.template.bound(tools=list(row.tools)) if row.tools else self.template
        if any("tool_calls" in turn for turn in messages):
            messages = toolcalls.arrange(messages, self._call_style)
        self._special_tokens.refuse_special_tokens(messages)
        return template, messages, expected

    def _conversation(self, row: Conversation) -> Made:
        template, messages, expected = self._arranged(row)
        rendered = template.render(messages)
        if template.doubled_bos(rendered.input_ids):
            raise RefusedRowError("the BOS token comes out twice")
        text = rendered.text
        turns.check(text, messages)
        if row.tools or any("tool_calls" in turn for turn in messages):
            toolcalls.check(text, template.text(turns.before_answers(messages)), messages, row.tools)
        lost = reasoning.check(text, expected, self.policy) if expected else 0
        happened = {
            "reasoning left out": lost > 0,
            "earlier answers untrained": rendered.untrained_answers > 0,
            "trailing turns left out": row.dropped_turns > 0,
        }
        parts = self.limits.parts(Sample(row.source, rendered.input_ids, rendered.loss_mask))
        return Made(parts, tuple(name for name, true in happened.items() if true))


def from_conversations(
    conversations: Iterable[Row], template: Template, limits: Limits, policy: Policy, outcome: Outcome
) -> None:
    """Render every conversation into `outcome`, as a sample or a refusal.

    Raises:
        DataError: a conversation is too long and the recipe says refuse; the first of them are named.
    """
    renderer = Renderer(template, limits, policy)
    for conversation in conversations:
        record(renderer.render(conversation), outcome)
    refuse_too_long(outcome, limits)


def record(made: Made | Refusal, outcome: Outcome) -> None:
    """Add what became of a row to the account."""
    if isinstance(made, Refusal):
        outcome.note(made)
    else:
        made.into(outcome)


def refuse_too_long(outcome: Outcome, limits: Limits) -> None:
    """Fail where the recipe says `too_long: refuse` and something is.

    Raises:
        DataError: naming the first rows that are too long.
    """
    count = outcome.refused[_TOO_LONG]
    if limits.too_long != "refuse" or not count:
        return
    shown = "; ".join(f"{refusal.source}: {refusal.detail}" for refusal in outcome.examples[_TOO_LONG])
    more = f" and {count - EXAMPLES} more" if count > EXAMPLES else ""
    raise DataError(
        f"{count} samples are longer than data.max_tokens",
        why=shown + more,
        fix="raise data.max_tokens, or let data.too_long be `cut` or `drop`",
    )


def check_share(outcome: Outcome, max_refused: float) -> None:
    """Fail where nothing is kept or more than the allowed share is refused.

    Raises:
        DataError: with the count of each reason and the first row of each.
    """
    refused, kept = outcome.refused_rows, outcome.kept_rows
    if kept and refused <= max_refused * (kept + refused):
        return
    what = f"{refused} of {kept + refused} rows are refused"
    if not kept:
        what = f"all {refused} rows are refused: nothing is left to train on"
    raise DataError(what, why=outcome.reasons(), fix="mend the rows" + (", or raise data.max_refused" if kept else ""))
