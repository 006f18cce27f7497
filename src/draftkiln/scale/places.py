"""Where a replica finds its program: the stack's environment on its host, an installed bundle, or the stack's image."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import StackError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPORT = re.compile(r"^export (\w+)=(.*)$", re.MULTILINE)
_OF_RAY = ("OMP_NUM_THREADS",)
"""Ray sets it to the CPUs of an actor; what an engine needs is its stack's affair."""


@dataclass(frozen=True)
class Start:
    """How a replica is started; sent to each host.

    Attributes:
        stack: that it runs on.
        place: `stack`, `image` or `bundle:FOLDER`.
        recipe: text of the recipe.
        run: run directory as the hosts see it.
        folder: working directory, for relative paths of the recipe.
        executor: vLLM's executor; None: its choice.
        program: what to run instead, for tests; the replica's arguments follow.
        variables: environment variables beside the host's.
    """

    stack: str
    place: str
    recipe: str
    run: str
    folder: str
    executor: str | None = None
    program: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A command line with its environment."""

    command: list[str]
    variables: Mapping[str, str]


def check(place: str) -> None:
    """Refuse the name of a place that there is not.

    Raises:
        UsageError: it is none.
    """
    if place not in {"stack", "image"} and not (place.startswith("bundle:") and place != "bundle:"):
        raise UsageError(f"--engine-in {place} means nothing", fix="stack, image or bundle:FOLDER")


def program(start: Start, recipe: Path, name: str) -> Program:
    """What starts replica `name` on this host; the stack's environment is made when it is not there.

    Raises:
        StackError: the place is not there.
    """
    words = ["replica", "--recipe", str(recipe), "--run", start.run, "--replica", name]
    words += ["--executor", start.executor] if start.executor else []
    found = _program(start, recipe, words)
    variables = {key: value for key, value in found.variables.items() if key not in _OF_RAY or key in start.variables}
    if start.executor == "ray":
        # Ray hides the devices from an actor that asked for none; vLLM's own actors ask for theirs.
        variables.pop("CUDA_VISIBLE_DEVICES", None)
    return replace(found, variables={**variables, **start.variables})


def _program(start: Start, recipe: Path, words: list[str]) -> Program:
    if start.program:
        return Program([*start.program, *words], os.environ)
    if start.place == "image":
        return _in_image(start, recipe, words)
    if start.place.startswith("bundle:"):
        return Program([sys.executable, "-m", "draftkiln", *words], _of_bundle(Path(start.place[7:])))
    from draftkiln.stack import environment

    found = environment.ensure(start.stack)
    return Program([str(found.python), "-m", "draftkiln", *words], found.variables())


def _of_bundle(folder: Path) -> dict[str, str]:
    """The environment that an installed bundle wants, as its `env.sh` says."""
    try:
        text = (folder / "env.sh").read_text(encoding="utf-8")
    except OSError as error:
        raise StackError(
            f"{folder} is no installed bundle", why=str(error), fix="install it: python3 install.py --target DIR"
        ) from error
    return {**os.environ, **{key: "".join(shlex.split(value)) for key, value in _EXPORT.findall(text)}}


def _in_image(start: Start, recipe: Path, words: list[str]) -> Program:
    from draftkiln.containers import stage
    from draftkiln.containers.engine import find
    from draftkiln.containers.launch import Gpus, run_line

    engine = find()
    devices = tuple(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))
    gpus = Gpus(ids=devices) if devices else None
    wishes = stage.Wishes(gpus=gpus, network="host" if start.executor == "ray" else "none")
    launch = stage.launch("extract", recipe, Path(start.run), wishes)
    return Program(run_line(engine, replace(launch, command=tuple(words), interactive=True)), engine.variables())
