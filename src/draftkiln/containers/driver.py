"""NVIDIA's driver on this host against the CUDA version of an image, before anything is pulled or loaded."""

from __future__ import annotations

import shutil
import subprocess
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

NEEDS = {
    "12.4": ("525.60.13", "550.54.14"),
    "12.6": ("525.60.13", "560.28.03"),
    "12.8": ("525.60.13", "570.26"),
    "12.9": ("525.60.13", "575.51.03"),
    "13.0": ("580.65.06", "580.65.06"),
}
"""CUDA version: oldest driver that runs its binaries, and the one that also compiles its PTX.

Source: CUDA release notes, tables of minor version compatibility and of driver versions.
Kimi-K2.5's INT4 kernels need the second: with an older one they stop after all shards are loaded.
"""


class Verdict(NamedTuple):
    """What is known: `pass`, `warn`, `fail` or `skip`, and why."""

    state: str
    reason: str


def installed() -> str | None:
    """Version of the NVIDIA driver, None where there is no GPU tool to ask."""
    if shutil.which("nvidia-smi") is None:
        return None
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else None


def compare(cuda: str, driver: str | None) -> Verdict:
    """Whether `driver` runs images made for CUDA `cuda`."""
    if driver is None:
        return Verdict("skip", "nvidia-smi is not on this host: its driver is not known")
    if cuda not in NEEDS:
        return Verdict("skip", f"what CUDA {cuda} needs is not known here")
    try:
        here = Version(driver)
    except InvalidVersion:
        return Verdict("skip", f"nvidia-smi says {driver!r}")
    oldest, full = NEEDS[cuda]
    if here < Version(oldest):
        return Verdict("fail", f"NVIDIA driver {driver} is too old for CUDA {cuda}: {oldest} or later, best {full}")
    if here < Version(full):
        return Verdict("warn", f"NVIDIA driver {driver} cannot compile PTX of CUDA {cuda}: some kernels need {full}")
    return Verdict("pass", f"NVIDIA driver {driver} runs CUDA {cuda}")
