"""One line of a preflight: what was looked at, how it stands, why, and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["pass", "warn", "fail", "unknown"]


@dataclass(frozen=True)
class Finding:
    """A result of one check. `unknown` says that nothing here can answer, and `fix` what would."""

    check: str
    status: Status
    reason: str
    fix: str = ""

    def as_json(self) -> dict[str, Any]:
        """The finding as a JSON object."""
        return asdict(self)


def passed(check: str, reason: str) -> Finding:
    """A check that found nothing wrong."""
    return Finding(check, "pass", reason)


def warned(check: str, reason: str, fix: str) -> Finding:
    """A check that found something that may matter."""
    return Finding(check, "warn", reason, fix)


def failed(check: str, reason: str, fix: str) -> Finding:
    """A check that found something that will stop or spoil the run."""
    return Finding(check, "fail", reason, fix)


def unknown(check: str, reason: str, fix: str) -> Finding:
    """A check that could not be made here."""
    return Finding(check, "unknown", reason, fix)
