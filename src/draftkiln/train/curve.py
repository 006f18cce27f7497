"""The learning curve: the trainer's report of each step as JSON lines; a loss that is no number ends the run."""

from __future__ import annotations

import json
import logging
import math
import time
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import TrainingError
from draftkiln.train import inputs, state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from draftkiln.stagelog import Terminal
    from draftkiln.train.schedule import Schedule
    from draftkiln.train.state import Position

_TAIL_BYTES = 16384
METRICS = "speculators.metrics"
"""Logger on which the trainer reports its numbers as mappings."""


class Curve(logging.Handler):
    """Log handler that turns the trainer's reports into `curve.jsonl` and progress lines.

    A training line holds `step` (from 1), `epoch`, `tokens` trained on so far, `loss`, `accuracy` (share of positions
    where draft steps 1..k all hit, for each k), `learning_rate`, `seconds` spent so far and `tokens_per_second`; a line
    of held-out values `validation: true` instead of the last three. docs/training.md says it to readers of the file.

    Args:
        path: of the file; of one that is there, the lines before `begin` are kept.
        schedule: of the run.
        ttt_steps: draft steps.
        terminal: shows progress; None: nowhere.
        begin: position that the training goes on from.
    """

    def __init__(
        self, path: Path, schedule: Schedule, ttt_steps: int, terminal: Terminal | None, begin: Position | None = None
    ) -> None:
        super().__init__()
        done = begin.step if begin else 0
        kept = [line for line in read(path) if line["step"] < done + (not line.get("validation"))] if done else []
        self.training = [line for line in kept if not line.get("validation")]
        self.validation = [line for line in kept if line.get("validation")]
        self.first_step_at: float | None = None
        """When this process' first step began, by the monotonic clock."""
        self._schedule, self._ttt_steps, self._terminal = schedule, ttt_steps, terminal
        self._before = begin.seconds if begin else 0.0
        self._tokens = schedule.tokens_until(done)
        # Opened for each line: configuring logging closes every handler there is, and speculators configures it.
        self._path = path
        durable.write_text(path, "".join(json.dumps(line) + "\n" for line in kept))

    @property
    def seconds(self) -> float:
        """Time spent in steps so far."""
        last: float = self.training[-1]["seconds"] if self.training else 0.0
        return last

    def filter(self, record: logging.LogRecord) -> bool:
        """Take the trainer's reports only."""
        return record.name == METRICS and isinstance(record.msg, dict) and bool(record.msg.keys() & {"train", "val"})

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one report.

        Raises:
            TrainingError: its loss is not a finite number; the trainer stops there, before it saves anything.
        """
        report: dict[str, Any] = record.msg  # type: ignore[assignment] # filtered to mappings
        if "train" in report:
            self._keep_step(report)
        else:
            self._keep_validation(report)

    def _keep_step(self, report: Mapping[str, Any]) -> None:
        step = report["global_step"] + 1
        values, now = report["train"], time.monotonic()
        if self.first_step_at is None:
            self.first_step_at = now - report["profile"]["step_ms"] / 1000
        seconds = self._before + now - self.first_step_at
        self._tokens += self._schedule.tokens_of(step - 1)
        self._write(
            self.training,
            {
                "step": step,
                "epoch": report["epoch"],
                "tokens": self._tokens,
                "loss": values["loss"],
                "accuracy": self._accuracy(values, ""),
                "learning_rate": report["lr"],
                "seconds": round(seconds, 3),
                "tokens_per_second": round(report["profile"]["tokens_per_s"], 1),
            },
        )
        self._refuse_not_finite(values["loss"], step)
        if self._terminal is not None:
            show(self.training[-1], self._schedule.steps, self._terminal)

    def _keep_validation(self, report: Mapping[str, Any]) -> None:
        values = report["val"]
        line = {"epoch": report["epoch"], "loss": values["loss_epoch"], "accuracy": self._accuracy(values, "_epoch")}
        step = self.training[-1]["step"] if self.training else 0
        self._write(self.validation, {"step": step, "validation": True, "tokens": self._tokens, **line})

    def _accuracy(self, values: Mapping[str, float], suffix: str) -> list[float]:
        return [round(values[f"full_acc_{position}{suffix}"], 4) for position in range(self._ttt_steps)]

    def _write(self, lines: list[dict[str, Any]], line: dict[str, Any]) -> None:
        lines.append(line)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _refuse_not_finite(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            raise no_number(f"the loss of step {step} is {loss}", step, self._schedule, self._path.parent)


def no_number(what: str, step: int, schedule: Schedule, folder: Path) -> TrainingError:
    """The error of a step, counted from 1, that gave something else than numbers.

    Args:
        what: that is none.
        step: after which it was seen.
        schedule: of the run.
        folder: RUN/train.
    """
    batch = schedule.batch(step - 1)
    why = (
        f"its batch were samples {', '.join(map(str, batch))}: rows of prepare/dataset, which prepare/sources.jsonl "
        "traces to the data"
    )
    fix = f"look at these samples with `draftkiln show`, or lower train.lr and remove {folder} to train anew"
    if altered := inputs.altered(folder.parent / "extract", batch):
        why += f"; the states of {', '.join(map(str, altered))} are not those that were validated"
        fix = "run `draftkiln extract --check-existing full`, which makes them again, then validate and train"
    return TrainingError(what, why=why, fix=f"{fix}; {state.kept(folder)}")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a curve; one that a crash cut short is left out."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def last_step(path: Path) -> dict[str, Any] | None:
    """The last training line of a curve that is being written; None while there is none."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().decode().splitlines(keepends=True)
    whole = (json.loads(line) for line in reversed(lines) if line.startswith("{") and line.endswith("}\n"))
    return next((line for line in whole if not line.get("validation")), None)


def show(line: Mapping[str, Any], steps: int, terminal: Terminal) -> None:
    """Show a training line as progress."""
    step, accuracy = line["step"], " ".join(f"{share:.0%}" for share in line["accuracy"])
    left = (steps - step) * line["seconds"] / step
    terminal.progress(
        f"train: step {step}/{steps}, loss {line['loss']:.3f}, draft tokens right {accuracy}, {left:.0f} s left",
        last=step == steps,
        share=step / steps,
        figures={key: line[key] for key in ("step", "loss", "accuracy", "tokens")},
    )
