"""The target's own chat template: conversations as token ids, and which of them are trained.

A token is trained when the target itself would have written it after the generation prompt: the answer and its
end-of-turn token. The proof is on ids, never on character offsets alone: the prompt before an answer, rendered without
the answer, must be a prefix of the whole; so no token before the boundary can belong to the answer.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import DataError
from draftkiln.prepare.conversation import REASONING_FIELDS
from draftkiln.prepare.outcome import RefusedRowError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from draftkiln.prepare.conversation import Message

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_EMPTY_BLOCK = re.compile(r"\s*(?:<think>)?\s*</think>")
_BLOCK_TOKENS = 8
_UNPROVABLE = "boundary of an answer not provable"
_PROBES = ("The answer is here.", "Something else entirely, and longer.")


@dataclass(frozen=True)
class Rendered:
    """Token ids of a conversation, the mask of trained ones (1 = trained), and answers that could not be trained."""

    input_ids: list[int]
    loss_mask: list[int]
    untrained_answers: int = 0


@dataclass(frozen=True)
class Proof:
    """How the masks of this template are proved."""

    method: str
    """`generation markers` of the template, or `incremental rendering`."""
    end_of_turn: str
    """The token that ends an answer."""


class Template:
    """Renders conversations with a tokenizer's chat template and `arguments` for it."""

    def __init__(self, tokenizer: Any, arguments: Mapping[str, Any] | None = None) -> None:
        self.tokenizer = tokenizer
        self.arguments = dict(arguments or {})
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self.special_ids = set(tokenizer.all_special_ids) | {number for number, token in added.items() if token.special}
        self.marks_generation = bool(tokenizer.is_fast) and bool(_GENERATION.search(template_text(tokenizer)))

    def bound(self, **arguments: Any) -> Template:
        """This template with further arguments, such as the `tools` of a row."""
        other = copy.copy(self)
        other.arguments = self.arguments | arguments
        return other

    def ids(self, messages: Sequence[Message], *, generation_prompt: bool = False) -> list[int]:
        """Token ids of `messages`, with or without the header after which the target answers.

        Raises:
            RefusedRowError: the template raised.
        """
        return [int(number) for number in self._apply(messages, generation_prompt=generation_prompt)["input_ids"]]

    def text(self, messages: Sequence[Message]) -> str:
        """The rendered text of `messages`.

        Raises:
            RefusedRowError: the template raised.
        """
        rendered = self._apply(messages, tokenize=False, return_dict=False)
        return str(rendered)

    def reads_reasoning(self) -> bool:
        """Whether the template writes the reasoning that an answer carries in a field of its own."""
        mark = "a line of reasoning"
        answer = {"role": "assistant", "content": _PROBES[0]} | dict.fromkeys(REASONING_FIELDS, mark)
        return mark in self.text([*self._probe(), answer])

    def render(self, messages: Sequence[Message]) -> Rendered:
        """Token ids and mask of a whole conversation.

        An earlier answer that the template rewrites once it is history (reasoning left out, say) is not what the target
        would write, so it stays untrained and is counted.

        Raises:
            RefusedRowError: the template raised, or the boundary of the last answer cannot be proved.
        """
        if self.marks_generation:
            output = self._apply(messages, return_assistant_tokens_mask=True)
            ids, mask = list(output["input_ids"]), [int(bit) for bit in output["assistant_masks"]]
            if any(mask):
                return self._marked(ids, mask, messages)
        ids = self.ids(messages)
        mask = [0] * len(ids)
        untrained = 0
        answers = [position for position, turn in enumerate(messages) if turn["role"] == "assistant"]
        for position in answers:
            try:
                start, end = self._span(ids, messages, position)
            except RefusedRowError:
                if position == answers[-1]:
                    raise
                untrained += 1
                continue
            mask[start:end] = [1] * (end - start)
        return Rendered(ids, mask, untrained)

    def prove(self) -> Proof:
        """Show on a conversation of its own that masks come out right with this template.

        Raises:
            DataError: they cannot be proved right; the message names the tokenizer's class and the reason.
        """
        if not template_text(self.tokenizer):
            raise self._unproved("the tokenizer has no chat template")
        try:
            thoughts = dict.fromkeys(REASONING_FIELDS, "A thought.") if self._wants_reasoning() else {}
            first, second = (self.render(self._probe(answer, **thoughts)) for answer in _PROBES)
            prompt = self.ids(self._probe(), generation_prompt=True)
        except RefusedRowError as error:
            raise self._unproved(str(error)) from error
        for rendered in (first, second):
            self._check_probe(rendered, prompt)
        if first.input_ids == second.input_ids:
            raise self._unproved("two different answers give the same token ids")
        last = max(position for position, bit in enumerate(first.loss_mask) if bit)
        method = "generation markers" if self.marks_generation else "incremental rendering"
        return Proof(method, str(self.tokenizer.decode([first.input_ids[last]])))

    def _wants_reasoning(self) -> bool:
        """Whether an answer without reasoning gets an empty block of it after the generation prompt."""
        ids, prompt = self.ids(self._probe(_PROBES[0])), self.ids(self._probe(), generation_prompt=True)
        return ids[: len(prompt)] == prompt and self._empty_block(ids, len(prompt))

    def _refuse_empty_block(self, ids: list[int], start: int) -> None:
        if self._empty_block(ids, start):
            fix = "set target.template_arguments so that the prompt closes the block, or give the data's reasoning"
            raise RefusedRowError("an empty reasoning block would be trained", f"the target would not write it: {fix}")

    def _empty_block(self, ids: list[int], start: int) -> bool:
        """Whether the answer that begins at `start` begins with reasoning of no words."""
        return bool(_EMPTY_BLOCK.match(str(self.tokenizer.decode(ids[start : start + _BLOCK_TOKENS]))))

    def _check_probe(self, rendered: Rendered, prompt: list[int]) -> None:
        ids, mask = rendered.input_ids, rendered.loss_mask
        if not any(mask) or all(mask):
            raise self._unproved(f"{sum(mask)} of {len(mask)} tokens come out as trained")
        start, end = mask.index(1), len(mask) - mask[::-1].index(1)
        if not all(mask[start:end]):
            raise self._unproved("the trained tokens of one answer are not in a row")
        if ids[: len(prompt)] != prompt or start < len(prompt):
            raise self._unproved(self._divergence(prompt, ids))
        if ids[end - 1] not in self.special_ids:
            raise self._unproved("no special token ends an answer, so the draft could not learn to stop")
        if self.doubled_bos(ids):
            raise self._unproved("the BOS token comes out twice")

    def _span(self, ids: list[int], messages: Sequence[Message], position: int) -> tuple[int, int]:
        prompt = self.ids(messages[:position], generation_prompt=True)
        if ids[: len(prompt)] != prompt:
            raise RefusedRowError(_UNPROVABLE, self._divergence(prompt, ids))
        upto = ids if position == len(messages) - 1 else self.ids(messages[: position + 1])
        if ids[: len(upto)] != upto:
            raise RefusedRowError(_UNPROVABLE, "the template rewrites the answer once it is history")
        specials = [place for place in range(len(prompt), len(upto)) if ids[place] in self.special_ids]
        if not specials:
            raise RefusedRowError(_UNPROVABLE, "no special token ends it")
        end = specials[-1] + 1
        self._refuse_empty_block(ids, len(prompt))
        if rest := self._visible(upto[end:]):
            raise RefusedRowError(_UNPROVABLE, f"text after its end-of-turn token: {rest[:40]!r}")
        return len(prompt), end

    def _marked(self, ids: list[int], mask: list[int], messages: Sequence[Message]) -> Rendered:
        """The template's own marks, held to the ids: the last answer begins after its prompt and not inside it."""
        last = max(position for position, turn in enumerate(messages) if turn["role"] == "assistant")
        prompt = self.ids(messages[:last], generation_prompt=True)
        out = self._through_end_of_turn(ids, mask)
        start = max(place for place in range(len(out)) if out[place] and not (place and out[place - 1]))
        if ids[: len(prompt)] == prompt and start < len(prompt):
            raise RefusedRowError(_UNPROVABLE, f"the template marks token {start} of a prompt of {len(prompt)} tokens")
        self._refuse_empty_block(ids, start)
        return Rendered(ids, out)

    def _through_end_of_turn(self, ids: list[int], mask: list[int]) -> list[int]:
        """Let each run of marked tokens end with its end-of-turn token: white space after it out, it itself in."""
        out = [0] * len(ids)
        place = 0
        while place < len(ids):
            if not mask[place]:
                place += 1
                continue
            start = place
            while place < len(ids) and mask[place]:
                place += 1
            specials = [number for number in range(start, place) if ids[number] in self.special_ids]
            end = place
            if specials and not self._visible(ids[specials[-1] + 1 : place]):
                end = specials[-1] + 1
            elif place < len(ids) and ids[place] in self.special_ids:
                end = place + 1
            out[start:end] = [1] * (end - start)
        return out

    def _visible(self, ids: list[int]) -> str:
        """Text of `ids` beyond white space."""
        return str(self.tokenizer.decode(ids)).strip() if ids else ""

    def _apply(self, messages: Sequence[Message], *, generation_prompt: bool = False, **options: Any) -> Any:
        settings = {"tokenize": True, "return_dict": True, "add_generation_prompt": generation_prompt} | options
        try:
            return self.tokenizer.apply_chat_template([dict(turn) for turn in messages], **settings, **self.arguments)
        except Exception as error:  # templates raise what they like; jinja's own error derives straight from Exception
            raise RefusedRowError("the template raised", f"{type(error).__name__}: {error}") from error

    def doubled_bos(self, ids: list[int]) -> bool:
        """Whether `ids` begin with two BOS tokens."""
        bos = self.tokenizer.bos_token_id
        return bos is not None and ids[:2] == [bos, bos]

    def _divergence(self, prompt: list[int], ids: list[int]) -> str:
        pairs = zip(prompt, ids, strict=False)
        place = next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(prompt), len(ids)))
        there = self.tokenizer.decode(prompt[place : place + 4])
        here = self.tokenizer.decode(ids[place : place + 4])
        return f"the generation prompt does not begin the answered text: {here!r} for {there!r} at token {place}"

    def _unproved(self, reason: str) -> DataError:
        name = type(self.tokenizer).__name__
        return DataError(
            f"the loss mask cannot be proved right with the chat template of {name}",
            why=reason,
            fix="set target.template_arguments (such as `enable_thinking: false`), or use a tokenizer whose template "
            "marks answers with {% generation %}",
        )

    @staticmethod
    def _probe(*answers: str, **fields: str) -> list[Message]:
        turns = [{"role": "assistant", "content": text, **fields} for text in answers]
        return [{"role": "user", "content": "A question."}, *turns]


def template_text(tokenizer: Any) -> str:
    """Text of a tokenizer's chat template; empty where it has none."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        template = template.get("default", "")
    return template if isinstance(template, str) else ""
