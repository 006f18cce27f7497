"""Raw text to ids and mask, by the recipe's explicit rule; no template has a part in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftkiln.prepare.outcome import RefusedRowError

if TYPE_CHECKING:
    from draftkiln.recipe.model import RawText


def render(tokenizer: Any, text: str, rule: RawText) -> tuple[list[int], list[int]]:
    """Token ids and mask of `text`, with the BOS token in front that the tokenizer adds, if it adds one.

    Between marks, each piece is tokenized alone as well: its ids must be those that it has inside the whole, so that no
    token crosses the border of an answer.

    Raises:
        RefusedRowError: a mark is missing, or a token crosses a border.
    """
    ids = [int(number) for number in tokenizer.encode(text)]
    bare = [int(number) for number in tokenizer.encode(text, add_special_tokens=False)]
    before = next((place for place in range(len(ids) - len(bare) + 1) if ids[place : place + len(bare)] == bare), None)
    if before is None:
        raise RefusedRowError("boundary of an answer not provable", "special tokens change how the text is tokenized")
    ids = ids[: before + len(bare)]
    written = bool(bare) and bare[0] == tokenizer.bos_token_id
    if written:
        ids, before = ids[before:], 0
    if rule.answer_begins is None:
        return ids, [0] * before + [int(not written)] * bool(bare) + [1] * (len(bare) - 1)
    mask = [0] * before
    joined: list[int] = []
    for piece, trained in _pieces(text, rule.answer_begins, rule.answer_ends):
        numbers = [int(number) for number in tokenizer.encode(piece, add_special_tokens=False)]
        joined += numbers
        mask += [int(trained)] * len(numbers)
    if joined != bare:
        place = next((place for place, (a, b) in enumerate(zip(joined, bare, strict=False)) if a != b), len(bare))
        raise RefusedRowError("boundary of an answer not provable", f"a token crosses it near token {place}")
    return ids, mask


def _pieces(text: str, begins: str, ends: str | None) -> list[tuple[str, bool]]:
    """The text in pieces that alternate between untrained and trained."""
    pieces: list[tuple[str, bool]] = []
    rest = text
    while True:
        prompt, mark, rest = rest.partition(begins)
        pieces.append((prompt + mark, False))
        if not mark:
            break
        answer, closing, rest = rest.partition(ends) if ends else (rest, "", "")
        if ends and not closing:
            raise RefusedRowError("an answer does not end", f"no {ends!r} after the last {begins!r}")
        pieces.append((answer + closing, True))
    if len(pieces) == 1:
        raise RefusedRowError("no answer", f"no {begins!r} in the text")
    return [piece for piece in pieces if piece[0]]
