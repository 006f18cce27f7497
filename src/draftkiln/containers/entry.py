"""What an image starts: draftkiln as process 1, for any uid, ending when it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from draftkiln import cli
from draftkiln.errors import ExitCode
from draftkiln.stack import compiling, identity

if TYPE_CHECKING:
    from types import FrameType

PROVENANCE = Path("/opt/draftkiln/provenance.json")


def main(argv: list[str] | None = None) -> int:
    """Set what every process needs, then run one command of draftkiln."""
    provenance = _provenance()
    stack = provenance.get("environment", {})
    os.environ.update({key: value for key, value in stack.items() if key not in os.environ})
    name_unknown_user()
    # Images for GPUs have a compiler; with one, those for CPUs would be 230 MB larger.
    os.environ.update(compiling.settings("cuda" if provenance.get("cuda") else "cpu"))
    # Process 1 has no default action for signals: without this, `stop` would wait and then kill.
    signal.signal(signal.SIGTERM, _terminated)
    return cli.main(sys.argv[1:] if argv is None else argv)


def name_unknown_user() -> None:
    """Give a uid that is not in passwd a name and a home: torch's compile cache asks for both at import."""
    os.environ.update(identity.settings())
    home = os.environ.get("HOME", "/")
    if not os.access(home, os.W_OK):
        os.environ["HOME"] = "/tmp"  # noqa: S108 - a tmpfs of this container alone
    os.environ.setdefault("XDG_CACHE_HOME", f"{os.environ['HOME']}/.cache")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{os.environ['XDG_CACHE_HOME']}/torchinductor")


def _provenance() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(PROVENANCE.read_text(encoding="utf-8"))
        return found
    return {}


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(ExitCode.TERMINATED)
