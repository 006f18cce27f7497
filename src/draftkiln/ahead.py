"""What stages would do in a run directory as it is now; nothing is written, made or fetched to tell it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import durable, stage
from draftkiln.errors import StorageError
from draftkiln.extract import manifest, plan, samples
from draftkiln.recipe.model import HubData, HubDraft, PathTarget
from draftkiln.rundir import RunDirectory
from draftkiln.scale.hosts import PER_HOST
from draftkiln.stack.model import read as read_stack
from draftkiln.target import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from draftkiln.recipe.model import Recipe, Stage

BY_ARGUMENTS = frozenset({"shard", *PER_HOST})
"""Inputs that arguments of a stage decide, and not the recipe."""
_READ: Mapping[str, Callable[[Any, Recipe, Path], Mapping[str, Any]]] = {
    "prepare": lambda command, recipe, target: command.read(recipe, target, fetch=False),
    "extract": lambda command, recipe, _target: command.choices(recipe),
    "train": lambda command, recipe, target: command.read(recipe, target, fetch=False),
    "evaluate": lambda command, recipe, target: command.read(recipe, target),
}
"""What else a stage reads, by its command."""


@dataclass(frozen=True)
class Outlook:
    """What one stage would do."""

    stage: Stage
    runs: bool
    """False where it would be skipped, as far as can be told before the stages ahead of it have run."""
    words: str


def outlooks(
    recipe: Recipe, folder: Path, stages: Sequence[Stage], *, left_out: Collection[str] = ()
) -> Iterator[Outlook]:
    """What each of `stages`, one after the other, would do in the run directory `folder`.

    Args:
        recipe: of the run.
        folder: its run directory, there or not.
        stages: that would be run, in their order.
        left_out: names of inputs that are not compared.

    Raises:
        DraftkilnError: as the stage would: the directory is another run's, a stage in it was made otherwise, or data,
            a stack or the target is not there or not what the recipe needs.
        StorageError: it cannot be written.
    """
    directory = RunDirectory.open(folder, recipe.name)
    _refuse_unwritable(folder)
    running: list[str] = []
    for name in stages:
        found = _outlook(name, recipe, directory, running, left_out)
        if found.runs:
            running.append(name)
        yield found


def _refuse_unwritable(folder: Path) -> None:
    if (there := durable.unwritable(folder)) is not None:
        why = f"{there} is read-only or belongs to another user"
        raise StorageError(f"cannot write {folder}", why=why, fix="make it writable, or name another place with --run")


def _outlook(
    name: Stage, recipe: Recipe, directory: RunDirectory, running: Sequence[str], left_out: Collection[str]
) -> Outlook:
    missing = [earlier for earlier in stage.READS[name] if not _is_there(directory, earlier)]
    record = directory.bound(name)
    _refuse(name, recipe, directory, record["inputs"] if record else {}, missing, left_out)
    if record is None:
        alone = [earlier for earlier in missing if earlier not in running]
        return Outlook(name, runs=True, words=f"needs {', '.join(alone)} first" if alone else "would run")
    if "results" not in record:
        return Outlook(name, runs=True, words="would go on where it stopped")
    if lost := directory.lost(name):
        return Outlook(name, runs=True, words=f"would run again: {', '.join(lost[:3])} is gone or was cut")
    if name == "extract" and (remade := _remade(directory)):
        return Outlook(name, runs=True, words=f"would make {remade} samples that are not as they were recorded")
    if name == "validate" and "extract" in running and _remade(directory):
        return Outlook(name, runs=True, words="would run again: samples are made anew")
    if ahead := [earlier for earlier in stage.before(name) if earlier in running]:
        return Outlook(name, runs=False, words=f"done; kept if the same comes out of {' and '.join(ahead)}")
    return Outlook(name, runs=False, words="done already")


def _is_there(directory: RunDirectory, name: str) -> bool:
    """Whether a stage is finished and what it wrote is there, so that another can read it."""
    return (directory.path / name / "stage.json").exists() and not directory.lost(name)


def _refuse(
    name: Stage,
    recipe: Recipe,
    directory: RunDirectory,
    recorded: Mapping[str, Any],
    missing: Sequence[str],
    left_out: Collection[str],
) -> None:
    """Refuse what the stage refuses, above all inputs that are not those on record.

    What nobody can know yet counts as the same.
    """
    content, defaults = stage.contents(recipe)
    there = [earlier for earlier in stage.before(name) if _is_there(directory, earlier)]
    stage.refuse_another_recipe(directory, content, defaults, there)
    records = {earlier: directory.require(earlier) for earlier in stage.READS[name] if earlier not in missing}
    target = resolve.location(recipe.target.source)
    made = (target / "config.json").is_file()
    if made or isinstance(recipe.target.source, PathTarget):
        stage.checked_target(recipe, target)
    now = stage.inputs(name, content, read_stack(recipe.stacks.of(name)), target if made else None, records)
    now |= _read(name, recipe, target)
    unknown = {f"{earlier}.record" for earlier in missing} | set(left_out)
    unknown |= {"dataset_sha256"} if "prepare" in missing else set()
    unknown |= set() if made else {"target_config", "tokenizer"}
    # What is pinned by commit is the same where the recipe is.
    unknown |= {"data_sha256"} if isinstance(recipe.data.source, HubData) else set()
    unknown |= {"init_from"} if isinstance(recipe.train.init_from, HubDraft) else set()
    now = {key: value for key, value in now.items() if key not in unknown}
    now |= {key: recorded[key] for key in unknown if key in recorded}
    directory.finished(name, now, stage.sections(defaults, name))


def _read(name: Stage, recipe: Recipe, target: Path) -> Mapping[str, Any]:
    """What a stage reads besides the run directory."""
    if name not in _READ:
        return {}
    # Commands import their engines where they run them; this side must not even name those imports.
    return _READ[name](importlib.import_module(f"draftkiln.{name}.command"), recipe, target)


def _remade(directory: RunDirectory) -> int:
    """Samples of a finished extraction, where it is whole otherwise, that are not as their receipts say."""
    if not _is_there(directory, "extract") or PER_HOST.keys() & directory.require("extract")["inputs"].keys():
        return 0
    folder = directory.path / "extract"
    found = manifest.read(folder / manifest.FILE, mend=False)
    return len(plan.compare(folder / samples.FOLDER, found).remaining)
