"""The learning curve: the trainer's report of each step as JSON lines; a loss that is no number ends the run."""

from __future__ import annotations

import json
import logging
import math
import time
from typing import TYPE_CHECKING, Any

from draftkiln.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from draftkiln.stagelog import Terminal
    from draftkiln.train.schedule import Schedule

METRICS = "speculators.metrics"
"""Logger on which the trainer reports its numbers as mappings."""


class Curve(logging.Handler):
    """Log handler that turns the trainer's reports into `curve.jsonl` and progress lines.

    A training line holds `step` (from 1), `epoch`, `loss`, `accuracy` (share of positions where draft steps 1..k all
    hit, for each k), `learning_rate`, `seconds` since the first step began and `tokens_per_second`; a validation line
    `validation: true` instead of the last three.
    """

    def __init__(self, path: Path, schedule: Schedule, ttt_steps: int, terminal: Terminal) -> None:
        super().__init__()
        self.training: list[dict[str, Any]] = []
        self.validation: list[dict[str, Any]] = []
        self._schedule, self._ttt_steps, self._terminal = schedule, ttt_steps, terminal
        self._began: float | None = None
        # Opened for each line: configuring logging closes every handler there is, and speculators configures it.
        self._path = path
        path.write_text("", encoding="utf-8")

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
        if self._began is None:
            self._began = now - report["profile"]["step_ms"] / 1000
        seconds = now - self._began
        self._write(
            self.training,
            {
                "step": step,
                "epoch": report["epoch"],
                "loss": values["loss"],
                "accuracy": self._accuracy(values, ""),
                "learning_rate": report["lr"],
                "seconds": round(seconds, 3),
                "tokens_per_second": round(report["profile"]["tokens_per_s"], 1),
            },
        )
        self._refuse_not_finite(values["loss"], step)
        left = (self._schedule.steps - step) * seconds / step
        first = self.training[-1]["accuracy"][0]
        self._terminal.progress(
            f"train: step {step}/{self._schedule.steps}, loss {values['loss']:.3f}, "
            f"first draft token right {first:.0%}, {left:.0f} s left",
            last=step == self._schedule.steps,
        )

    def _keep_validation(self, report: Mapping[str, Any]) -> None:
        values = report["val"]
        line = {"epoch": report["epoch"], "loss": values["loss_epoch"], "accuracy": self._accuracy(values, "_epoch")}
        step = self.training[-1]["step"] if self.training else 0
        self._write(self.validation, {"step": step, "validation": True, **line})

    def _accuracy(self, values: Mapping[str, float], suffix: str) -> list[float]:
        return [round(values[f"full_acc_{position}{suffix}"], 4) for position in range(self._ttt_steps)]

    def _write(self, lines: list[dict[str, Any]], line: dict[str, Any]) -> None:
        lines.append(line)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _refuse_not_finite(self, loss: float, step: int) -> None:
        if math.isfinite(loss):
            return
        batch = self._schedule.batch(step - 1)
        raise TrainingError(
            f"the loss of step {step} is {loss}",
            why=f"its batch were samples {', '.join(map(str, batch))}",
            fix="lower train.lr, or look at these samples with `draftkiln validate`; the last checkpoint before this "
            "step is kept",
        )
