"""Interpreters of the stacks, for tests that run a program in each."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.stack import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
EXTRACT, TRAIN = "spec0.3.0-vllm0.16.0-cpu", "spec0.9.0-vllm0.32.0-cpu"
_NAMED = dict(part.split("=", 1) for part in os.environ.get("DRAFTKILN_STACK_PYTHONS", "").split(",") if part)
_ENGINE = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_MLA_DISABLE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def run(
    stack: str, arguments: Sequence[str | Path], *, text: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run this Python command line in a stack's environment, which is made where it is missing.

    `$DRAFTKILN_STACK_PYTHONS` (`stack=python,…`) names interpreters to take instead.
    """
    python = _NAMED.get(stack) or environment.python_of(stack)
    return subprocess.run(
        [python, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **_ENGINE, **variables},
        input=text,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
