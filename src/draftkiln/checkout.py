"""Where the project's own files (stacks, patches, recipes, data) lie."""

from __future__ import annotations

import os
from pathlib import Path

from draftkiln.errors import SystemMissingError


def root() -> Path:
    """Folder that holds `containers/`, `patches/` and `recipes/`.

    `$DRAFTKILN_HOME` where set (images set it), else the checkout that this package was loaded from.

    Raises:
        SystemMissingError: neither is there.
    """
    named = os.environ.get("DRAFTKILN_HOME")
    for folder in [Path(named)] if named else Path(__file__).resolve().parents:
        if (folder / "containers" / "stacks").is_dir():
            return folder
    raise SystemMissingError(
        "cannot find draftkiln's stacks and patches",
        why=f"{named or 'no folder above the package'} has no containers/stacks",
        fix="work from a checkout of the project, or set DRAFTKILN_HOME to one",
    )
