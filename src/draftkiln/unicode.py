"""Text that JSON can write and no file can hold."""

from __future__ import annotations

import codecs
import json
from typing import Any

HALF = "half a character: a \\ud800 to \\udfff that stands alone"


def joined(text: str) -> str | None:
    r"""A text with its surrogate pairs, such as \ud83d\ude00, as characters; None: half of one stands alone."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None


def without_halves(text: str) -> str:
    """A text with its pairs joined, and `?` for each half of a character that stands alone."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", _HALF_AS_MARK)


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "?", error.end


_HALF_AS_MARK = "draftkiln.half"
codecs.register_error(_HALF_AS_MARK, _mark)


def is_whole(value: Any) -> bool:
    r"""Whether every string of a JSON value can be written: JSON takes half of a surrogate pair, such as \ud800."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True
