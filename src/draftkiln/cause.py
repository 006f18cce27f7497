"""The one line of an engine's output that says what went wrong."""

from __future__ import annotations

import re

_PREFIX = re.compile(r"^\s*(?:\([^()]*pid=\d+\)\s*)*(?:[A-Z]+ \d\d-\d\d [\d:]+ \[[^\]]+\] ?)?\s*")
"""What vLLM's processes put before a line: name, level, time and place."""
_NAMED = re.compile(r"[\w.]*(?:Error|Exception)\b")


def last_error(text: str) -> str:
    """The last line that names an exception; one that only points at another ("see root cause above") does not count.

    Args:
        text: output of a process, or its end.
    """
    lines = [line for raw in text.splitlines() if (line := _PREFIX.sub("", raw).rstrip())]
    named = [line for line in lines if _NAMED.match(line)]
    telling = [line for line in named if "root cause" not in line.lower()]
    return (telling or named or lines or ["it printed nothing"])[-1]
