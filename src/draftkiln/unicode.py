"""Text that JSON can write and no file can hold."""

from __future__ import annotations

import json
from typing import Any

HALF = "half a character: a \\ud800 to \\udfff that stands alone"


def is_whole(value: Any) -> bool:
    r"""Whether every string of a JSON value can be written: JSON takes half of a surrogate pair, such as \ud800."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True
