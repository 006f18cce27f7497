"""The program as a person starts it, for tests that run it on real engines."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def draftkiln(
    *words: str | int | Path, stdin: int = subprocess.DEVNULL, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `draftkiln WORDS` to its end; `variables` are added to the environment."""
    return subprocess.run(
        [sys.executable, "-m", "draftkiln", *map(str, words)],
        stdin=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )
