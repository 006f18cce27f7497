"""`draftkiln launch --print`: the job that runs a recipe's stage on a cluster, made from the recipe."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import ExitCode, UsageError

if TYPE_CHECKING:
    import argparse

    from draftkiln.recipe.model import Recipe

FORMS = ("slurm", "k8s", "ray")
_TIME = re.compile(r"(\d+-)?\d{1,2}:\d{2}:\d{2}", re.ASCII)


@dataclass(frozen=True)
class Job:
    """One stage on a cluster.

    Attributes:
        stage: `extract` or `train`.
        recipe: what is run.
        recipe_file: where it lies.
        run: run directory, which all hosts see.
        hosts: that work on it.
        devices: that it takes of each.
        device: `cpu` or `cuda`.
        stack: that it runs on.
        image: with the stack inside.
        claim: name of the volume with the run directory.
        time: that a host may take before it is ended and queued again.
        command: that made the job, for its head.
    """

    stage: str
    recipe: Recipe
    recipe_file: Path
    run: Path
    hosts: int
    devices: int
    device: str
    stack: str
    image: str
    claim: str
    time: str
    command: str

    @property
    def name(self) -> str:
        """Name of the job."""
        return f"{self.recipe.name}-{self.stage}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what decides the job."""
    parser.add_argument("--print", choices=FORMS, required=True, dest="form", help="for which cluster")
    parser.add_argument("--recipe", type=Path, required=True, metavar="FILE", help="the recipe")
    parser.add_argument("--stage", choices=("extract", "train"), default="extract", help="default: extract")
    parser.add_argument("--run", type=Path, metavar="DIR", help="run directory that all hosts see (default: runs/NAME)")
    parser.add_argument("--hosts", type=int, default=4, metavar="N", help="hosts that extract (default: 4)")
    parser.add_argument(
        "--image", metavar="NAME", help="image for k8s, best with its digest (default: the built one's)"
    )
    parser.add_argument("--claim", default="draftkiln-runs", metavar="NAME", help="volume claim for k8s")
    parser.add_argument(
        "--time", default="2-00:00:00", metavar="D-HH:MM:SS", help="limit of a Slurm job (default: 2 days)"
    )


def main(arguments: argparse.Namespace) -> int:
    """Print the job."""
    from draftkiln.scale import kubernetes, slurm

    made = job(arguments)
    if arguments.form == "k8s":
        print(kubernetes.manifest(made), end="")
    else:
        print(slurm.ray_script(made) if arguments.form == "ray" else slurm.script(made), end="")
    return ExitCode.OK


def job(arguments: argparse.Namespace) -> Job:
    """The job that the command line asks for.

    Raises:
        UsageError: it contradicts itself.
    """
    from draftkiln.containers.inputs import image_name
    from draftkiln.recipe.load import load
    from draftkiln.stack.model import read

    if arguments.hosts < 1:
        raise UsageError("--hosts must be 1 or more")
    if not _TIME.fullmatch(arguments.time):
        raise UsageError(f"--time {arguments.time} is no time limit", fix="write it as 12:00:00 or 2-00:00:00")
    if arguments.form == "ray" and arguments.stage != "extract":
        raise UsageError(
            "Ray spreads extraction alone", fix="--print slurm or k8s for training, which torchrun spreads"
        )
    recipe = load(arguments.recipe)
    stack = recipe.stacks.of(arguments.stage)
    file = read(stack).file
    return Job(
        stage=arguments.stage,
        recipe=recipe,
        recipe_file=arguments.recipe,
        run=arguments.run or Path("runs", recipe.name),
        hosts=arguments.hosts if arguments.stage == "extract" else 1,
        devices=_devices(recipe, arguments.stage),
        device=file.device,
        stack=stack,
        image=arguments.image or image_name(stack),
        claim=arguments.claim,
        time=arguments.time,
        command=_command(arguments),
    )


def _devices(recipe: Recipe, stage: str) -> int:
    return recipe.target.tensor_parallel_size if stage == "extract" else recipe.train.devices


def _command(arguments: argparse.Namespace) -> str:
    """The command line in one form, so that a committed example says how to make it again."""
    words = ["draftkiln", "launch", "--print", arguments.form, "--recipe", str(arguments.recipe)]
    words += ["--stage", arguments.stage] if arguments.stage != "extract" else []
    words += ["--run", str(arguments.run)] if arguments.run else []
    words += ["--hosts", str(arguments.hosts)] if arguments.stage == "extract" else []
    words += ["--image", arguments.image] if arguments.image else []
    words += ["--claim", arguments.claim] if arguments.claim != "draftkiln-runs" else []
    words += ["--time", arguments.time] if arguments.time != "2-00:00:00" else []
    return shlex.join(words)
