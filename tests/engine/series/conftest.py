"""Fixtures: the engine's interpreter, the trees, the targets, and the programs that run on them.

The tests run on the host, for the stack `$DRAFTKILN_ENGINE_STACK`. Its environment is made where it is missing, unless
`$DRAFTKILN_ENGINE_PYTHON` names an interpreter that has the engine; `$DRAFTKILN_BASE_WHEEL` names a pristine wheel.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.numpy import load_file
from speculators_trees import Engine, Run, Trees

from draftkiln import cache
from draftkiln.patches import base, queue, wheel
from draftkiln.patches.repository import Repository
from draftkiln.stack import environment, model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from draftkiln.stack.model import Stack


class Outcomes(dict[str, Any]):
    """Outcome of each scenario; a test that asks for one that this stack does not play is skipped."""

    def __missing__(self, name: str) -> Any:
        pytest.skip(f"{STACK} does not play {name!r}")


STACK = os.environ.get("DRAFTKILN_ENGINE_STACK", "spec0.3.0-vllm0.16.0-cpu")


@pytest.fixture(scope="session")
def engine() -> Engine:
    stack = model.read(STACK)
    named = os.environ.get("DRAFTKILN_ENGINE_PYTHON")
    python = Path(named) if named else environment.python_of(STACK)
    return Engine(python, {**os.environ, **stack.file.environment})


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
        yield Trees(repository, pristine, by_slug, commits, tmp_path_factory.mktemp("trees"), STACK)


@pytest.fixture(scope="session")
def targets(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the targets `deepseek`, `llama` and `coded` (a tokenizer with code of its own, no weights)."""
    folder = tmp_path_factory.mktemp("targets")
    engine.run("make_targets.py", folder)
    return folder


@pytest.fixture(scope="session")
def extract(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Function that runs calls on a real engine: `extract(tree, {constructor arguments}, {call: samples}) -> Run`."""

    def run(tree: Path, generator: dict[str, Any], calls: Mapping[str, list[list[int]]]) -> Run:
        folder = tmp_path_factory.mktemp("extract")
        job = {"generator": generator, "calls": [{"name": name, "samples": batch} for name, batch in calls.items()]}
        (folder / "job.json").write_text(json.dumps(job))
        engine.run("extract.py", folder / "job.json", folder, tree=tree)
        return Run(json.loads((folder / "report.json").read_text()), load_file(folder / "states.safetensors"))

    return run


@pytest.fixture(scope="session")
def drive(engine: Engine, targets: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Function that runs scenarios in one process over a stub model: `drive({name: scenario}) -> {name: outcome}`."""

    def run(scenarios: Mapping[str, dict[str, Any]]) -> Outcomes:
        folder = tmp_path_factory.mktemp("drive")
        for scenario in scenarios.values():
            scenario["tree"] = str(scenario["tree"])
            scenario.setdefault("target", "deepseek")
        (folder / "scenarios.json").write_text(json.dumps(scenarios))
        engine.run("drive.py", targets, folder / "scenarios.json", folder / "outcomes.json")
        return Outcomes(json.loads((folder / "outcomes.json").read_text()))

    return run
