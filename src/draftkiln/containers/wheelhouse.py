"""Locked wheels on the host's disk, each under its sha256: what images are built from and bundles are made of.

Wheels are fetched here, with the host's own index settings and certificates, so that a build needs no network and
nothing of the host can enter an image.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln import cache, durable, signals
from draftkiln.errors import PinError
from draftkiln.patches import base as base_wheels
from draftkiln.stack import fetching

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from draftkiln.containers.locked import Locked, Platform


def folder() -> Path:
    """Where wheels are kept: a folder a hash."""
    return cache.root() / "wheels"


def fetch(packages: Sequence[Locked], platform: Platform) -> list[Path]:
    """The wheel of every package, from the cache or the package index, hash-checked.

    Returns:
        Paths in the order of `packages`.

    Raises:
        PinError: bytes that differ from the lock, or a version that is gone from the index.
        NetworkError: the index cannot be reached.
    """
    missing = [package for package in packages if kept(package, platform) is None]
    if missing:
        print(f"wheels: fetching {len(missing)} of {len(packages)}", file=sys.stderr, flush=True)
        with (
            durable.storage_errors(folder()),
            tempfile.TemporaryDirectory(dir=_made(folder()), prefix=".fetch-") as temporary,
        ):
            _download(missing, platform, Path(temporary))
            _keep(Path(temporary).glob("*.whl"), missing)
    found = [kept(package, platform) for package in packages]
    absent = [package.pin.split()[0] for package, path in zip(packages, found, strict=True) if path is None]
    if absent:
        raise PinError(
            f"no wheel for {', '.join(absent)}",
            why=f"none of the locked files fits {platform}",
            fix="make the lock anew",
        )
    return [path for path in found if path is not None]


def kept(package: Locked, platform: Platform) -> Path | None:
    """The wheel of `package` in the cache; a file whose bytes are not those of its folder's name is an error.

    Raises:
        PinError: a kept wheel was changed.
    """
    for sha256 in sorted(package.hashes):
        for path in sorted((folder() / sha256).glob("*.whl")):
            if platform.takes(path.name):
                verify(path, sha256)
                return path
    return None


def verify(path: Path, sha256: str) -> None:
    """Hold that a wheel has the locked bytes. The result is remembered by size and time of the file.

    Raises:
        PinError: it has others.
    """
    stamp = path.with_name(f".{path.name}.checked")
    status = path.stat()
    facts = f"{status.st_size} {status.st_mtime_ns}"
    if stamp.exists() and stamp.read_text(encoding="ascii") == facts:
        return
    got = durable.sha256_file(path)
    if got != sha256:
        raise PinError(
            f"{path.name}: its bytes differ from the lock",
            why=f"expected sha256 {sha256}, got {got} in {path}",
            fix="remove the file; it is fetched again, hash-checked",
        )
    stamp.write_text(facts, encoding="ascii")


def _download(packages: Sequence[Locked], platform: Platform, target: Path) -> None:
    pins = target / "pins.txt"
    pins.write_text("".join(f"{package.pin}\n" for package in packages), encoding="utf-8")
    command = [
        *base_wheels.pip(), "download", "--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir",
        "--no-deps", "--only-binary", ":all:", "--require-hashes", "--implementation", "cp",
        "--python-version", platform.python, "--dest", str(target), "--requirement", str(pins),
    ]  # fmt: skip
    for name in platform.platforms():
        command += ["--platform", name]
    for abi in (f"cp{platform.python.replace('.', '')}", "abi3", "none"):
        command += ["--abi", abi]
    # A folder of wheels in this machine's settings may hold local builds of a locked version. pip writes gigabytes to
    # the folder for temporary files, which is often in memory: they go where they will stay.
    environment = {**os.environ, "PIP_FIND_LINKS": "", "TMPDIR": str(target)}
    done = signals.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=target)
    if done.returncode:
        raise fetching.refusal(done.stderr, folder())


def _keep(files: Iterable[Path], packages: Sequence[Locked]) -> None:
    allowed = {sha256 for package in packages for sha256 in package.hashes}
    for file in files:
        sha256 = durable.sha256_file(file)
        if sha256 not in allowed:
            raise PinError(
                f"{file.name}: its bytes differ from the lock", why=f"{fetching.CUT}: got sha256 {sha256}", fix="again"
            )
        place = _made(folder() / sha256)
        file.replace(place / file.name)


def _made(path: Path) -> Path:
    with durable.storage_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    return path
