"""How far an extraction is: on its terminal, in a file for other terminals, and for Prometheus on request."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from draftkiln import durable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from draftkiln.extract.manifest import Receipt

FILE = "progress.json"
_ETA_SECONDS = 30.0
"""Of measuring before the time that is left is told."""
_WINDOW_SECONDS = 30.0
"""What the present rate is measured over."""
_KEEP_SECONDS = 1.0


@dataclass(frozen=True)
class State:
    """One moment of an extraction; counts are of this start of it, durable samples only."""

    process: int
    samples: int
    of_samples: int
    tokens: int
    of_tokens: int
    bytes: int
    seconds: float
    tokens_per_second: float
    """Of the last half minute."""
    mean_tokens_per_second: float
    in_flight: int
    """Samples that the engine or the writers have."""
    free_bytes: int
    """On the disk of the samples."""
    seconds_left: float | None
    """None before there is enough to tell it by."""
    at: float
    """Seconds since the epoch."""

    def text(self) -> str:
        """One line for people."""
        parts = [
            f"{self.samples}/{self.of_samples} samples",
            f"{self.tokens_per_second:.0f} tok/s ({self.mean_tokens_per_second:.0f} on average)",
            f"{self.bytes / 1e9:.2f} GB written",
            f"{self.free_bytes / 1e9:.1f} GB free",
            f"{self.in_flight} in flight",
        ]
        if self.seconds_left is not None:
            parts.append(f"{duration(self.seconds_left)} left")
        return ", ".join(parts)


@dataclass
class Progress:
    """Counts receipts as they come.

    Attributes:
        folder: of the samples.
        of_samples: to compute.
        of_tokens: likewise.
        show: takes a line, whether it is the last, the share that is done, and all figures for the log.
        keep: file with the latest state.
        metrics: file for Prometheus' node exporter.
    """

    folder: Path
    of_samples: int
    of_tokens: int
    show: Callable[..., None]
    keep: Path
    metrics: Path | None = None
    samples: int = 0
    tokens: int = 0
    bytes: int = 0
    _began: float = field(default_factory=time.monotonic)
    _kept: float = 0.0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def count(self, receipts: list[Receipt], in_flight: int) -> None:
        """Count samples that became durable, show and keep the state."""
        self.samples += len(receipts)
        self.tokens += sum(receipt.rows for receipt in receipts)
        self.bytes += sum(receipt.bytes for receipt in receipts)
        state = self._state(in_flight)
        last = self.samples == self.of_samples
        share = self.samples / max(self.of_samples, 1)
        self.show(f"extract: {state.text()}", last=last, share=share, figures=asdict(state))
        if last or time.monotonic() - self._kept >= _KEEP_SECONDS:
            self._kept = time.monotonic()
            _replace(self.keep, json.dumps(asdict(state)))
            if self.metrics is not None:
                _replace(self.metrics, prometheus(state))

    def _state(self, in_flight: int) -> State:
        now = time.monotonic()
        seconds = max(now - self._began, 1e-6)
        self._recent.append((now, self.tokens))
        while now - self._recent[0][0] > _WINDOW_SECONDS:
            self._recent.popleft()
        then, tokens = self._recent[0]
        mean = self.tokens / seconds
        present = (self.tokens - tokens) / (now - then) if now > then else mean
        left = (self.of_tokens - self.tokens) / present if seconds >= _ETA_SECONDS and present else None
        free = shutil.disk_usage(self.folder).free
        return State(
            os.getpid(), self.samples, self.of_samples, self.tokens, self.of_tokens, self.bytes, seconds,
            present, mean, in_flight, free, left, time.time(),
        )  # fmt: skip


def read(path: Path) -> State | None:
    """The state last kept; None when there is none."""
    try:
        return State(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def prometheus(state: State) -> str:
    """The state in Prometheus' text format."""
    lines = []
    for name, value in _figures(state).items():
        lines += [f"# TYPE draftkiln_extract_{name} gauge", f"draftkiln_extract_{name} {value}"]
    return "\n".join(lines) + "\n"


def _figures(state: State) -> dict[str, Any]:
    figures = asdict(state)
    return {name: value for name, value in figures.items() if value is not None and name != "process"}


def _replace(path: Path, text: str) -> None:
    """Replace a file that only tells the moment: whole at any time, not worth a sync."""
    temporary = path.with_name(f".{path.name}.tmp")
    with durable.storage_errors(path):
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
