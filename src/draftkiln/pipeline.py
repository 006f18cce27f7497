"""`draftkiln run`: every stage of a recipe, each a process of its own, and at the end what came out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import memory, signals
from draftkiln.errors import ExitCode
from draftkiln.report import command as report
from draftkiln.rundir import RunDirectory

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterator, Mapping

    from draftkiln.recipe.model import Recipe, Stage


_PLAINLY_ALIKE = 0.99


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the whole run."""
    from draftkiln.recipe.model import STAGES

    parser.add_argument(
        "--recipe", type=Path, required=True, metavar="FILE", help="what to run: a YAML file of recipes/"
    )
    parser.add_argument("--run", type=Path, metavar="DIR", help="run directory (default: runs/ and the recipe's name)")
    parser.add_argument("--until", choices=STAGES, metavar="STAGE", help=f"stop after this stage: {', '.join(STAGES)}")
    parser.add_argument(
        "--in-container",
        nargs="*",
        choices=STAGES,
        metavar="STAGE",
        help="run these stages (default: all) in their stack's image, not environment",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what each stage would do, run and write nothing")


def main(arguments: argparse.Namespace) -> int:
    """Run the stages in order; stages that are done are not done again."""
    from draftkiln.recipe.load import load
    from draftkiln.recipe.model import STAGES
    from draftkiln.stack import environment

    recipe = load(arguments.recipe)
    folder = arguments.run or Path("runs", recipe.name)
    chosen = STAGES[: STAGES.index(arguments.until) + 1] if arguments.until else STAGES
    if arguments.dry_run:
        from draftkiln import ahead

        for found in ahead.outlooks(recipe, folder, chosen):
            print(f"{found.stage:9} on {recipe.stacks.of(found.stage)}: {found.words}")
        return ExitCode.OK
    boxed = set() if arguments.in_container is None else set(arguments.in_container or chosen).intersection(chosen)
    _demand_images(recipe, boxed, arguments.recipe, folder)
    directory = RunDirectory.open(folder, recipe.name)
    began = time.monotonic()
    for name in sorted({recipe.stacks.of(stage) for stage in chosen if stage not in boxed}):
        environment.ensure(name)
    ready = time.monotonic()
    with memory.Peak() as peak:
        for stage in chosen:
            log = folder / "logs" / f"{stage}.log"
            written = _written(log)
            runner = ["image", "stage"] if stage in boxed else []
            code = _run([*runner, stage, "--recipe", str(arguments.recipe), "--run", str(folder)])
            if code:
                # A stage that was refused wrote none: what lies there tells of another start.
                told = f"; its log is {log}" if _written(log) != written else ""
                print(f"draftkiln run: stopped at stage {stage}{told}", file=sys.stderr)
                return code
    records: dict[str, dict[str, Any]] = {stage: directory.require(stage)["results"] for stage in chosen}
    print(f"\n{recipe.name}: done")
    for line in summary(records, folder):
        print(f"  {line}")
    page, damaged = report.write(folder)
    print(f"  all of it on one page: {page}")
    report.tell(damaged)
    took = time.monotonic() - ready
    print(f"  time: {took:.0f} s in stages, {ready - began:.0f} s making environments")
    # An engine's containers are no children of this process.
    print(f"  peak memory{' outside containers' if boxed else ''}: {peak.gigabytes:.1f} GB")
    return ExitCode.OK


def _written(log: Path) -> int:
    """When a log was written last, in nanoseconds; 0 where there is none."""
    return log.stat().st_mtime_ns if log.exists() else 0


def _demand_images(recipe: Recipe, boxed: Collection[Stage], recipe_file: Path, folder: Path) -> None:
    """Hold that images are built and can be started, before hours of other stages and not after them."""
    if not boxed:
        return
    from draftkiln.containers import current, engine, launch, stage

    found = engine.find()
    for name in sorted({recipe.stacks.of(one) for one in boxed}):
        current.require(found, name)
    for name in boxed:
        launch.run_line(found, stage.launch(name, recipe_file, folder, stage.Wishes(), made=False))
    os.environ[current.TOLD] = "1"


def _run(words: list[str]) -> int:
    """Run one stage in a process of its own, which is told when this one shall end."""
    with subprocess.Popen([sys.executable, "-m", "draftkiln", *words], stdin=subprocess.DEVNULL) as process:
        with signals.passed_on(process):
            code = process.wait()
        return code if code >= 0 else 128 - code


def summary(records: Mapping[str, Mapping[str, Any]], folder: Path) -> Iterator[str]:
    """Lines that say what a run made; stages that were not run are left out."""
    if "extract" in records:
        made = records["extract"]
        tokens, slots, hidden = made["shape"]
        yield (
            f"samples: {made['samples']}, up to [{tokens}, {slots}, {hidden}] {made['dtype']}, "
            f"slots are layers {made['layer_ids']}, each [{tokens}, {hidden}]"
        )
        yield f"extraction: {made.get('tokens_per_second', 'resumed')} tok/s, {made['tokens']} tokens"
    if "validate" in records:
        checked = records["validate"]
        yield f"checks passed: {', '.join(checked['checks'])} on {checked['samples']} samples"
        if checked["min_cosine"] is not None:
            reference = checked.get("against", "transformers")
            yield f"against {reference}: {_alike(checked)} on {checked['compared']} samples"
    if "train" in records:
        trained = records["train"]
        yield f"training loss: {trained['loss_first']:.3f} -> {trained['loss_last']:.3f} in {trained['steps']} steps"
    if "evaluate" in records:
        measured = records["evaluate"]
        yield (
            f"acceptance length: {measured['acceptance_length']:.2f} at {measured['num_draft_tokens']} draft tokens "
            f"on {measured['prompts']} held-out prompts (1.00 = nothing accepted)"
        )
        yield f"output with the draft: {'identical to' if measured['lossless'] else 'DIFFERENT from'} the target alone"
    yield f"everything lies in: {folder}"


def _alike(checked: Mapping[str, Any]) -> str:
    """How alike states and reference are: a least cosine tells little where close calls choose other experts."""
    said = f"least cosine {checked['min_cosine']:.5f}"
    if checked["min_cosine"] < _PLAINLY_ALIKE and checked.get("nearest") is not None:
        said += f", median {checked['median_cosine']:.5f}, {checked['nearest']:.1%} of rows nearest to their own state"
    return said
