"""Whether the NVIDIA driver serves the CUDA version of the stack's wheels, and what its errors mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from draftkiln.preflight.finding import Finding, failed, passed, unknown, warned

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECK = "NVIDIA driver"
# The driver that first served each CUDA version on Linux. Source: CUDA toolkit release notes, table 3.
FIRST_DRIVER = {
    "12.0": (525, 60),
    "12.1": (530, 30),
    "12.2": (535, 54),
    "12.3": (545, 23),
    "12.4": (550, 54),
    "12.5": (555, 42),
    "12.6": (560, 28),
    "12.8": (570, 26),
    "12.9": (575, 51),
    "13.0": (580, 65),
}
_COMPATIBLE = {"12": (525, 60), "13": (580, 65)}
_SIGNS = (
    r"error 80[34]\b",
    r"forward compatibility was attempted",
    r"unsatisfied condition: cuda\s*>=",
    r"provided PTX was compiled with an unsupported toolchain",
    r"CUDA driver version is insufficient",
    r"unsupported display driver / cuda driver combination",
)
HINT = (
    "the NVIDIA driver of the host and the CUDA of the image do not fit: update the driver, or take a stack "
    "with an older CUDA; where the image carries a CUDA compat library, remove it from the linker's path (ldconfig)"
)


def hint(error_text: str) -> str | None:
    """The one hint for the many texts of a driver that is too old or hidden by a compat library, None for others."""
    return HINT if any(re.search(sign, error_text, re.IGNORECASE) for sign in _SIGNS) else None


def check(driver: str | None, cuda: str | None, *, quantized: bool) -> Finding:
    """Compare the host's driver with the CUDA version of the stack's wheels.

    Args:
        driver: such as `570.133.20`; None where no GPU tool answers.
        cuda: such as `12.8`; None for a CPU stack.
        quantized: whether kernels that come as PTX are needed, which a driver of an older minor version cannot compile.
    """
    if cuda is None:
        return passed(CHECK, "not needed: a CPU stack")
    if driver is None:
        return unknown(CHECK, "no GPU tool answers on this host", "run preflight on the GPU host")
    have = _numbers(driver)
    wanted = FIRST_DRIVER.get(cuda)
    if wanted is None:
        return unknown(CHECK, f"no table entry for CUDA {cuda}", "compare by hand with NVIDIA's release notes")
    if have >= wanted:
        return passed(CHECK, f"{driver} serves CUDA {cuda}")
    need = ".".join(map(str, wanted))
    fix = f"update the NVIDIA driver to {need} or later, or take a stack with an older CUDA"
    if have < _COMPATIBLE[cuda.split(".", maxsplit=1)[0]]:
        return failed(CHECK, f"{driver} is too old for any CUDA {cuda.split('.', maxsplit=1)[0]}", fix)
    if quantized:
        return failed(
            CHECK, f"{driver} is older than CUDA {cuda} ({need}): quantised weights need kernels compiled from PTX", fix
        )
    return warned(
        CHECK, f"{driver} is older than CUDA {cuda} ({need}); minor versions are compatible except for PTX", fix
    )


def _numbers(version: str) -> tuple[int, int]:
    parts: Sequence[str] = re.findall(r"\d+", version)
    return (int(parts[0]), int(parts[1]) if len(parts) > 1 else 0) if parts else (0, 0)
