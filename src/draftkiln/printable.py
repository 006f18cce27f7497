"""Values out of files, made fit for a terminal."""

from __future__ import annotations

import json
from typing import Any


def printable(value: Any) -> str:
    """A value as one line, a text without quotes, and nothing in it that would steer the terminal."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(text)[1:-1]
