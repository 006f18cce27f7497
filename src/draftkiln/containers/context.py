"""The build context: a folder that holds every input, with the same names, modes and bytes on every machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from typing import TYPE_CHECKING

from draftkiln import cache, checkout, durable
from draftkiln.containers import inputs as image_inputs
from draftkiln.containers import wheelhouse
from draftkiln.stack import uv

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from draftkiln.containers.inputs import Inputs
    from draftkiln.containers.locked import Locked

PARTS = ("cudnn", "nvidia", "torch", "rest")
"""Parts of the locked environment, each a layer."""
STEPS = {**dict.fromkeys(PARTS, "wheels"), "finish": "finish", "speculators": "speculators"}
"""Folders of the context that a RUN of the Containerfile sees, and the script in containers/steps/ that it runs."""
_CUDNN = ("nvidia-cublas", "nvidia-cudnn")
_TORCH = ("torch", "triton")
_LAUNCHER = """\
#!/opt/env/bin/python
import sys

from draftkiln.containers.entry import main

# Workers are spawned and import this file: only the first process may run it.
if __name__ == "__main__":
    sys.exit(main())
"""
_PATH_FILE = "opt/env/lib/python{python}/site-packages/draftkiln.pth"


def assemble(inputs: Inputs, folder: Path | None = None) -> Path:
    """Write the context of an image and return its folder.

    Raises:
        PinError: a wheel whose bytes differ from the lock.
        NetworkError: wheels are missing and the index cannot be reached.
        StorageError: no room.
    """
    wheels = dict(zip(inputs.packages, wheelhouse.fetch(inputs.packages, inputs.platform), strict=True))
    target = folder or cache.root() / "contexts" / inputs.name
    with durable.storage_errors(target):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        root = checkout.root()
        _put(root / "containers" / "Containerfile", target / "Containerfile")
        for folder_name, step in STEPS.items():
            _put(_step(step), target / folder_name / "step.sh")
            _link(uv.program(), target / folder_name / "uv", mode=0o755)
        _put(inputs.speculators, target / "speculators" / inputs.speculators.name)
        for part, packages in parts(inputs.packages).items():
            _write(target / part / "wheels.lock", part_lock(packages))
            (target / part / "wheels").mkdir()
            for package in packages:
                _link(wheels[package], target / part / "wheels" / wheels[package].name)
        if isinstance(inputs.base, str):
            tarfile.open(target / "base.tar", "w").close()
        else:
            _link(inputs.base.tar, target / "base.tar")
        _tree(inputs, root, target / "tree")
    return target


def parts(packages: Sequence[Locked]) -> dict[str, list[Locked]]:
    """The parts of an environment, each a layer: cuBLAS and cuDNN, NVIDIA's other libraries, torch, the rest."""
    found: dict[str, list[Locked]] = {part: [] for part in PARTS}
    for package in packages:
        found[_part(package.name)].append(package)
    return found


def _part(package: str) -> str:
    if package.startswith(_CUDNN):
        return "cudnn"
    if package.startswith("nvidia-"):
        return "nvidia"
    return "torch" if package in _TORCH else "rest"


def part_lock(packages: Sequence[Locked]) -> str:
    """The lock of one part: what of the stack's lock this platform takes."""
    return "".join(f"{package.pin}\n" for package in packages)


def arguments(inputs: Inputs) -> dict[str, str]:
    """Build arguments: everything of the context that the Containerfile is told by hash, and the labels."""
    return {
        "BASE": inputs.base if isinstance(inputs.base, str) else "scratch",
        "BASE_SHA256": inputs.base_id,
        "CUDA": inputs.stack.file.cuda or "",
        "PATCHED_TREE": inputs.stack.locked().patched_tree or "",
        "PYTHON": inputs.platform.python,
        "REQUIREMENTS_SHA256": inputs.requirements_sha256,
        "REVISION": inputs.revision,
        "SOURCE_DATE_EPOCH": str(inputs.epoch),
        "SOURCE_SHA256": inputs.source_sha256,
        "SPECULATORS_SHA256": inputs.speculators_sha256,
        "STACK": inputs.stack.name,
        "STEPS_SHA256": durable.sha256_json([_step(step).read_text(encoding="utf-8") for step in STEPS.values()]),
        "UV_VERSION": uv.run(["--version"], what="uv does not run", fix="install it").split()[1],
        "WARM": inputs.warm,
        **{
            f"{part.upper()}_SHA256": hashlib.sha256(part_lock(packages).encode()).hexdigest()
            for part, packages in parts(inputs.packages).items()
        },
    }


def _tree(inputs: Inputs, root: Path, target: Path) -> None:
    home = target / "opt" / "draftkiln"
    for name in image_inputs.carried(root):
        _put(root / name, home / name)
    provenance = json.dumps(inputs.provenance(), indent=2, sort_keys=True) + "\n"
    _write(home / "provenance.json", provenance)
    _write(home / "requirements.lock", inputs.requirements.read_text(encoding="utf-8"))
    _write(target / _PATH_FILE.format(python=inputs.platform.python), "/opt/draftkiln/src\n")
    _write(target / "usr" / "local" / "bin" / "draftkiln", _LAUNCHER, mode=0o755)
    for path in [target, *target.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)


def _step(name: str) -> Path:
    return checkout.root() / "containers" / "steps" / f"{name}.sh"


def _put(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _write(target: Path, text: str, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    target.chmod(mode)


def _link(source: Path, target: Path, mode: int = 0o644) -> None:
    """Share a large file's bytes where the file system can; its mode is no part of an image."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        target.chmod(mode)
