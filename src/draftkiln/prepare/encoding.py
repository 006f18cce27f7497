"""Texts to token ids, and how many of a text's ids the beginning of it has, proved without tokenizing that again.

A tokenizer cuts a text at its added tokens before it does anything else, and tokenizes the pieces between them one by
one. So the ids of a beginning are those of the whole up to the last added token in it, and after that the ids of the
few characters that follow. Where a tokenizer is not known to work like that, the beginning is tokenized as a whole.
"""

from __future__ import annotations

import bisect
import functools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_OWN = "transformers.tokenization_"
_ENCODES = ("__call__", "_encode_plus", "_batch_encode_plus", "tokenize", "prepare_for_tokenization")
"""Methods of a tokenizer that take part in encoding; a class that brings its own may do what it likes."""
_TAILS = 4096
"""Ends of beginnings whose ids are kept; most rows end theirs alike, with the header of an answer."""


class Cut(NamedTuple):
    """An added token in a text: where it ends there, how many ids stand before it, and itself."""

    end: int
    before: int
    token: str


@dataclass(frozen=True)
class Encoded:
    """A text, its token ids, and the added tokens at which it was cut; none where that is not certain."""

    text: str
    ids: list[int]
    cuts: Sequence[Cut] = ()


class Encoder:
    """Encodes texts as a tokenizer does when it is given a rendered conversation: no special tokens are added."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.cutting = cutting_tokens(tokenizer)
        """Ids of the added tokens at which every text is cut, by their text."""
        self._cutting_ids = frozenset(self.cutting.values())
        self._pattern = re.compile("|".join(map(re.escape, sorted(self.cutting, key=len, reverse=True))))
        self._ids_after = functools.lru_cache(_TAILS)(lambda token, tail: self.ids(token + tail))

    def ids(self, text: str) -> list[int]:
        """Token ids of a text."""
        found: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    def encode(self, text: str) -> Encoded:
        """Token ids of a text, with its cuts where the added tokens in the text are those among the ids."""
        ids = self.ids(text)
        if not self.cutting:
            return Encoded(text, ids)
        found = list(self._pattern.finditer(text))
        places = [place for place, number in enumerate(ids) if number in self._cutting_ids]
        if [self.cutting[match.group()] for match in found] != [ids[place] for place in places]:
            return Encoded(text, ids)
        return Encoded(
            text, ids, [Cut(match.end(), place, match.group()) for match, place in zip(found, places, strict=True)]
        )

    def length(self, beginning: str, whole: Encoded) -> int | None:
        """How many ids of `whole` are the ids of `beginning`; None where those do not begin the ids of `whole`."""
        if whole.text == beginning:
            return len(whole.ids)
        last = bisect.bisect_right(whole.cuts, len(beginning), key=lambda cut: cut.end) - 1
        if last < 0 or not whole.text.startswith(beginning):
            ids, before = self.ids(beginning), 0
        else:
            cut = whole.cuts[last]
            ids, before = self._ids_after(cut.token, beginning[cut.end :]), cut.before
        end = before + len(ids)
        return end if whole.ids[before:end] == ids else None


def cutting_tokens(tokenizer: Any) -> dict[str, int]:
    """Ids of the added tokens at which a tokenizer certainly cuts every text, by their text; none where that is open.

    Certain are those of a class whose encoding is transformers' own, that stand for themselves whatever is around them,
    and that cannot overlap: then each of them in a text is found, whichever way they are looked for.
    """
    if not _encodes_as_transformers_does(tokenizer):
        return {}
    added = tokenizer.added_tokens_decoder.items()
    normalizes = _normalizes(tokenizer)
    found = {token.content: int(number) for number, token in added if not (token.normalized and normalizes)}
    if any(token.single_word for _, token in added) or _may_overlap(found):
        return {}
    return found


def _encodes_as_transformers_does(tokenizer: Any) -> bool:
    methods = (getattr(type(tokenizer), name, None) for name in _ENCODES)
    own = all(getattr(method, "__module__", _OWN).startswith(_OWN) for method in methods if method is not None)
    return own and not any(getattr(tokenizer, name, False) for name in ("split_special_tokens", "do_lower_case"))


def _normalizes(tokenizer: Any) -> bool:
    """Whether text is changed before the added tokens that ask for it are looked for."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.normalizer is None:
        return False
    return bool(json.loads(backend.normalizer.__getstate__()).get("normalizers", True))


def _may_overlap(texts: Collection[str]) -> bool:
    """Whether one of the texts can begin inside another, or inside itself."""
    beginnings = {text[:length] for text in texts for length in range(1, len(text))}
    for text in texts:
        for start in range(1, len(text)):
            if text[start:] in beginnings or text[start:] in texts:
                return True
            if any(text[start:end] in texts for end in range(start + 1, len(text))):
                return True
    return any(text in beginnings for text in texts)
