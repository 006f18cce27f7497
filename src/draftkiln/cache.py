"""Where downloaded and built things are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def root() -> Path:
    """Root of the cache: `$DRAFTKILN_CACHE`, or `~/.cache/draftkiln`; not made here."""
    chosen = os.environ.get("DRAFTKILN_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache" / "draftkiln"
