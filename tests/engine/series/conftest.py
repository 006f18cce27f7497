"""Trees of speculators with the series, with parts of it or with none, and programs that run on them in the engine's stack.

The tests run on the host, for the stack `$DRAFTKILN_ENGINE_STACK`. Its environment is made where it is missing, unless
`$DRAFTKILN_ENGINE_PYTHON` names an interpreter that has the engine; `$DRAFTKILN_BASE_WHEEL` names a pristine wheel.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import load_file

from draftkiln import cache
from draftkiln.patches import base, queue, wheel
from draftkiln.patches.repository import Repository
from draftkiln.stack import environment, model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from draftkiln.patches.queue import Patch
    from draftkiln.stack.model import Stack

STACK = os.environ.get("DRAFTKILN_ENGINE_STACK", "spec0.3.0-vllm0.16.0-cpu")
PROGRAMS = Path(__file__).parent / "programs"
CONTROLS = Path(__file__).parent / "controls"
LOUD = (
    "state-decoder-only",
    "find-decoder-in-wrapper",
    "kv-memory-from-workers",
    "kv-cache-config-arguments",
    "scheduler-block-size",
    "capture-with-layer-hooks",
    "request-block-hasher",
    "reply-of-one-rank",
    "sample-after-execute",
)
"""What raises an error, mended; `request-block-hasher` is a control that mends break 7 and leaves caching on."""


@dataclass(frozen=True)
class Trees:
    """Makes unpacked wheels of speculators that hold some of the series' patches."""

    repository: Repository
    base: wheel.Wheel
    patches: Mapping[str, Patch]
    commits: Mapping[str, str]
    """Commit of each patch of the whole series, in order."""
    folder: Path

    def full(self) -> Path:
        """All of the series."""
        return self._write("full", next(reversed(self.commits.values())))

    def before(self, slug: str) -> Path:
        """The series up to a patch, without it."""
        return self._write(f"before-{slug}", f"{self.commits[slug]}~")

    def without(self, *slugs: str) -> Path:
        """The series without some patches, those that are written on their lines included."""
        self.repository.checkout(next(reversed(self.commits.values())))
        for slug in reversed([slug for slug in self.commits if slug in slugs]):
            self.repository.git("revert", "--no-edit", self.commits[slug])
        return self._write("without-" + "-and-".join(slugs), self.repository.head())

    def only(self, name: str, slugs: Sequence[str]) -> Path:
        """Some patches alone, in this order."""
        self.repository.checkout(self._base_commit())
        for slug in slugs:
            control = CONTROLS / f"{slug}.patch"
            data = control.read_bytes() if control.exists() else self.patches[slug].data
            answer = self.repository.am(data, three_way=True)
            assert answer.returncode == 0, answer
        return self._write(name, self.repository.head())

    def _base_commit(self) -> str:
        return f"{next(iter(self.commits.values()))}~"

    def _write(self, name: str, commit: str) -> Path:
        tree = self.folder / name
        if not tree.exists():
            changed = self.repository.changed(self._base_commit(), commit)
            info = {
                f"{self.base.name}-{self.base.version}.dist-info/{key}": data for key, data in self.base.info.items()
            }
            for path, data in {**self.base.package, **changed, **info}.items():
                if data is not None:
                    (tree / path).parent.mkdir(parents=True, exist_ok=True)
                    (tree / path).write_bytes(data)
        return tree


@dataclass(frozen=True)
class Engine:
    """Runs programs with the interpreter of the engine's stack."""

    python: Path
    variables: Mapping[str, str]

    def run(self, program: str, *arguments: object, tree: Path | None = None, timeout_s: float = 300) -> str:
        """Run a program of `programs/` and return what it printed; `tree` is the speculators that it imports."""
        source = Path(__file__).parents[3] / "src"
        done = subprocess.run(
            [self.python, PROGRAMS / program, *map(str, arguments)],
            env={**self.variables, "PYTHONPATH": os.pathsep.join(str(part) for part in (tree, source) if part)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout


@dataclass(frozen=True)
class Run:
    """What the generator did with a job."""

    report: dict[str, Any]
    states: dict[str, np.ndarray]


@pytest.fixture(scope="session")
def engine() -> Engine:
    stack = model.read(STACK)
    named = os.environ.get("DRAFTKILN_ENGINE_PYTHON")
    python = Path(named) if named else environment.python_of(STACK)
    return Engine(python, {**os.environ, **stack.file.environment, "PYTHONDONTWRITEBYTECODE": "1"})


def _base_wheel(stack: Stack) -> Path:
    named = os.environ.get("DRAFTKILN_BASE_WHEEL")
    if named:
        return Path(named)
    return base.base_wheel(
        "speculators", stack.file.speculators.version, stack.locked().base_wheel_sha256, cache.root()
    )


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trees]:
    stack = model.read(STACK)
    version, series = stack.file.speculators.version, stack.file.speculators.series
    assert series is not None
    pristine = wheel.read(_base_wheel(stack))
    patches = queue.load_series(queue.queue_folder(), series).patches(version)
    with Repository.throwaway() as repository:
        repository.checkout(repository.add_base(version, pristine.package))
        commits = {}
        for patch in patches:
            answer = repository.am(patch.data)
            assert answer.returncode == 0, answer
            commits[patch.slug] = repository.head()
        by_slug = {patch.slug: patch for patch in patches}
        yield Trees(repository, pristine, by_slug, commits, tmp_path_factory.mktemp("trees"))


@pytest.fixture(scope="session")
def targets(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the targets `deepseek`, `llama` and `coded` (a tokenizer with code of its own, no weights)."""
    folder = tmp_path_factory.mktemp("targets")
    engine.run("make_targets.py", folder)
    return folder


@pytest.fixture(scope="session")
def extract(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Function that runs calls on a real engine: `extract(tree, {constructor arguments}, {call: samples}) -> Run`."""

    def run(tree: Path, generator: dict[str, Any], calls: Mapping[str, list[list[int]]]) -> Run:
        folder = tmp_path_factory.mktemp("extract")
        job = {"generator": generator, "calls": [{"name": name, "samples": batch} for name, batch in calls.items()]}
        (folder / "job.json").write_text(json.dumps(job))
        engine.run("extract.py", folder / "job.json", folder, tree=tree)
        return Run(json.loads((folder / "report.json").read_text()), load_file(folder / "states.safetensors"))

    return run


@pytest.fixture(scope="session")
def drive(engine: Engine, targets: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Function that runs scenarios in one process, real scheduler and extension, stub model: `drive({name: scenario})`."""

    def run(scenarios: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("drive")
        for scenario in scenarios.values():
            scenario["tree"] = str(scenario["tree"])
            scenario.setdefault("target", "deepseek")
        (folder / "scenarios.json").write_text(json.dumps(scenarios))
        engine.run("drive.py", targets, folder / "scenarios.json", folder / "outcomes.json")
        outcomes: dict[str, Any] = json.loads((folder / "outcomes.json").read_text())
        return outcomes

    return run
