"""Files and folders that a recipe names."""

from __future__ import annotations

import os
from pathlib import Path

from draftkiln.errors import RecipeError


def path_of(name: str) -> Path:
    """What a recipe's path means: `~` is the home of whoever runs it, all else is relative to the working directory.

    Raises:
        RecipeError: nobody knows that home.
    """
    found = os.path.expanduser(name)  # noqa: PTH111 - pathlib takes `./` away, which keeps a name that begins with `~`
    if found.startswith("~"):
        raise RecipeError(
            f"{name}: no such home directory",
            why="HOME is not set, or this machine knows no user of that name",
            fix="write the whole path in the recipe, or `./` before a name that begins with `~`",
        )
    return Path(found)
