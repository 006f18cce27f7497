"""Where downloaded and built things are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

from draftkiln.errors import SystemMissingError


def root() -> Path:
    """Root of the cache: `$DRAFTKILN_CACHE`, or `~/.cache/draftkiln`; not made here.

    Raises:
        SystemMissingError: neither is known.
    """
    chosen = os.environ.get("DRAFTKILN_CACHE")
    if chosen and not chosen.startswith("~"):
        return Path(chosen).absolute()
    found = home()
    if found is None:
        raise SystemMissingError(
            "this user has no home directory, so no place for the cache",
            why=f"HOME is {os.environ.get('HOME', 'not set')!r}, and no passwd entry of uid {os.getuid()} names one",
            fix="set HOME to a folder that this user can write, or DRAFTKILN_CACHE to one for the cache",
        )
    return Path(chosen).expanduser().absolute() if chosen else found / ".cache" / "draftkiln"


def home() -> Path | None:
    """Home directory of this user, None where neither the environment nor passwd knows one."""
    try:
        found = Path.home()
    except RuntimeError:  # HOME is not set, and passwd does not know this uid
        return None
    return found if found.is_absolute() else None
