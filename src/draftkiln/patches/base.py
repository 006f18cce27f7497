"""Base wheels: the released wheels that patches are made on, from the cache or from the package index."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from draftkiln import durable
from draftkiln.errors import NetworkError
from draftkiln.stack import fetching, uv

_TIMEOUT_S = 300


def base_wheel(name: str, version: str, sha256: str, cache_root: Path) -> Path:
    """The wheel of `name` `version` with that hash: from `cache_root`, else downloaded into it.

    Args:
        name: project, such as `speculators`.
        version: released version.
        sha256: what the file must hash to.
        cache_root: root of the cache; the file is kept in `wheels/<sha256>/`.

    Raises:
        NetworkError: it could not be downloaded.
        PinError: it is gone from the index, or has other bytes there.
        SystemMissingError: neither pip nor uv is there.
    """
    folder = cache_root / "wheels" / sha256
    for kept in sorted(folder.glob("*.whl")):
        if durable.sha256_file(kept) == sha256:
            return kept
        kept.unlink()
    pin = f"{name}=={version} --hash=sha256:{sha256}"
    with tempfile.TemporaryDirectory(prefix="draftkiln-wheel-") as temporary:
        found = _download(pin, Path(temporary))
        if durable.sha256_file(found) != sha256:
            raise NetworkError(
                f"{found.name}: not the file that was asked for", why=f"sha256 is not {sha256}", fix="try again"
            )
        return _keep(found, folder)


def newest_wheel(name: str, version: str, cache_root: Path) -> Path:
    """The wheel that the index offers for a version of which no hash is known yet, kept under its hash.

    Raises:
        NetworkError: it could not be downloaded.
        PinError: the index has no such version.
        SystemMissingError: neither pip nor uv is there.
    """
    with tempfile.TemporaryDirectory(prefix="draftkiln-wheel-") as temporary:
        found = _download(f"{name}=={version}", Path(temporary))
        return _keep(found, cache_root / "wheels" / durable.sha256_file(found))


def _keep(found: Path, folder: Path) -> Path:
    durable.write_bytes(folder / found.name, found.read_bytes())
    return folder / found.name


def _download(pin: str, folder: Path) -> Path:
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{pin}\n", encoding="utf-8")
    options = ["--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    hashes = ["--require-hashes"] if "--hash" in pin else []
    command = [
        *pip(),
        "download",
        "--quiet",
        *options,
        *hashes,
        "--dest",
        str(folder),
        "--requirement",
        str(requirements),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            cwd=folder,
        )
    except subprocess.TimeoutExpired as error:
        raise NetworkError(
            f"cannot download {pin.split(maxsplit=1)[0]}", why=f"nothing after {_TIMEOUT_S} s", fix="try again"
        ) from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode:
        raise fetching.refusal(done.stderr, folder)
    if len(wheels) != 1:
        raise NetworkError(
            f"cannot download {pin.split(maxsplit=1)[0]}", why=f"{len(wheels)} files came", fix="try again"
        )
    return wheels[0]


def pip() -> list[str]:
    """Command line of a pip: this interpreter's own, else through uv.

    Raises:
        SystemMissingError: neither is there.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    return [str(uv.program()), "tool", "run", "pip"]
