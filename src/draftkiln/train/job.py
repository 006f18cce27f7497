"""One process of a training: speculators' trainer with these settings, its curve kept, its state saved.

One device is served in the stage's own process. For several, torchrun starts this module once a device:
`python -m draftkiln.train.job JOB.json`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import DraftkilnError, ExitCode
from draftkiln.train import state, warmstart
from draftkiln.train.curve import METRICS, Curve
from draftkiln.train.schedule import Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftkiln.stagelog import Terminal
    from draftkiln.train.schedule import Schedule

FILE, STOP, FAILURE, FINISHED = "job.json", "stop", "failure.json", "finished"
"""Files of the stage's folder: what is to be done; of several processes also: the end is asked for; why one failed; all
steps are done."""
PARENT = "DRAFTKILN_TRAIN_PARENT"
"""Environment variable with the process that started several of these."""
CURVE = "curve.jsonl"
DATA = "data"


@dataclass(frozen=True)
class Job:
    """What a training is to do.

    Attributes:
        folder: RUN/train.
        settings: speculators' flat settings.
        deciding: the ones that decide the result.
        plan: what decides the steps.
        save_minutes: between saved states.
        save_steps: likewise in steps, or None.
        init_from: folder of a published draft, or None.
    """

    folder: str
    settings: dict[str, Any]
    deciding: dict[str, Any]
    plan: Plan
    save_minutes: float
    save_steps: int | None
    init_from: str | None

    def write(self) -> None:
        """Write the job into its folder, for other processes and for people."""
        durable.write_json(Path(self.folder) / FILE, asdict(self))

    @classmethod
    def read(cls, file: Path) -> Job:
        """Read what `write` wrote."""
        content = json.loads(file.read_text(encoding="utf-8"))
        return cls(**{**content, "plan": Plan(**content["plan"])})

    @property
    def begin(self) -> state.Position | None:
        """The position to go on from."""
        return state.latest(Path(self.folder) / state.FOLDER, self.deciding)


class StopFile:
    """The end is asked for by a file, or by the death of the process that would write it."""

    def __init__(self, file: Path, parent: int) -> None:
        self._file, self._parent = file, parent

    def asked(self) -> bool:
        """Whether it is."""
        return self._file.exists() or not Path(f"/proc/{self._parent}").exists()


def run(job: Job, planned: Schedule, ending: state.Asked, terminal: Terminal | None) -> Curve | None:
    """Train, as the only process or as one of several; the curve is the first process'.

    Args:
        job: what is to be done.
        planned: the steps.
        ending: whether the end was asked for.
        terminal: shows progress; None: nowhere.

    Raises:
        StopAskedError: the end was asked for, and the state is saved.
        TrainingError: a loss or a weight is not a finite number.
    """
    from speculators.train import cli
    from speculators.train.config import TrainConfig

    from draftkiln.train.loop import SavingTrainer

    folder, begin = Path(job.folder), job.begin
    curve = None
    if int(os.environ.get("RANK", "0")) == 0:
        curve = Curve(folder / CURVE, planned, job.settings["ttt_steps"], terminal, begin)
    saves = state.Saves(
        folder / state.FOLDER,
        begin,
        job.deciding,
        ending,
        job.save_minutes * 60,
        job.save_steps,
        lambda: curve.seconds if curve is not None else 0.0,
    )
    initial = None
    if job.init_from is not None and begin is None:
        initial = warmstart.weights(warmstart.read(Path(job.init_from)))
    # The trainer's command line has no way to hand it another trainer.
    cli.Trainer = functools.partial(SavingTrainer, saves=saves, planned=planned, initial=initial)
    try:
        with _listening(curve):
            cli.main(TrainConfig.from_flat(job.settings))
    finally:
        cli.Trainer = SavingTrainer.__base__
    return curve


@contextlib.contextmanager
def _listening(curve: Curve | None) -> Iterator[None]:
    """Lead the trainer's reports to the curve and its texts to stderr; of further processes only warnings."""
    root = logging.getLogger()
    # With a handler in place the trainer adds none of its own, which would draw boxes as wide as a terminal.
    text = logging.StreamHandler(sys.stderr)
    text.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    text.setLevel(logging.INFO if curve is not None else logging.WARNING)
    handlers = [text] if curve is None else [text, curve]
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            root.removeHandler(handler)
        for handler in logging.getLogger(METRICS).handlers:
            handler.flush()


def lengths(folder: Path) -> list[int]:
    """Tokens of each sample of the dataset in `folder`."""
    import datasets

    return [int(length) for length in datasets.load_from_disk(str(folder)).with_format(None)["seq_len"]]


def main() -> int:
    """Run one of several processes."""
    from speculators.train.distributed import maybe_destroy_distributed

    from draftkiln.train.loop import StopAskedError

    job = Job.read(Path(sys.argv[1]))
    folder = Path(job.folder)
    planned = job.plan.schedule(lengths(folder / DATA))
    try:
        run(job, planned, StopFile(folder / STOP, int(os.environ[PARENT])), None)
    except StopAskedError:
        maybe_destroy_distributed()
        return ExitCode.OK
    except DraftkilnError as error:
        traceback.print_exc()
        durable.write_json(folder / FAILURE, {"what": error.what, "why": error.why, "fix": error.fix})
        # The others wait for this process in a collective; torchrun ends them, but only when this one is gone.
        os._exit(error.code)
    (folder / FINISHED).touch()
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
