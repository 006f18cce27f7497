"""Which tokens of a rendered conversation are trained.

A token is trained when the target itself would have written it after the generation prompt: the answer and its
end-of-turn token. The proof is on ids, never on character offsets alone: the prompt before an answer, rendered without
the answer, must be a prefix of the whole; so no token before the boundary can belong to the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln.prepare.outcome import RefusedRowError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftkiln.prepare.conversation import Message
    from draftkiln.prepare.encoding import Encoded
    from draftkiln.prepare.template import Template

_EMPTY_BLOCK = re.compile(r"\s*(?:<think>)?\s*</think>")
_BLOCK_TOKENS = 8
_UNPROVABLE = "boundary of an answer not provable"


@dataclass(frozen=True)
class Rendered:
    """A conversation as text, as token ids, with the mask of trained ones (1 = trained)."""

    text: str
    input_ids: list[int]
    loss_mask: list[int]
    untrained_answers: int = 0
    """Earlier answers that the template rewrites once they are history: the target would not write them so."""


def render(template: Template, messages: Sequence[Message]) -> Rendered:
    """Text, token ids and mask of a whole conversation.

    Raises:
        RefusedRowError: the template raised, or the boundary of the last answer cannot be proved.
    """
    whole = template.encoder.encode(template.text(messages))
    if template.marks_generation:
        ids, marks = template.generation_marks(messages)
        if any(marks):
            return _marked(template, messages, whole, ids, marks)
    return _incremental(template, messages, whole)


def divergence(template: Template, prompt: Sequence[int], ids: Sequence[int]) -> str:
    """Where the ids of a prompt leave those of the whole, and what stands there."""
    pairs = zip(prompt, ids, strict=False)
    place = next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(ids)))
    there, here = (template.decode(found[place : place + 4]) for found in (prompt, ids))
    return f"the generation prompt does not begin the answered text: {here!r} for {there!r} at token {place}"


def begins_with_empty_block(template: Template, ids: Sequence[int], start: int) -> bool:
    """Whether the answer that begins at `start` begins with reasoning of no words."""
    return bool(_EMPTY_BLOCK.match(template.decode(ids[start : start + _BLOCK_TOKENS])))


def _answers(messages: Sequence[Message]) -> list[int]:
    return [position for position, turn in enumerate(messages) if turn["role"] == "assistant"]


def _incremental(template: Template, messages: Sequence[Message], whole: Encoded) -> Rendered:
    mask = [0] * len(whole.ids)
    untrained = 0
    answers = _answers(messages)
    for position in answers:
        try:
            start, end = _span(template, messages, position, whole)
        except RefusedRowError:
            if position == answers[-1]:
                raise
            untrained += 1
            continue
        mask[start:end] = [1] * (end - start)
    return Rendered(whole.text, whole.ids, mask, untrained)


def _span(template: Template, messages: Sequence[Message], position: int, whole: Encoded) -> tuple[int, int]:
    """First trained token of the answer at `position`, and the one after its last."""
    ids = whole.ids
    start = _prompt_length(template, messages, position, whole)
    upto = whole.text if position == len(messages) - 1 else template.text(messages[: position + 1])
    through = template.encoder.length(upto, whole)
    if through is None:
        raise RefusedRowError(_UNPROVABLE, "the template rewrites the answer once it is history")
    end = next((place for place in range(through, start, -1) if ids[place - 1] in template.special_ids), None)
    if end is None:
        raise RefusedRowError(_UNPROVABLE, "no special token ends it")
    _refuse_empty_block(template, ids, start)
    if rest := template.decode(ids[end:through]).strip():
        raise RefusedRowError(_UNPROVABLE, f"text after its end-of-turn token: {rest[:40]!r}")
    return start, end


def _prompt_length(template: Template, messages: Sequence[Message], position: int, whole: Encoded) -> int:
    """Tokens of the prompt that asks for the answer at `position`, which begin the whole.

    Raises:
        RefusedRowError: they do not.
    """
    prompt = template.text(messages[:position], generation_prompt=True)
    length = template.encoder.length(prompt, whole)
    if length is None:
        raise RefusedRowError(_UNPROVABLE, divergence(template, template.encoder.ids(prompt), whole.ids))
    return length


def _refuse_empty_block(template: Template, ids: Sequence[int], start: int) -> None:
    if begins_with_empty_block(template, ids, start):
        fix = "set target.template_arguments so that the prompt closes the block, or give the data's reasoning"
        raise RefusedRowError("an empty reasoning block would be trained", f"the target would not write it: {fix}")


def _marked(
    template: Template, messages: Sequence[Message], whole: Encoded, ids: list[int], marks: list[int]
) -> Rendered:
    """The template's own marks, held to the ids: no answer begins inside of the prompt that asks for it."""
    if ids != whole.ids:
        raise RefusedRowError(_UNPROVABLE, "the marked text has other token ids than the text without marks")
    mask = _through_end_of_turn(template, ids, marks)
    for position in _answers(messages):
        length = template.encoder.length(template.text(messages[:position], generation_prompt=True), whole)
        if length is None:
            continue
        first = _last_run(mask) if position == _answers(messages)[-1] else length - 1
        if first < length and mask[first]:
            raise RefusedRowError(_UNPROVABLE, f"the template marks token {first} of a prompt of {length} tokens")
    _refuse_empty_block(template, ids, _last_run(mask))
    return Rendered(whole.text, ids, mask)


def _last_run(mask: Sequence[int]) -> int:
    """Where the last run of trained tokens begins."""
    return max(place for place, bit in enumerate(mask) if bit and not (place and mask[place - 1]))


def _runs(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Beginning and end of each run of ones."""
    start = None
    for place, bit in enumerate([*mask, 0]):
        if bit and start is None:
            start = place
        elif not bit and start is not None:
            yield start, place
            start = None


def _through_end_of_turn(template: Template, ids: Sequence[int], marks: Sequence[int]) -> list[int]:
    """Let each run of marked tokens end with its end-of-turn token: white space after it out, it itself in."""
    out = [0] * len(ids)
    for start, stop in _runs(marks):
        end = stop
        specials = [place for place in range(start, stop) if ids[place] in template.special_ids]
        if specials and not template.decode(ids[specials[-1] + 1 : stop]).strip():
            end = specials[-1] + 1
        elif stop < len(ids) and ids[stop] in template.special_ids:
            end = stop + 1
        out[start:end] = [1] * (end - start)
    return out
