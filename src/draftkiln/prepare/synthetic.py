"""Conversations of random words of the target's own vocabulary, each as long as a sample may be, to the token."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from draftkiln.errors import DataError
from draftkiln.prepare.rows import Conversation, Message

if TYPE_CHECKING:
    from draftkiln.prepare.template import Template

PROMPT_WORDS = 12
_LEAST_WORDS = 32
_TRIES = 8


def words(tokenizer: Any, special_ids: set[int]) -> list[str]:
    """Words that are one token each, in the order of their ids.

    Raises:
        DataError: there are too few of them.
    """
    vocabulary = {number: text for text, number in tokenizer.get_vocab().items() if number not in special_ids}
    found = []
    for number in sorted(vocabulary):
        text = str(tokenizer.decode([number])).strip()
        if text.isalnum() and tokenizer.encode(f"{text} {text}", add_special_tokens=False)[-1:] == [number]:
            found.append(text)
    if len(found) < _LEAST_WORDS:
        raise DataError(
            f"the tokenizer has only {len(found)} words of one token",
            why=f"synthetic conversations need {_LEAST_WORDS}",
            fix="name a file of conversations with data.source.path",
        )
    return found


def conversations(template: Template, count: int, seed: int, max_tokens: int) -> list[Conversation]:
    """`count` conversations of one question and one answer, of exactly `max_tokens` tokens where words allow it."""
    vocabulary = words(template.tokenizer, template.special_ids)
    made = []
    for number in range(count):
        source = random.Random(f"{seed}:train:{number}")  # noqa: S311 - repeatable, not secret
        question = _text(source, vocabulary, PROMPT_WORDS)
        made.append(Conversation(f"synthetic:{number}", _filled(template, source, vocabulary, question, max_tokens)))
    return made


def held_out(template: Template, count: int, seed: int) -> list[Conversation]:
    """`count` questions of other random words, drawn apart from those of `conversations`."""
    vocabulary = words(template.tokenizer, template.special_ids)
    made = []
    for number in range(count):
        source = random.Random(f"{seed}:held out:{number}")  # noqa: S311 - repeatable, not secret
        made.append(
            Conversation(f"synthetic:held-out:{number}", (_turn("user", _text(source, vocabulary, PROMPT_WORDS)),))
        )
    return made


def _filled(
    template: Template, source: random.Random, vocabulary: list[str], question: str, max_tokens: int
) -> tuple[Message, ...]:
    pool = [source.choice(vocabulary) for _ in range(max_tokens)]
    length = max(1, max_tokens - PROMPT_WORDS)
    for _ in range(_TRIES):
        messages = (_turn("user", question), _turn("assistant", " ".join(pool[:length])))
        missing = max_tokens - len(template.ids(messages))
        if missing == 0 or not 0 < length + missing <= len(pool):
            break
        length += missing
    return messages


def _text(source: random.Random, vocabulary: list[str], count: int) -> str:
    return " ".join(source.choice(vocabulary) for _ in range(count))


def _turn(role: str, text: str) -> Message:
    return {"role": role, "content": text}
