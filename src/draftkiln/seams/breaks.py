"""A seam that an engine build does not hold, or holds in another way than before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from draftkiln.seams.model import Seam

Severity = Literal[
    "gone",
    "renamed",
    "new required parameter",
    "unexpected keyword",
    "too many arguments",
    "return changed",
    "argument moved",
    "not callable",
    "read-only",
    "abstract",
    "not fulfilled",
    "default changed",
    "argument renamed",
    "result changed",
]
_WORTH_A_LOOK = {"default changed", "argument renamed", "result changed"}


@dataclass(frozen=True)
class Break:
    """One seam that an engine build does not hold.

    `before` and `now` are the two sides: how the patched files use it (or the baseline's signature) and what is there.
    """

    seam: Seam
    severity: Severity
    what: str
    before: str
    now: str
    architectures: tuple[str, ...] = ()
    parameter: str = ""

    @property
    def breaks(self) -> bool:
        """Whether the patched files fail; otherwise it only deserves a look."""
        return self.severity not in _WORTH_A_LOOK
