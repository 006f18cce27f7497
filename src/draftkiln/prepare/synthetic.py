"""Conversations of random words of the target's own vocabulary, each as long as a sample may be, to the token."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from draftkiln.errors import DataError
from draftkiln.prepare.conversation import Conversation, Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from draftkiln.prepare.template import Template
    from draftkiln.recipe.model import SyntheticData

    Answer = Callable[[list[int], int], list[str]]
    """Gives so many words that answer a prompt of token ids."""

PROMPT_WORDS = 12
_LEAST_WORDS = 32
_TRIES = 6
_SHORT = 4
"""Short conversations have this part of the tokens of long ones."""


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


def conversations(
    template: Template, source: SyntheticData, max_tokens: int, answer: Answer | None = None
) -> list[Conversation]:
    """Conversations of one question and one answer, of exactly `max_tokens` tokens (or a quarter) where words allow it.

    With `answer` the answers are its words, else random ones. A draft learns to follow what its target says, so for a
    made target they should be what that target would say: on random answers it learns nothing in a few minutes.
    """
    vocabulary = words(template.tokenizer, template.special_ids)
    made = []
    for number in range(source.synthetic):
        drawn = random.Random(f"{source.seed}:train:{number}")  # noqa: S311 - repeatable, not secret
        length = max_tokens if number % source.long_every == 0 else max_tokens // _SHORT
        question = _text(drawn, vocabulary, PROMPT_WORDS)
        if answer is None:
            pool = [drawn.choice(vocabulary) for _ in range(length)]
        else:
            pool = answer(template.ids((_turn("user", question),), generation_prompt=True), length)
        made.append(Conversation(f"synthetic:{number}", _filled(template, pool, question, length)))
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


def _filled(template: Template, pool: list[str], question: str, max_tokens: int) -> tuple[Message, ...]:
    def answered(count: int) -> tuple[Message, ...]:
        return _turn("user", question), _turn("assistant", " ".join(pool[:count]))

    def length(count: int) -> int:
        return len(template.ids(answered(count)))

    one, two = length(1), length(2)
    if one > max_tokens:
        raise DataError(
            f"a synthetic conversation of one word has {one} tokens already",
            why=f"data.max_tokens is {max_tokens}",
            fix="raise data.max_tokens",
        )
    best, count, a_word = 1, 1 + (max_tokens - one) // max(1, two - one), max(1, two - one)
    for _ in range(_TRIES):
        missing = max_tokens - length(count)
        if missing >= 0:
            best = max(best, count)
        if not missing // a_word:
            break
        count = min(max(1, count + missing // a_word), len(pool))
    return answered(best)


def _text(source: random.Random, vocabulary: list[str], count: int) -> str:
    return " ".join(source.choice(vocabulary) for _ in range(count))


def _turn(role: str, text: str) -> Message:
    return {"role": role, "content": text}
