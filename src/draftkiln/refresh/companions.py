"""Packages that are compiled for one torch: their version follows from it, not from their newest release.

A stack overrides what its engine declares of torch, and with it what these packages declare of theirs: without a pin
the newest one is taken, whose operators another torch cannot load.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from draftkiln.stack import uv

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

COMPANIONS = ("torchvision", "torchaudio", "torchcodec")


def of(requirements: Sequence[str], torch: str, moment: dt.datetime, python: str) -> dict[str, str]:
    """The versions that belong to `torch` of those companions that are among the requirements.

    Args:
        requirements: of a stack.
        torch: public version.
        moment: nothing uploaded later is taken.
        python: version that the stack's lock starts from.

    Raises:
        StackError: the index has none for that torch, or cannot be asked.
    """
    names = [name for name in map(_name, requirements) if name in COMPANIONS]
    if not names:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "companions.in")
        file.write_text("\n".join([f"torch=={torch}", *names]) + "\n", encoding="utf-8")
        text = uv.run(
            [
                "pip", "compile", str(file), "--no-header", "--no-annotate", "--no-build", "--quiet",
                "--python-version", python, "--exclude-newer", moment.isoformat(),
            ],
            what=f"no {', '.join(names)} for torch {torch}",
            fix="check the network; or take them out of the stack's requirements",
        )  # fmt: skip
    found = dict(re.findall(r"^([\w-]+)==([\w.]+)", text, re.MULTILINE))
    return {name: found[name] for name in names}


def pinned(text: str, versions: dict[str, str]) -> str:
    """The text of a stack.yaml with these versions in its requirements."""
    for name, version in versions.items():
        text = re.sub(
            rf"^(requirements: \[.*?\b{name})(?:==[\w.]+)?(?=[,\]])", rf"\g<1>=={version}", text, flags=re.MULTILINE
        )
    return text


def _name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)
