"""What torch and Triton compile with at run time: looked for before anything loads, and done without where that works.

vLLM marks functions for torch to compile, at the latest at the first step of an extraction: a compiler that is missing
would end a run that has loaded its weights already.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Literal

from draftkiln.errors import SystemMissingError

UNCOMPILED = "TORCHDYNAMO_DISABLE"
"""Has torch run every function as it is."""


def settings(device: Literal["cpu", "cuda"]) -> dict[str, str]:
    """Variables of a process on a stack of `device`: on CPUs torch compiles nothing where it cannot; a choice stays."""
    return {UNCOMPILED: "1"} if device == "cpu" and missing(device) and UNCOMPILED not in os.environ else {}


def require(device: Literal["cpu", "cuda"]) -> None:
    """Hold that kernels for GPUs can be compiled; Triton has no other way.

    Raises:
        SystemMissingError: with the packages that are missing.
    """
    if device == "cuda" and (packages := missing(device)):
        raise SystemMissingError(
            f"this host lacks {' and '.join(packages)}",
            why="Triton compiles kernels for GPUs at run time, with a C compiler and Python's headers",
            fix=f"sudo apt-get install -y {' '.join(packages)}",
        )


def missing(device: Literal["cpu", "cuda"]) -> list[str]:
    """Debian packages that compiling for `device` needs and this machine lacks."""
    # As torch's inductor and Triton look: a program that the environment names stands for all others.
    named, usual, package = ("CXX", ("g++",), "g++") if device == "cpu" else ("CC", ("gcc", "clang"), "gcc")
    programs = (os.environ[named],) if os.environ.get(named) else usual
    found = [] if any(map(shutil.which, programs)) else [package]
    if not Path(sysconfig.get_path("include", "posix_prefix"), "Python.h").exists():
        found.append(f"libpython{sys.version_info.major}.{sys.version_info.minor}-dev")
    return found
