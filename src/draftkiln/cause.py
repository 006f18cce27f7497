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
    return named_error(text) or (_lines(text) or ["it printed nothing"])[-1]


def named_error(text: str) -> str | None:
    """The same, None where no line names an exception, as in the output of a process that was killed."""
    named = [line for line in _lines(text) if _NAMED.match(line)]
    telling = [line for line in named if "root cause" not in line.lower()]
    return next(reversed(telling or named), None)


def _lines(text: str) -> list[str]:
    return [line for raw in text.splitlines() if (line := _PREFIX.sub("", raw).rstrip())]
