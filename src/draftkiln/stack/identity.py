"""A name and a home for users that this machine's passwd does not know: schedulers and containers start any uid."""

from __future__ import annotations

import os
import pwd

from draftkiln import cache

NAME = "draftkiln"


def settings() -> dict[str, str]:
    """Variables of a process whose user has no name or no home: torch asks for both, at import."""
    found = {} if known() else {key: NAME for key in ("USER", "LOGNAME") if key not in os.environ}
    return found if cache.home() else {**found, "HOME": str(cache.root())}


def known() -> bool:
    """Whether passwd knows this uid."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True
