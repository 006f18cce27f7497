"""Calls of uv, the one tool that resolves and installs Python packages here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from draftkiln.errors import StackError, SystemMissingError

_TAIL = 12


def run(arguments: list[str], *, what: str, fix: str) -> str:
    """Run uv with stdin closed and return its standard output.

    Args:
        arguments: of uv.
        what: the error's text if it fails.
        fix: the error's next step.

    Raises:
        StackError: uv failed; the last lines that it printed are the cause.
    """
    # PYTHONPATH is ours for stages; it must not reach the tool that builds environments.
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [str(program()), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StackError(what, why="\n".join(done.stderr.strip().splitlines()[-_TAIL:]), fix=fix)
    return done.stdout


def program() -> Path:
    """Path of uv: beside this interpreter, else on PATH."""
    beside = Path(sys.executable).parent / "uv"
    found = beside if beside.exists() else shutil.which("uv")
    if found is None:
        raise SystemMissingError(
            "uv is not installed", fix="install draftkiln with its dependencies, or `pip install uv`"
        )
    return Path(found)
