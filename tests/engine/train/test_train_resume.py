"""A training that is killed or ended goes on at the step it was at and ends as one that nobody disturbed."""

import io
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from draftkiln.errors import ExitCode, TrainingError
from draftkiln.extract.signals import StoppedError
from draftkiln.stagelog import Terminal
from draftkiln.train import curve, state
from draftkiln.train.command import _train

pytestmark = pytest.mark.engine

PROGRAM = Path(__file__).parents[1] / "programs" / "train_small.py"
STEPS = 30
CHANGES = {"train__max_steps": STEPS, "train__tokens_per_step": 256, "train__save_steps": 3}


@pytest.fixture
def beside(small: Any, tmp_path: Path) -> Any:
    """Makes further runs on the samples of the small one."""

    def make(name: str) -> Any:
        folder = tmp_path / name
        folder.mkdir()
        for stage in ("prepare", "extract", "validate"):
            (folder / stage).symlink_to(small.path / stage, target_is_directory=True)
        return type(small)(folder, small.target)

    return make


def train(run: Any, **changes: Any) -> dict[str, Any]:
    results: dict[str, Any] = _train(run.context(**{**CHANGES, **changes}), Terminal(io.StringIO()))
    return results


def end_after(run: Any, step: int, number: signal.Signals) -> int:
    """Train in another process, signal it as soon as `step` is in the curve; its exit code."""
    log = run.path / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(run.path), str(run.target), json.dumps(CHANGES)],
            stdout=output,
            stderr=output,
        )
    file = run.path / "train" / "curve.jsonl"
    while process.poll() is None:
        last = curve.last_step(file)
        if last is not None and last["step"] >= step:
            process.send_signal(number)
            break
        time.sleep(0.005)
    return process.wait(timeout=60)


def losses(run: Any) -> list[tuple[Any, ...]]:
    lines = list(curve.read(run.path / "train" / "curve.jsonl"))
    return [(line["step"], bool(line.get("validation")), line["tokens"], line["loss"]) for line in lines]


def test_a_training_killed_and_ended_at_random_steps_ends_as_an_undisturbed_one(beside: Any) -> None:
    whole, broken = beside("whole"), beside("broken")
    train(whole, train__save_steps=None)
    killed_at, ended_at = random.randrange(4, 11), random.randrange(14, 24)
    assert end_after(broken, killed_at, signal.SIGKILL) == -signal.SIGKILL
    assert end_after(broken, ended_at, signal.SIGTERM) == ExitCode.TERMINATED, (broken.path / "log").read_text()
    saved = [int(entry.name) for entry in (broken.path / "train" / "state").iterdir()]
    assert len(saved) == 1
    assert ended_at <= saved[0] < STEPS
    results = train(broken)
    expected, found = losses(whole), losses(broken)
    assert [line[:3] for line in found] == [line[:3] for line in expected]
    apart = [abs(one[3] - other[3]) for one, other in zip(found, expected, strict=True)]
    print(f"killed at {killed_at}, ended at {ended_at}: losses at most {max(apart):.1e} apart")
    assert max(apart) < 1e-3, f"killed at {killed_at}, ended at {ended_at}: {apart}"
    assert results["steps"] == STEPS
    assert not (broken.path / "train" / "state").exists()


class _SignalInValidation(logging.Handler):
    """Sends SIGTERM to this process as soon as the held-out values are computed for the first time."""

    def emit(self, record: logging.LogRecord) -> None:
        if "Validation epoch 1/" in record.getMessage() and "started" in record.getMessage():
            logging.getLogger().removeHandler(self)
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_among_held_out_samples_ends_at_once_and_loses_no_step(beside: Any) -> None:
    run = beside("run")
    logging.getLogger().addHandler(_SignalInValidation())
    with pytest.raises(StoppedError) as caught:
        train(run, train__max_steps=14, train__save_steps=None)
    assert caught.value.code == ExitCode.TERMINATED
    steps = [line[0] for line in losses(run)]
    position = state.latest(run.path / "train" / "state", _settings(run))
    assert position is not None
    assert position.step == steps[-1]
    train(run, train__max_steps=14, train__save_steps=None)
    assert [step for step, held_out, *_ in losses(run) if not held_out] == list(range(1, 15))
    assert sum(held_out for _, held_out, *_ in losses(run)) == 2


def _settings(run: Any) -> Any:
    return json.loads((run.path / "train" / "job.json").read_text())["deciding"]


def test_a_state_that_other_settings_saved_is_refused(beside: Any) -> None:
    run = beside("run")
    folder = run.path / "train" / "state"
    saves = state.Saves(folder, None, {"lr": 1.0}, None, 1.0)  # type: ignore[arg-type]
    (folder / saves.temporary(3)).mkdir(parents=True)
    saves.publish(state.Position(3, 0, 3, 1.0))
    with pytest.raises(TrainingError, match="saved by another training"):
        train(run)
