"""`draftkiln bench-train`: the same training by the stage and by speculators' own command: losses, start, tokens/s."""

from __future__ import annotations

import json
import operator
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln.counts import positive
from draftkiln.errors import ExitCode, TrainingError
from draftkiln.stack.environment import ACTIVE
from draftkiln.train import curve, job

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from draftkiln.recipe.model import Recipe

_STEPS, _ROUNDS = 24, 2
_WARM = 3
"""Steps left out of the pace."""
_LOOK_SECONDS = 0.02
_TIMES = slice(11, 15)
"""Of the fields of /proc/PID/stat behind the name: user and system time, own and of ended children."""
_BY_HAND = """
import json, logging, sys

class Listener(logging.Handler):
    def emit(self, record):
        if isinstance(record.msg, dict) and "train" in record.msg:
            report = record.msg
            line = {"step": report["global_step"] + 1, "loss": report["train"]["loss"],
                    "seconds": report["profile"]["step_ms"] / 1000,
                    "tokens_per_second": report["profile"]["tokens_per_s"]}
            with open(sys.argv[2], "a") as file:
                file.write(json.dumps(line) + "\\n")

from speculators.train.cli import main, setup_root_logger
from speculators.train.config import TrainConfig
setup_root_logger()
# First in the row: the trainer's own handler makes the numbers of a record into text.
logging.getLogger().handlers.insert(0, Listener())
main(TrainConfig.resolve(["--config", sys.argv[1]]))
"""
"""What `speculators train --config FILE` runs, with a listener for its numbers."""


@dataclass(frozen=True)
class Measured:
    """One training.

    Attributes:
        start_seconds: from the start of the process to its first step.
        losses: of each step.
        pace: tokens a second of each step.
        processor_seconds: of all cores until the first step was done; other work on the machine changes it little.
    """

    start_seconds: float
    losses: list[float]
    pace: list[float]
    processor_seconds: float = 0.0

    @property
    def median_pace(self) -> float:
        """Tokens a second of a step in the middle, the first ones left out."""
        return statistics.median(self.pace[_WARM:] or self.pace)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run whose samples are trained on, and how much is measured."""
    parser.add_argument("--recipe", type=Path, required=True, metavar="FILE", help="whose training is measured")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="run directory with validated samples")
    parser.add_argument("--steps", type=positive, default=_STEPS, help=f"steps of each training (default: {_STEPS})")
    parser.add_argument("--rounds", type=positive, default=_ROUNDS, help=f"trainings of each (default: {_ROUNDS})")
    parser.add_argument("--json", action="store_true", help="as JSON")


def main(arguments: argparse.Namespace) -> int:
    """Measure both, one after the other, and print what came out."""
    from draftkiln.recipe.load import load
    from draftkiln.rundir import RunDirectory
    from draftkiln.stack import environment

    recipe = load(arguments.recipe)
    RunDirectory.open(arguments.run, recipe.name).require("validate")
    environment.enter(recipe.stacks.of("train"), sys.argv[1:])
    with tempfile.TemporaryDirectory(dir=arguments.run.absolute().parent) as name:
        ours, theirs = _alternated(recipe, arguments.run.absolute(), Path(name), arguments.steps, arguments.rounds)
    found = summary(ours, theirs)
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        for line in table(found):
            print(line)
    return ExitCode.OK


def _alternated(
    recipe: Recipe, run: Path, folder: Path, steps: int, rounds: int
) -> tuple[list[Measured], list[Measured]]:
    """The two by turns, the other one first in each second round: a machine is seldom as fast all the time.

    Both are run once before, a single step: the first one would read all that they import from the disk.
    """
    ours: list[Measured] = []
    theirs: list[Measured] = []
    warm = folder / "warm"
    warm.mkdir()
    by_stage(recipe, run, warm, 1)
    by_hand(warm / "run" / "train", folder / "warm-by-hand")
    for place in range(rounds):
        stage, hand = folder / f"stage-{place}", folder / f"by-hand-{place}"
        stage.mkdir()
        if place % 2:  # with the settings and inputs that the stage wrote in the round before
            theirs.append(by_hand(folder / f"stage-{place - 1}" / "run" / "train", hand))
        ours.append(by_stage(recipe, run, stage, steps))
        if not place % 2:
            theirs.append(by_hand(stage / "run" / "train", hand))
    return ours, theirs


def by_stage(recipe: Recipe, run: Path, folder: Path, steps: int) -> Measured:
    """Measure `draftkiln train` on the samples of `run`, in a run directory of its own below `folder`."""
    content = recipe.model_dump(mode="json", by_alias=True, exclude_none=True)
    content["train"]["max_steps"] = steps
    content["train"].pop("epochs", None)
    (folder / "recipe.yaml").write_text(json.dumps(content), encoding="utf-8")
    made = folder / "run"
    made.mkdir()
    shutil.copy(run / "run.json", made)
    for stage in ("prepare", "extract", "validate"):
        (made / stage).symlink_to(run / stage, target_is_directory=True)
    command = [sys.executable, "-m", "draftkiln", "train"]
    words = ["--recipe", str(folder / "recipe.yaml"), "--run", str(made)]
    outside = {name: value for name, value in os.environ.items() if name != ACTIVE}
    return _measure([*command, *words], made / "train" / job.CURVE, folder / "stage.log", outside)


def by_hand(train: Path, folder: Path) -> Measured:
    """Measure speculators' own command with the settings and the inputs of the stage's folder `train`."""
    from speculators.train.config import TrainConfig
    from speculators.train.config.artifacts import dump_yaml

    values = {**settings_of(train), "save_path": str(folder / "checkpoints"), "log_dir": str(folder / "logs")}
    folder.mkdir()
    (folder / "train.yaml").write_text(dump_yaml(TrainConfig.from_flat(values)), encoding="utf-8")
    lines = folder / "lines.jsonl"
    command = [sys.executable, "-c", _BY_HAND, str(folder / "train.yaml"), str(lines)]
    return _measure(command, lines, folder / "log", os.environ)


def settings_of(train: Path) -> dict[str, Any]:
    """The flat settings that the stage gave the trainer."""
    from draftkiln.train.job import Job

    return Job.read(train / job.FILE).settings


def _measure(command: Sequence[str], lines: Path, log: Path, variables: Mapping[str, str]) -> Measured:
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=variables
        )
        start, processor = None, 0.0
        while process.poll() is None:
            if start is None and (first := next(curve.read(lines), None)) is not None:
                start, processor = time.monotonic() - began - first["seconds"], _processor_seconds(process.pid)
            time.sleep(_LOOK_SECONDS)
    if process.returncode or start is None:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        raise TrainingError(f"a training ended with code {process.returncode}", why="\n".join(last))
    steps = [line for line in curve.read(lines) if not line.get("validation")]
    losses, pace = ([line[key] for line in steps] for key in ("loss", "tokens_per_second"))
    return Measured(start, losses, pace, processor)


def _processor_seconds(process: int) -> float:
    """What a process and its ended children took of all cores; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[_TIMES])) / os.sysconf("SC_CLK_TCK")


def summary(ours: Sequence[Measured], theirs: Sequence[Measured]) -> dict[str, Any]:
    """Medians over the rounds, and the largest difference of two losses of one step."""
    start, processor, pace = (
        [statistics.median(map(figure, side)) for side in (ours, theirs)]
        for figure in map(operator.attrgetter, ("start_seconds", "processor_seconds", "median_pace"))
    )
    apart = [
        abs(mine - other) for one, two in zip(ours, theirs, strict=True)
        for mine, other in zip(one.losses, two.losses, strict=True)
    ]  # fmt: skip
    return {
        "steps": len(ours[0].losses),
        "rounds": len(ours),
        "largest_loss_difference": max(apart),
        "start_seconds": {"draftkiln": round(start[0], 1), "speculators": round(start[1], 1)},
        "start_overhead_seconds": round(start[0] - start[1], 1),
        "processor_seconds": {"draftkiln": round(processor[0], 1), "speculators": round(processor[1], 1)},
        "tokens_per_second": {"draftkiln": round(pace[0], 1), "speculators": round(pace[1], 1)},
        "ratio": round(pace[0] / pace[1], 3),
    }


def table(found: Mapping[str, Any]) -> list[str]:
    """The figures as lines."""
    start, processor, pace = (found[key] for key in ("start_seconds", "processor_seconds", "tokens_per_second"))
    return [
        f"{found['steps']} steps, {found['rounds']} times each, by turns",
        f"{'':<27} {'draftkiln train':>15} {'speculators train':>19}",
        f"from start to first step, s {start['draftkiln']:>15} {start['speculators']:>19}",
        f"processor s until it is done {processor['draftkiln']:>14} {processor['speculators']:>19}",
        f"tokens/s of a step, median  {pace['draftkiln']:>15} {pace['speculators']:>19}",
        f"ratio of tokens/s: {found['ratio']}; overhead at start: {found['start_overhead_seconds']} s",
        f"largest difference of a loss: {found['largest_loss_difference']:.2e}",
    ]
