"""The language of made targets: what follows a text, in closed form.

A token is a pair (a, b): `a` is one of 16 values, `b` is 4 bits. The next token after position p is

    a[p+1] = (5 * a[p] + 3) mod 16                the current token decides
    b[p+1] = b[p-3] XOR b[p-8]                    two earlier tokens decide

The first is a cycle through all 16 values (a linear congruential generator of full period), the second a linear
feedback shift register of period 511 (x^9 + x^5 + 1 is primitive). The next four tokens are known at every position,
so a draft can learn them from a state; from the tokens alone it would have to find two distant positions and XOR them.
Positions before the text's start read as position 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftkiln.target.shape import BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

VALUES = 1 << BITS
NEAR, FAR = 3, 8
"""How far before the current position the two tokens lie whose bits make the next token's."""
_FIRST = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "zo", "hu", "ja")
_SECOND = ("ra", "se", "ti", "vo", "zu", "ka", "le", "mi", "no", "pu", "da", "fe", "gi", "ho", "ju", "ba")
WORDS = tuple(first + second for first in _FIRST for second in _SECOND)
"""The words, by token id: id = 16 * a + b."""
SPECIAL = (
    "[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>",
    "<|media_begin|>", "<|media_content|>", "<|media_end|>", "<|media_pad|>", "<|kimi_k25_video_placeholder|>",
    "[UNK]", "[PAD]",
)  # fmt: skip
"""Kimi's special tokens, from id 256 on."""
ROLES = ("user", "assistant", "system", "image")
"""Plain words that the chat template writes, after the special tokens."""
TOKENS = (*WORDS, *SPECIAL, *ROLES)
IDS = {token: index for index, token in enumerate(TOKENS)}


def parts(token: int) -> tuple[int, int]:
    """The (a, b) of a token id; ids past the words have a pair too, so that every text has a next token."""
    if token < len(WORDS):
        return token // VALUES, token % VALUES
    return (5 * token + token // VALUES) % VALUES, (7 * token + 3) % VALUES


def successor(a: int) -> int:
    """The a-part that follows `a`."""
    return (5 * a + 3) % VALUES


def next_token(tokens: Sequence[int]) -> int:
    """Id of the token that follows `tokens`: what a made target answers greedily."""
    current = len(tokens) - 1
    near, far = (parts(tokens[max(current - back, 0)])[1] for back in (NEAR, FAR))
    return VALUES * successor(parts(tokens[current])[0]) + (near ^ far)


def continuation(tokens: Sequence[int], count: int) -> list[int]:
    """The `count` token ids that follow `tokens`."""
    text = list(tokens)
    for _ in range(count):
        text.append(next_token(text))
    return text[len(tokens) :]


def answer(tokens: Sequence[int], count: int) -> list[str]:
    """The first `count` words that a made target answers greedily after a prompt of token ids."""
    return [TOKENS[token] for token in continuation(tokens, count)]


def words(tokens: Sequence[int]) -> str:
    """Text of token ids, as the tokenizer decodes them."""
    return " ".join(TOKENS[token] for token in tokens)
