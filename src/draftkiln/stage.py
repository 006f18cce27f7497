"""What all stages share: arguments, the stack they run on, the record of what they read, their log.

A stage gives a body `(context, terminal) -> results`; everything around it is here.
"""

from __future__ import annotations

import contextlib
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable, lock, stagelog
from draftkiln.errors import DraftkilnError, EngineError, ExitCode, ProblemsError, RecipeError, RunDirectoryError
from draftkiln.events import Events
from draftkiln.rundir import RunDirectory, differences, filled, read_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from draftkiln.recipe.model import Recipe, Stage
    from draftkiln.stack.model import Stack
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

READS: dict[str, tuple[str, ...]] = {
    "prepare": (),
    "extract": ("prepare",),
    "validate": ("prepare", "extract"),
    "train": ("prepare", "extract", "validate"),
    "export": ("train",),
    "evaluate": ("prepare", "export"),
}
"""Stages whose records a stage reads."""


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
    defaults: dict[str, Any] = field(default_factory=dict)
    """Values of `inputs` that the recipe does not name."""


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
    enter: bool = True,
) -> int:
    """Run a stage in its stack's environment, unless it is done already with the same inputs.

    Args:
        name: of the stage.
        arguments: of the command line.
        body: makes the results.
        error: class of the error that an unexpected exception becomes.
        read: gives, from the recipe and the target's folder, hashes of what else the body reads.
        still_good: whether what a finished stage wrote is still as it was; if not, the stage is taken up again.
        enter: whether this process goes on in the stack's environment; others do the stage's work where it does not.
    """
    found = context(name, arguments, enter=enter)
    if read is not None:
        found.inputs.update(read(found.recipe, found.target))
    if not (found.run.path / "logs" / f"{name}.lock").exists():
        # Nobody is at this stage: what is refused is refused before anything is written.
        found.run.finished(name, found.inputs, found.defaults)
    log = found.run.log(name)
    # Extraction has a lock of its own, which refuses a second one instead of waiting for days.
    alone = contextlib.nullcontext() if name == "extract" else lock.held(log.with_suffix(".lock"))
    with alone:
        return _run_alone(name, found, body, log, error, still_good)


def _run_alone(
    name: Stage,
    found: Context,
    body: Callable[[Context, stagelog.Terminal], dict[str, Any]],
    log: Path,
    error: type[DraftkilnError],
    still_good: Callable[[Context], bool] | None,
) -> int:
    done = found.run.finished(name, found.inputs, found.defaults)
    if done is not None:
        lost = found.run.lost(name)
        if lost:
            print(f"{name}: {', '.join(lost[:3])} is gone or was cut, done again")
        if lost or (still_good is not None and not still_good(found)):
            found.run.reopen(name)
            done = None
    if done is not None:
        print(f"{name}: done already in {found.run.path / name}")
        return ExitCode.OK
    found.run.begin(name, found.inputs)
    began = time.monotonic()
    events = Events(log.with_suffix(".jsonl"), {"run": str(found.run.path), "stage": name, "stack": found.stack})
    with stagelog.stage_log(log, error, events) as terminal:
        results = body(found, terminal)
        results["stage_seconds"] = round(time.monotonic() - began, 1)
        results["ran_in"] = _surroundings()
        found.run.finish(name, found.inputs, results)
        terminal.line(f"{name}: done in {results['stage_seconds']:.0f} s")
    return ExitCode.OK


def _surroundings() -> dict[str, Any]:
    """What this process runs in: its Python, and the image where it runs in one's container."""
    from draftkiln.containers.entry import PROVENANCE

    found: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine()}
    if PROVENANCE.is_file():
        image = read_json(PROVENANCE)
        found["image"] = {key: image.get(key) for key in ("image", "base", "revision")}
        found["image_provenance_sha256"] = durable.sha256_file(PROVENANCE)
    return found


def context(name: Stage, arguments: argparse.Namespace, *, enter: bool = True) -> Context:
    """What a stage works with, in its stack's environment: replaces this process unless it already runs there."""
    from draftkiln.recipe.load import load
    from draftkiln.stack import environment

    recipe = load(arguments.recipe)
    directory = RunDirectory.open(arguments.run, recipe.name)
    earlier = {stage: directory.require(stage) for stage in READS[name]}
    stack = recipe.stacks.of(name)
    if enter:
        environment.enter(stack, sys.argv[1:])
    return _context(name, recipe, directory, stack, earlier)


def _context(name: Stage, recipe: Recipe, directory: RunDirectory, stack: str, earlier: dict[str, Any]) -> Context:
    from draftkiln import cache
    from draftkiln.stack.model import read
    from draftkiln.target.resolve import ensure

    target = ensure(recipe.target.source, cache.root() / "targets")
    facts = checked_target(recipe, target)
    found_stack = read(stack)
    content, defaults = contents(recipe)
    refuse_another_recipe(directory, content, defaults, before(name))
    now = inputs(name, content, found_stack, target, earlier)
    return Context(recipe, directory, target, facts, stack, now, found_stack.file.device, sections(defaults, name))


def checked_target(recipe: Recipe, target: Path) -> TargetFacts:
    """What the target in a folder is.

    Raises:
        ProblemsError: the recipe does not fit it.
        TargetError: it cannot be used.
    """
    from draftkiln.recipe.check import problems_on_target
    from draftkiln.target import facts as target_facts

    facts = target_facts.check(
        target,
        trust_remote_code=recipe.target.trust_remote_code,
        weights=recipe.target.load_format != "dummy",
    )
    found = problems_on_target(recipe, facts)
    if found:
        raise ProblemsError([RecipeError(text) for text in found])
    return facts


def contents(recipe: Recipe) -> tuple[dict[str, Any], dict[str, Any]]:
    """All values of a recipe, and those of them that it does not name."""
    content = recipe.model_dump(mode="json", by_alias=True)
    return content, _defaults(content, recipe.model_dump(mode="json", by_alias=True, exclude_defaults=True))


def inputs(
    name: Stage, content: Mapping[str, Any], stack: Stack, target: Path | None, earlier: Mapping[str, Any]
) -> dict[str, Any]:
    """All that decides what a stage makes, but for what its command reads besides.

    Args:
        name: of the stage.
        content: all values of the recipe.
        stack: that the stage runs on.
        target: its folder; None where it is not there.
        earlier: records of the stages that it reads, by name.
    """
    locked = stack.locked()
    found = sections(content, name)
    found |= {"stack": stack.name, "requirements": locked.requirements_sha256}
    found["speculators"] = locked.patched_wheel_sha256 or locked.base_wheel_sha256
    if target is not None:
        found["target_config"] = durable.sha256_file(target / "config.json")
    found |= {f"{stage}.record": durable.sha256_json(record["inputs"]) for stage, record in earlier.items()}
    if "prepare" in earlier:
        found["dataset_sha256"] = _dataset_sha256(earlier["prepare"])
    return found


def _dataset_sha256(prepared: Mapping[str, Any]) -> str:
    found = prepared["results"].get("dataset_sha256")
    if not isinstance(found, str):
        raise RunDirectoryError(
            "the record of stage prepare names no dataset",
            why="its results hold no text 'dataset_sha256'",
            fix="restore prepare/stage.json, or name a new run directory",
        )
    return found


def sections(content: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """What a recipe, or its defaults, says to a stage, as the stage records it."""
    return {f"recipe.{section}": content[section] for section in _SECTIONS[stage] if section in content}


def _defaults(content: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """What `content` has and `named`, the same without defaults, has not; lists keep the places of their parts."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        if key not in named:
            found[key] = value
        elif isinstance(value, Mapping):
            found[key] = _defaults(value, named[key])
        elif isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
            found[key] = [_defaults(*pair) for pair in zip(value, named[key], strict=True)]
    return found


def before(name: str) -> list[str]:
    """All stages whose results reach this one."""
    found: list[str] = []
    for stage in READS[name]:
        found += [earlier for earlier in (*before(stage), stage) if earlier not in found]
    return found


def refuse_another_recipe(
    directory: RunDirectory, content: Mapping[str, Any], defaults: Mapping[str, Any], earlier: list[str]
) -> None:
    """Results of earlier stages that this recipe would not give are not read.

    Raises:
        RunDirectoryError: naming every value that differs, and the stage.
    """
    for stage in earlier:
        recorded = directory.require(stage)["inputs"]
        # How many devices the target takes may change between stages; its config is compared by hash.
        now = sections(content, stage)
        now.pop("recipe.target", None)
        there = filled({key: recorded[key] for key in now if key in recorded}, sections(defaults, stage))
        changed = list(differences({key: there[key] for key in now if key in there}, now))
        if changed:
            raise RunDirectoryError(
                f"{directory.path}: stage {stage} was made from another recipe",
                why="; ".join(changed),
                fix="name a new --run directory, or go back to the recipe of this one",
            )
