"""Facts of the host, read without an engine: GPUs, their NVIDIA driver, shared memory, disk."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_QUERY = ("index", "name", "memory.total", "memory.free", "compute_cap", "driver_version")
_MIB = 1 << 20
SHM = "/dev/shm"  # noqa: S108 - where the engine's processes share memory


@dataclass(frozen=True)
class Gpu:
    """One GPU; memory in bytes, `capability` as (major, minor)."""

    name: str
    memory: int
    free: int
    capability: tuple[int, int]


@dataclass(frozen=True)
class Host:
    """What the checks ask of a host; `gpus` is empty in CPU mode."""

    gpus: tuple[Gpu, ...]
    nvidia_driver: str | None
    shm_bytes: int | None
    disk_free: int
    disk_path: Path
    cores: int


def read(disk: Path) -> Host:
    """Facts of this host; `disk` is where the states will be written (its nearest folder that exists counts)."""
    gpus, driver = _through_nvml() or _through_nvidia_smi() or ((), None)
    place = next(folder for folder in (disk.absolute(), *disk.absolute().parents) if folder.is_dir())
    shm = Path(SHM)
    return Host(
        gpus,
        driver,
        shutil.disk_usage(shm).total if shm.is_dir() else None,
        shutil.disk_usage(place).free,
        place,
        len(os.sched_getaffinity(0)),
    )


def _through_nvml() -> tuple[tuple[Gpu, ...], str | None] | None:
    """Through nvidia-ml-py, None where it is not installed or finds no NVIDIA driver."""
    with suppress(Exception):  # NVML's errors are classes of a package that may be absent
        pynvml = importlib.import_module("pynvml")
        pynvml.nvmlInit()
        gpus = []
        for place in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(place)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))
            gpus.append(Gpu(_text(pynvml.nvmlDeviceGetName(handle)), memory.total, memory.free, capability))
        return tuple(gpus), _text(pynvml.nvmlSystemGetDriverVersion())
    return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _through_nvidia_smi() -> tuple[tuple[Gpu, ...], str | None] | None:
    command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_nvidia_smi(done.stdout)


def parse_nvidia_smi(text: str) -> tuple[tuple[Gpu, ...], str | None] | None:
    """GPUs and driver version from nvidia-smi's CSV without units, None when no line is one."""
    gpus, driver = [], None
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        with suppress(ValueError):
            _, name, total, free, capability, driver = parts
            major, minor = capability.split(".")
            gpus.append(Gpu(name, int(total) * _MIB, int(free) * _MIB, (int(major), int(minor))))
    return (tuple(gpus), driver) if gpus else None
