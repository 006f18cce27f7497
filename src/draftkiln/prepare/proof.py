"""The proof, before any row, that a template's masks come out right: on a conversation of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln.errors import DataError
from draftkiln.prepare import masks
from draftkiln.prepare.conversation import REASONING_FIELDS
from draftkiln.prepare.outcome import RefusedRowError

if TYPE_CHECKING:
    from draftkiln.prepare.conversation import Message
    from draftkiln.prepare.masks import Rendered
    from draftkiln.prepare.template import Template

_ANSWERS = ("The answer is here.", "Something else entirely, and longer.")


@dataclass(frozen=True)
class Proof:
    """How the masks of this template are proved."""

    method: str
    """`generation markers` of the template, or `incremental rendering`."""
    end_of_turn: str
    """The token that ends an answer."""


def prove(template: Template) -> Proof:
    """Show on a conversation of our own that masks come out right with a template.

    Raises:
        DataError: they cannot be proved right; the message names the tokenizer's class and the reason.
    """
    try:
        return _proved(template)
    except RefusedRowError as error:
        raise DataError(
            f"the loss mask cannot be proved right with the chat template of {type(template.tokenizer).__name__}",
            why=str(error),
            fix="set target.template_arguments (such as `enable_thinking: false`), let the target answer "
            "(data.answers), or use a tokenizer whose template marks answers with {% generation %}",
        ) from error


def check_prompt(template: Template) -> None:
    """Hold the prompts of a template to what need be true where the target itself writes the answers.

    Raises:
        DataError: prompts cannot be rendered, or begin with two BOS tokens.
    """
    try:
        _refuse_doubled_bos(template, template.ids(_conversation(), generation_prompt=True))
    except RefusedRowError as error:
        raise DataError(
            f"no prompt can be made with the chat template of {type(template.tokenizer).__name__}",
            why=str(error),
            fix="mend the tokenizer's files, or use the model revision that the recipe was made for",
        ) from error


def _proved(template: Template) -> Proof:
    if not template.tokenizer.chat_template:
        raise RefusedRowError("the tokenizer has no chat template")
    thoughts = dict.fromkeys(REASONING_FIELDS, "A thought.") if _wants_reasoning(template) else {}
    first, second = (_checked(template, _conversation(answer, **thoughts)) for answer in _ANSWERS)
    if first.input_ids == second.input_ids:
        raise RefusedRowError("two different answers give the same token ids")
    last = max(position for position, bit in enumerate(first.loss_mask) if bit)
    method = "generation markers" if template.marks_generation else "incremental rendering"
    return Proof(method, template.decode([first.input_ids[last]]))


def _conversation(*answers: str, **fields: str) -> list[Message]:
    turns = [{"role": "assistant", "content": text, **fields} for text in answers]
    return [{"role": "user", "content": "A question."}, *turns]


def _wants_reasoning(template: Template) -> bool:
    """Whether an answer without reasoning gets an empty block of it after the generation prompt."""
    ids = template.ids(_conversation(_ANSWERS[0]))
    prompt = template.ids(_conversation(), generation_prompt=True)
    return ids[: len(prompt)] == prompt and masks.begins_with_empty_block(template, ids, len(prompt))


def _checked(template: Template, messages: list[Message]) -> Rendered:
    """The rendered conversation, whose mask is right."""
    rendered = template.render(messages)
    ids, mask = rendered.input_ids, rendered.loss_mask
    if ids != template.ids(messages):
        raise RefusedRowError("the tokenizer gives a conversation other token ids than its rendered text")
    if not any(mask) or all(mask):
        raise RefusedRowError(f"{sum(mask)} of {len(mask)} tokens come out as trained")
    start, end = mask.index(1), len(mask) - mask[::-1].index(1)
    if not all(mask[start:end]):
        raise RefusedRowError("the trained tokens of one answer are not in a row")
    prompt = template.ids(messages[:1], generation_prompt=True)
    if ids[: len(prompt)] != prompt or start < len(prompt):
        raise RefusedRowError(masks.divergence(template, prompt, ids))
    if ids[end - 1] not in template.special_ids:
        raise RefusedRowError("no special token ends an answer, so the draft could not learn to stop")
    _refuse_doubled_bos(template, ids)
    return rendered


def _refuse_doubled_bos(template: Template, ids: list[int]) -> None:
    if template.doubled_bos(ids):
        raise RefusedRowError("the BOS token comes out twice")
