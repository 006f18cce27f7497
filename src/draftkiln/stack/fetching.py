"""What pip says when pinned wheels cannot be fetched: other bytes, gone, no room and no network are told apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from draftkiln.errors import DraftkilnError, NetworkError, PinError, ProblemsError, StackError, StorageError

if TYPE_CHECKING:
    from pathlib import Path

_MISMATCH = re.compile(
    r"(?P<requirement>\S+)(?: from (?P<url>\S+))?[^\n]*:\s*\n\s*Expected sha256\s+(?P<expected>[0-9a-f]{64})"
    r"(?:\s*\n\s*Expected\s+or\s+[0-9a-f]{64})*\s*\n\s*Got\s+(?P<got>[0-9a-f]{64})"
)
CUT = "the index serves other bytes than the locked ones, or the download was cut"
_NO_NETWORK = re.compile(
    r"temporary failure|name resolution|unreachable|connection refused|timed out|max retries|failed to fetch|"
    r"error sending request|status server error|too many requests|http error 429",
    re.IGNORECASE,
)
_GONE_FILE = re.compile(r"http error (404|410)\b|\b(404|410) (client error|not found|gone)", re.IGNORECASE)


def unanswered(said: str) -> bool:
    """Whether these words of pip or uv mean that nobody could be asked; a file that is gone was answered."""
    return bool(_NO_NETWORK.search(said)) and not _GONE_FILE.search(said)


def refusal(said: str, place: Path) -> DraftkilnError:
    """The error for a fetch into `place` that ended with pip's words `said`."""
    changed: list[DraftkilnError] = [
        PinError(
            f"{match['requirement']}: its bytes differ from the lock",
            why=f"{CUT}: expected sha256 {match['expected']}, got {match['got']}"
            + (f", from {match['url']}" if match["url"] else ""),
            fix="run it again; if it stays so, this index is not the one that was locked. The check is never left out",
        )
        for match in _MISMATCH.finditer(said)
    ]
    if changed:
        return ProblemsError(changed)
    tail = "\n".join(said.strip().splitlines()[-4:])
    if re.search(r"No space left on device|Disk quota exceeded", said):
        return StorageError("no room for the locked wheels", why=tail, fix=f"make room in {place}, then run it again")
    gone = re.search(r"No matching distribution found for (\S+)", said)
    if gone and not unanswered(said):
        return PinError(f"{gone[1]} is gone from the index", why=tail, fix="look with: nox -s check_pins")
    if unanswered(said):
        return NetworkError(
            "cannot fetch the locked wheels", why=tail, fix="connect to a package index, or use a bundle"
        )
    return StackError("cannot fetch the locked wheels", why=tail, fix="see the text above")
