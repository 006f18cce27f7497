"""Reasoning before answers: found under its usual names or between tags, handed to the template, and accounted for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from draftkiln.prepare.conversation import REASONING_FIELDS, Message
from draftkiln.prepare.outcome import RefusedRowError

if TYPE_CHECKING:
    from collections.abc import Sequence

Policy = Literal["template", "keep", "drop"]

OPEN, CLOSE = "<think>", "</think>"
_EMPTY_BLOCK_THEN_CLOSE = re.compile(r"<think>\s*</think>(?:(?!<think>).)*</think>", re.DOTALL)


def split(content: str) -> tuple[str, str]:
    """Reasoning and answer of a text with tags; a text with the closing tag only began inside the generation prompt.

    Raises:
        RefusedRowError: the tags do not pair.
    """
    opened, closed = content.count(OPEN), content.count(CLOSE)
    if closed == 0 and opened == 0:
        return "", content
    before, _, after = content.partition(CLOSE)
    if closed != 1 or opened > 1 or OPEN in after:
        raise RefusedRowError("reasoning tags do not pair", f"{opened} opening, {closed} closing")
    reasoning = before.partition(OPEN)[2] if opened else before
    return reasoning.strip(), after.strip()


def arrange(
    messages: Sequence[Message], policy: Policy, *, template_reads_field: bool
) -> tuple[list[Message], list[str]]:
    """Messages as the template wants them, and the reasoning texts that it should write.

    Args:
        messages: with reasoning in `reasoning` or between tags in `content`.
        policy: `drop` leaves all reasoning out.
        template_reads_field: whether the template writes reasoning from a field; if not, tags stay where they are.

    Raises:
        RefusedRowError: the tags of a text do not pair.
    """
    arranged, expected = [], []
    for turn in messages:
        if turn["role"] != "assistant":
            arranged.append(turn)
            continue
        content = turn["content"]
        inline, answer = split(content) if content is not None else ("", None)
        reasoning = str(turn.get("reasoning", "")).strip() or inline
        rest = {key: value for key, value in turn.items() if key not in {"content", "reasoning"}}
        plain: Message = rest | {"content": answer}
        if policy == "drop" or not reasoning:
            arranged.append(plain)
            continue
        expected.append(reasoning)
        if template_reads_field:
            arranged.append(plain | dict.fromkeys(REASONING_FIELDS, reasoning))
        else:
            arranged.append(rest | {"content": content})
    return arranged, expected


def check(text: str, expected: Sequence[str], policy: Policy) -> int:
    """How many of the `expected` reasoning texts the rendered `text` lacks.

    Raises:
        RefusedRowError: some are lacking and the recipe says keep, or an empty block stands before a closing tag.
    """
    if _EMPTY_BLOCK_THEN_CLOSE.search(text):
        raise RefusedRowError("an empty reasoning block stands before a closing tag")
    lost = sum(reasoning not in text for reasoning in expected)
    if lost and policy == "keep":
        raise RefusedRowError("the template leaves reasoning out", f"of {lost} of {len(expected)} answers")
    return lost
