"""Training on several devices: torchrun starts a process a device, the stage's own process watches over them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import SystemMissingError, TrainingError
from draftkiln.rundir import read_json
from draftkiln.train import curve, job
from draftkiln.train.loop import StopAskedError

if TYPE_CHECKING:
    from draftkiln.stagelog import Terminal
    from draftkiln.train.job import Job
    from draftkiln.train.state import Asked

_LOOK_SECONDS = 0.5


def command(file: Path, devices: int) -> list[str]:
    """The command line that trains the job in `file` on so many devices of this host."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(devices)]
    return [*torchrun, "-m", "draftkiln.train.job", str(file)]


def refuse_missing(devices: int) -> None:
    """Refuse more devices than there are; without an accelerator each is a CPU process.

    Raises:
        SystemMissingError: with both numbers.
    """
    import torch

    there = torch.accelerator.device_count() if torch.accelerator.is_available() else len(os.sched_getaffinity(0))
    if devices > there:
        kind = "GPUs" if torch.accelerator.is_available() else "CPU cores"
        raise SystemMissingError(
            f"train.devices is {devices}",
            why=f"this machine has {there} {kind}",
            fix="lower it in the recipe, or run on a larger host",
        )


def run(work: Job, steps: int, ending: Asked, terminal: Terminal) -> float | None:
    """Train on `work.plan.devices` devices.

    Args:
        work: what is to be done.
        steps: optimizer steps of the whole run, for the progress.
        ending: whether the end was asked for; the processes are told, and save the step they are in.
        terminal: shows progress.

    Returns:
        When the first step of this start was seen to end, by the monotonic clock; None if there was none.

    Raises:
        StopAskedError: the end was asked for, and the state is saved.
        TrainingError: a process failed.
    """
    folder = Path(work.folder)
    stop, failure, finished = (folder / name for name in (job.STOP, job.FAILURE, job.FINISHED))
    for leftover in (stop, failure, finished):
        leftover.unlink(missing_ok=True)
    begin = work.begin
    shown = begin.step if begin else 0
    seen = None
    # In a session of its own: a signal to the whole group must not end the processes within a step.
    process = subprocess.Popen(
        command(folder / job.FILE, work.plan.devices),
        env=os.environ | {job.PARENT: str(os.getpid()), "OMP_NUM_THREADS": _threads(work.plan.devices)},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while (code := process.poll()) is None:
            time.sleep(_LOOK_SECONDS)
            if ending.asked():
                stop.touch()
            line = curve.last_step(folder / job.CURVE)
            if line is not None and line["step"] > shown:
                shown, seen = line["step"], seen or time.monotonic()
                curve.show(line, steps, terminal)
    except BaseException:
        process.terminate()  # torchrun ends its processes
        process.wait()
        raise
    stop.unlink(missing_ok=True)
    if failure.exists():
        raise TrainingError(**read_json(failure))
    if code:
        raise TrainingError(
            f"training on {work.plan.devices} devices ended with code {code}",
            why="a process of it failed; its traceback is in the log of this stage",
            fix="mend the cause and run the same command again: it goes on from the last saved state",
        )
    if not finished.exists():
        raise StopAskedError
    return seen


def _threads(devices: int) -> str:
    """Threads of a process: torchrun's default of one would waste a CPU's other cores."""
    return os.environ.get("OMP_NUM_THREADS") or str(max(1, len(os.sched_getaffinity(0)) // devices))
