"""Turns held to what was rendered: none is left out, and none speaks the template's own language."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln.prepare.outcome import RefusedRowError
from draftkiln.prepare.reasoning import CLOSE, OPEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.prepare.conversation import Message
    from draftkiln.prepare.template import Template


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a tokenizer, as they would be found in a text."""

    pattern: re.Pattern[str] | None

    @classmethod
    def of(cls, template: Template) -> SpecialTokens:
        """Those of a template's tokenizer; reasoning tags are left out, they have a meaning in answers."""
        decoded = (str(template.tokenizer.decode([number])).strip() for number in template.special_ids)
        texts = sorted({text for text in decoded if text} - {OPEN, CLOSE}, key=len, reverse=True)
        return cls(re.compile("|".join(map(re.escape, texts))) if texts else None)

    def refuse_special_tokens(self, messages: Sequence[Message]) -> None:
        """Hold the words of a conversation apart from the template's marks.

        Raises:
            RefusedRowError: a turn holds a text that becomes a special token, such as an end of turn.
        """
        for position, turn in enumerate(messages):
            found = self.pattern.search(turn["content"] or "") if self.pattern else None
            if found:
                raise RefusedRowError("a turn holds a special token", f"turn {position}: {found.group()}")


def before_answers(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages before the first answer."""
    first = next(position for position, turn in enumerate(messages) if turn["role"] == "assistant")
    return messages[:first]


def check(text: str, messages: Sequence[Message]) -> None:
    """Hold the rendered text to the turns that are no answers; what a template writes as JSON is looked for as that.

    Raises:
        RefusedRowError: the template left one out.
    """
    for position, turn in enumerate(messages):
        if turn["role"] == "assistant":
            continue
        content = turn["content"].strip()
        if content not in text and json.dumps(content, ensure_ascii=False)[1:-1] not in text:
            raise RefusedRowError("the template leaves a turn out", f"turn {position} ({turn['role']})")
