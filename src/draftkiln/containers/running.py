"""Running containers: in the foreground with the exit code and signals passed on, or detached for days."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from draftkiln import signals
from draftkiln.containers import failures
from draftkiln.containers.launch import LABEL, Launch, run_line
from draftkiln.errors import ContainerError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from draftkiln.containers.engine import Engine

_ENGINE_FAILED = range(125, 128)
"""Exit codes that engines keep for their own failures."""
_STOP_S = 600
"""Seconds a stage has to end its samples before it is killed."""


@dataclass(frozen=True)
class Running:
    """A container started here, alive or not."""

    name: str
    state: str
    exit_code: int | None
    run: str


def require_image(engine: Engine, tag: str, stack: str) -> None:
    """Hold that an image is here; it is never pulled or built by the way.

    Raises:
        ContainerError: it is not.
    """
    if engine.attempt("image", "inspect", tag).returncode:
        raise ContainerError(f"image {tag} is not built", fix=f"nox -s build -- --stack {stack}")


def foreground(engine: Engine, launch: Launch) -> int:
    """Run until the container ends and return its exit code; SIGTERM and SIGINT go to the stage.

    Raises:
        ContainerError: the engine itself failed.
    """
    kept: list[bytes] = []
    with subprocess.Popen(
        run_line(engine, launch), env=engine.variables(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        reader = threading.Thread(target=_echo, args=(process.stderr, kept), daemon=True)
        reader.start()
        with signals.passed_on(process):
            code = process.wait()
        reader.join(timeout=5)
    if code in _ENGINE_FAILED:
        raise failures.explain("the container did not start", code, b"".join(kept).decode(errors="replace"))
    return code if code >= 0 else 128 - code


def detached(engine: Engine, launch: Launch) -> str:
    """Start a container and return its name; an ended one of that name is removed first.

    Raises:
        ContainerError: one of that name still runs, or the engine failed.
    """
    if not launch.detach or launch.name is None:
        raise UsageError("a detached container needs a name")
    for found in listed(engine, launch.label):
        if found.name == launch.name and found.state == "running":
            raise ContainerError(f"{found.name} runs already", fix=f"draftkiln image stop --run {launch.label}")
        if found.name == launch.name:
            engine.capture("rm", found.name)
    engine.capture(*run_line(engine, launch)[1:], subject="the container did not start")
    return launch.name


def listed(engine: Engine, run: Path | str | None = None) -> list[Running]:
    """Containers that were detached here, newest first; of one run directory (or what else was named), or all."""
    # By the key alone: engines read commas in a filter's value in ways of their own.
    names = engine.capture("ps", "--all", "--filter", f"label={LABEL}", "--format", "{{.Names}}").split()
    found = []
    for name in names:
        asked = engine.attempt("inspect", "--type", "container", name)
        # One that ended since then and was removed by its own starter is none of these.
        facts = json.loads(asked.stdout)[0] if asked.returncode == 0 else {}
        if not facts or facts.get("HostConfig", {}).get("AutoRemove"):
            continue
        state = facts["State"]
        alive = state.get("Running", False)
        found.append(
            Running(
                name,
                "running" if alive else "ended",
                None if alive else state["ExitCode"],
                facts["Config"]["Labels"][LABEL],
            )
        )
    return [item for item in found if run is None or item.run == str(run)]


def show_log(engine: Engine, name: str, *, follow: bool) -> int:
    """Print what a container wrote."""
    words = ["logs", *(["--follow"] if follow else []), name]
    return subprocess.run(engine.line(*words), env=engine.variables(), stdin=subprocess.DEVNULL, check=False).returncode


def stop(engine: Engine, found: Running) -> int:
    """Let a container end (SIGTERM, then time to finish what it writes), remove it, return its exit code."""
    if found.state == "running":
        # The long name is --time in podman and docker up to 27, --timeout in later ones.
        engine.capture("stop", "-t", str(_STOP_S), found.name)
    state = json.loads(engine.capture("inspect", "--type", "container", found.name))[0]["State"]
    engine.capture("rm", found.name)
    return int(state["ExitCode"])


def _echo(stream: IO[bytes] | None, kept: list[bytes]) -> None:
    for line in stream or ():
        kept.append(line)
        del kept[:-60]
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
