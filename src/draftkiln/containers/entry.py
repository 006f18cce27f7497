"""What an image starts: draftkiln as process 1, for any uid, ending when it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from draftkiln import cli
from draftkiln.errors import ExitCode

if TYPE_CHECKING:
    from types import FrameType

PROVENANCE = Path("/opt/draftkiln/provenance.json")
COMPILERS = ("gcc", "cc", "g++", "c++", "clang")


def main(argv: list[str] | None = None) -> int:
    """Set what every process needs, then run one command of draftkiln."""
    os.environ.update({key: value for key, value in _stack_environment().items() if key not in os.environ})
    name_unknown_user()
    compile_nothing_without_a_compiler()
    # Process 1 has no default action for signals: without this, `stop` would wait and then kill.
    signal.signal(signal.SIGTERM, _terminated)
    return cli.main(sys.argv[1:] if argv is None else argv)


def name_unknown_user() -> None:
    """Give a uid that is not in passwd a name and a home: torch's compile cache asks for both at import."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        for key in ("USER", "LOGNAME"):
            os.environ.setdefault(key, "draftkiln")
    home = os.environ.get("HOME", "/")
    if not os.access(home, os.W_OK):
        os.environ["HOME"] = "/tmp"  # noqa: S108 - a tmpfs of this container alone
    os.environ.setdefault("XDG_CACHE_HOME", f"{os.environ['HOME']}/.cache")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{os.environ['XDG_CACHE_HOME']}/torchinductor")


def compile_nothing_without_a_compiler() -> None:
    """Have torch run functions as they are where it cannot compile them: vLLM marks one that every extraction calls.

    Images for GPUs have a compiler; with one, those for CPUs would be 230 MB larger.
    """
    if not any(map(shutil.which, COMPILERS)):
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")


def _stack_environment() -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        values: dict[str, str] = json.loads(PROVENANCE.read_text(encoding="utf-8"))["environment"]
        return values
    return {}


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(ExitCode.TERMINATED)
