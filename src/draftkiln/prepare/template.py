"""The target's own chat template: conversations as text, as token ids, and with a mask of the trained ones."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from draftkiln.prepare import masks, proof
from draftkiln.prepare.conversation import REASONING_FIELDS
from draftkiln.prepare.encoding import Encoder
from draftkiln.prepare.outcome import RefusedRowError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from draftkiln.prepare.conversation import Message
    from draftkiln.prepare.masks import Rendered
    from draftkiln.prepare.proof import Proof

_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_REASONING = "a line of reasoning"


class Template:
    """Renders conversations with a tokenizer's chat template and `arguments` for it."""

    def __init__(self, tokenizer: Any, arguments: Mapping[str, Any] | None = None) -> None:
        self.tokenizer = tokenizer
        self.arguments = dict(arguments or {})
        self.encoder = Encoder(tokenizer)
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self.special_ids = set(tokenizer.all_special_ids) | {number for number, token in added.items() if token.special}
        self.marks_generation = bool(tokenizer.is_fast) and bool(_GENERATION.search(template_text(tokenizer)))

    def bound(self, **arguments: Any) -> Template:
        """This template with further arguments, such as the `tools` of a row."""
        other = copy.copy(self)
        other.arguments = self.arguments | arguments
        return other

    def ids(self, messages: Sequence[Message], *, generation_prompt: bool = False) -> list[int]:
        """Token ids of `messages` as the tokenizer itself gives them, with or without the header of an answer.

        Raises:
            RefusedRowError: the template raised.
        """
        return [int(number) for number in self._apply(messages, generation_prompt=generation_prompt)["input_ids"]]

    def text(self, messages: Sequence[Message], *, generation_prompt: bool = False) -> str:
        """The rendered text of `messages`, with or without the header after which the target answers.

        Raises:
            RefusedRowError: the template raised.
        """
        options = {"tokenize": False, "return_dict": False}
        return str(self._apply(messages, generation_prompt=generation_prompt, **options))

    def generation_marks(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """Token ids of `messages`, and 1 for each that the template's own marks say the target writes.

        Raises:
            RefusedRowError: the template raised.
        """
        output = self._apply(messages, return_assistant_tokens_mask=True)
        return list(output["input_ids"]), [int(bit) for bit in output["assistant_masks"]]

    def reads_reasoning(self) -> bool:
        """Whether the template writes the reasoning that an answer carries in a field of its own."""
        answer = {"role": "assistant", "content": "An answer."} | dict.fromkeys(REASONING_FIELDS, _REASONING)
        return _REASONING in self.text([{"role": "user", "content": "A question."}, answer])

    def render(self, messages: Sequence[Message]) -> Rendered:
        """Text, token ids and mask of a whole conversation.

        Raises:
            RefusedRowError: the template raised, or the boundary of the last answer cannot be proved.
        """
        return masks.render(self, messages)

    def prove(self) -> Proof:
        """Show on a conversation of its own that masks come out right with this template.

        Raises:
            DataError: they cannot be proved right; the message names the tokenizer's class and the reason.
        """
        return proof.prove(self)

    def doubled_bos(self, ids: list[int]) -> bool:
        """Whether `ids` begin with two BOS tokens."""
        bos = self.tokenizer.bos_token_id
        return bos is not None and ids[:2] == [bos, bos]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens included."""
        return str(self.tokenizer.decode(ids)) if ids else ""

    def _apply(self, messages: Sequence[Message], *, generation_prompt: bool = False, **options: Any) -> Any:
        settings = {"tokenize": True, "return_dict": True, "add_generation_prompt": generation_prompt} | options
        try:
            return self.tokenizer.apply_chat_template([dict(turn) for turn in messages], **settings, **self.arguments)
        except Exception as error:  # templates raise what they like; jinja's own error derives straight from Exception
            raise RefusedRowError("the template raised", f"{type(error).__name__}: {error}") from error


def template_text(tokenizer: Any) -> str:
    """Text of a tokenizer's chat template; empty where it has none."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        template = template.get("default", "")
    return template if isinstance(template, str) else ""
