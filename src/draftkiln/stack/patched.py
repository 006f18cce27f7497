"""The patched speculators wheel of a stack, built where the cache does not hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftkiln import cache, checkout
from draftkiln.patches import queue, wheel

if TYPE_CHECKING:
    from pathlib import Path

    from draftkiln.patches.wheel import PatchedWheel


def build(base: Path, series: str) -> PatchedWheel:
    """Apply the series to the pristine wheel `base`.

    Raises:
        ProblemsError: every patch that is wrong or does not fit.
    """
    found = queue.load_series(checkout.root() / "patches" / "speculators", series)
    return wheel.build(base, found, cache.root() / "wheels" / "patched")
