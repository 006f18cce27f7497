"""What all stages share: arguments, the stack they run on, the record of what they read, their log.

A stage gives a body `(context, terminal) -> results`; everything around it is here.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable, stagelog
from draftkiln.errors import DraftkilnError, EngineError, ExitCode, ProblemsError, RecipeError
from draftkiln.events import Events
from draftkiln.rundir import RunDirectory

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from draftkiln.recipe.model import Recipe, Stage
    from draftkiln.target.facts import TargetFacts

_SECTIONS: dict[str, tuple[str, ...]] = {
    "prepare": ("target", "data"),
    "extract": ("target", "layers"),
    "validate": ("layers", "validate"),
    "train": ("layers", "train"),
    "export": (),
    "evaluate": ("evaluate",),
}
"""Sections of the recipe that decide what a stage makes; a change elsewhere leaves its results good."""

_READS: dict[str, tuple[str, ...]] = {
    "prepare": (),
    "extract": ("prepare",),
    "validate": ("prepare", "extract"),
    "train": ("prepare", "extract", "validate"),
    "export": ("train",),
    "evaluate": ("prepare", "export"),
}


@dataclass(frozen=True)
class Context:
    """What a stage's body works with."""

    recipe: Recipe
    run: RunDirectory
    target: Path
    facts: TargetFacts
    stack: str
    inputs: dict[str, Any]
    """All that decides the results, by name; recorded and compared on the next run."""
    device: str
    """`cpu` or `cuda`: of the stack."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--recipe` and `--run`."""
    parser.add_argument(
        "--recipe", type=Path, required=True, metavar="FILE", help="what to run: a YAML file of recipes/"
    )
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="run directory, made when absent")


def run(
    name: Stage,
    arguments: argparse.Namespace,
    body: Callable[[Context, stagelog.Terminal], dict[str, Any]],
    *,
    error: type[DraftkilnError] = EngineError,
    read: Callable[[Recipe, Path], Mapping[str, Any]] | None = None,
    still_good: Callable[[Context], bool] | None = None,
) -> int:
    """Run a stage in its stack's environment, unless it is done already with the same inputs.

    Args:
        name: of the stage.
        arguments: of the command line.
        body: makes the results.
        error: class of the error that an unexpected exception becomes.
        read: gives, from the recipe and the target's folder, hashes of what else the body reads.
        still_good: whether what a finished stage wrote is still as it was; if not, the stage is taken up again.
    """
    found = context(name, arguments)
    if read is not None:
        found.inputs.update(read(found.recipe, found.target))
    done = found.run.finished(name, found.inputs)
    if done is not None and still_good is not None and not still_good(found):
        found.run.reopen(name)
        done = None
    if done is not None:
        print(f"{name}: done already in {found.run.path / name}")
        return ExitCode.OK
    found.run.begin(name, found.inputs)
    began = time.monotonic()
    log = found.run.log(name)
    events = Events(log.with_suffix(".jsonl"), {"run": str(found.run.path), "stage": name, "stack": found.stack})
    with stagelog.stage_log(log, error, events) as terminal:
        results = body(found, terminal)
        results["stage_seconds"] = round(time.monotonic() - began, 1)
        found.run.finish(name, found.inputs, results)
        terminal.line(f"{name}: done in {results['stage_seconds']:.0f} s")
    return ExitCode.OK


def context(name: Stage, arguments: argparse.Namespace) -> Context:
    """What a stage works with, in its stack's environment: replaces this process unless it already runs there."""
    from draftkiln.recipe.load import load
    from draftkiln.stack import environment

    recipe = load(arguments.recipe)
    directory = RunDirectory.open(arguments.run, recipe.name)
    earlier = {stage: directory.require(stage) for stage in _READS[name]}
    stack = recipe.stacks.of(name)
    environment.enter(stack, sys.argv[1:])
    return _context(name, recipe, directory, stack, earlier)


def _context(name: Stage, recipe: Recipe, directory: RunDirectory, stack: str, earlier: dict[str, Any]) -> Context:
    from draftkiln import cache
    from draftkiln.recipe.check import problems_on_target
    from draftkiln.stack.model import read
    from draftkiln.target import facts as target_facts
    from draftkiln.target.resolve import ensure

    target = ensure(recipe.target.source, cache.root() / "targets")
    facts = target_facts.check(
        target,
        trust_remote_code=recipe.target.trust_remote_code,
        weights=recipe.target.load_format != "dummy",
    )
    found = problems_on_target(recipe, facts)
    if found:
        raise ProblemsError([RecipeError(text) for text in found])
    found_stack = read(stack)
    lock = found_stack.locked()
    content = recipe.model_dump(mode="json", by_alias=True)
    inputs: dict[str, Any] = {f"recipe.{section}": content[section] for section in _SECTIONS[name]}
    inputs |= {"stack": stack, "requirements": lock.requirements_sha256}
    inputs["speculators"] = lock.patched_wheel_sha256 or lock.base_wheel_sha256
    inputs["target_config"] = durable.sha256_file(target / "config.json")
    inputs |= {f"{stage}.record": durable.sha256_json(record["inputs"]) for stage, record in earlier.items()}
    if "prepare" in earlier:
        inputs["dataset_sha256"] = earlier["prepare"]["results"]["dataset_sha256"]
    return Context(recipe, directory, target, facts, stack, inputs, found_stack.file.device)
