"""`draftkiln status RUN`: how far a run is, from another terminal."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln import rundir
from draftkiln.errors import ExitCode, RunDirectoryError
from draftkiln.extract import manifest, progress

if TYPE_CHECKING:
    import argparse

_STAGES = ("prepare", "extract", "validate", "train", "export", "evaluate")
_OLD_SECONDS = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run directory."""
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")


def main(arguments: argparse.Namespace) -> int:
    """Print one line a stage, and of the extraction how far it is; nothing is written."""
    run = arguments.run
    if not (run / "run.json").exists():
        raise RunDirectoryError(
            f"{run} is no run directory", why="it has no run.json", fix="name one that a stage made"
        )
    print(f"recipe {rundir.read_json(run / 'run.json').get('recipe')}")
    for stage in _STAGES:
        print(f"{stage}: {_of_stage(run, stage)}")
    return ExitCode.OK


def _of_stage(run: Path, stage: str) -> str:
    if (run / stage / "stage.json").exists():
        seconds = rundir.read_record(run / stage / "stage.json")["results"].get("stage_seconds")
        return f"done in {progress.duration(seconds)}" if isinstance(seconds, int | float) else "done"
    if not (run / stage / "begun.json").exists():
        return "not begun"
    return _of_extraction(run / stage) if stage == "extract" else "begun"


def _of_extraction(folder: Path) -> str:
    path = folder / manifest.FILE
    if not path.exists():
        return "begun"
    found = manifest.read(path, mend=False)
    text = f"{len(found.receipts)} of {len(found.head.indices)} samples durable"
    if found.head.shard is not None:
        text = f"shard {found.head.shard}: {text}"
    state = progress.read(folder / progress.FILE)
    if state is None:
        return text
    if not Path(f"/proc/{state.process}").exists() and time.time() - state.at > _OLD_SECONDS:
        return f"{text}; nothing was written for {progress.duration(time.time() - state.at)}"
    return f"{text}; of this start: {state.text()} ({_age(state)})"


def _age(state: progress.State) -> str:
    host = "" if Path(f"/proc/{state.process}").exists() else f", its process is not on {os.uname().nodename}"
    return f"{progress.duration(max(time.time() - state.at, 0))} ago{host}"
