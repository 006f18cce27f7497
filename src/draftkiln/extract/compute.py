"""From the samples that remain to their files: the engine from its start to its end, with receipts and progress."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from draftkiln import arithmetic
from draftkiln.extract import drive, manifest, signals
from draftkiln.extract.engine import Settings, VllmEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from draftkiln.extract.manifest import Receipt
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

_ETA_SECONDS = 30.0
"""Of measuring before the time that is left is told."""


@dataclass(frozen=True)
class Work:
    """Samples to compute and where they go.

    Attributes:
        rows: the dataset.
        lengths: tokens of each of its rows.
        remaining: rows to compute.
        folder: of the samples.
        manifest: that their receipts are appended to.
    """

    rows: Any
    lengths: list[int]
    remaining: list[int]
    folder: Path
    manifest: Path

    @property
    def tokens(self) -> int:
        """Tokens to compute."""
        return sum(self.lengths[index] for index in self.remaining)

    def prompts(self) -> Iterator[tuple[int, list[int]]]:
        """Index and token ids of each row to compute."""
        for index in self.remaining:
            yield index, self.rows[index]["input_ids"]


@dataclass
class _Progress:
    """What is durable so far, and how fast it came."""

    work: Work
    show: Callable[..., None]
    began: float = field(default_factory=time.monotonic)
    samples: int = 0
    tokens: int = 0
    bytes: int = 0

    def record(self, receipts: list[Receipt]) -> None:
        """Record receipts in the manifest and show how far it is."""
        manifest.append(self.work.manifest, receipts)
        self.samples += len(receipts)
        self.tokens += sum(receipt.rows for receipt in receipts)
        self.bytes += sum(receipt.bytes for receipt in receipts)
        seconds = time.monotonic() - self.began
        rate = self.tokens / seconds
        last = self.samples == len(self.work.remaining)
        free = shutil.disk_usage(self.work.folder).free
        text = f"extract: {self.samples}/{len(self.work.remaining)} samples, {rate:.0f} tok/s"
        text += f", {self.bytes / 1e9:.2f} GB written, {free / 1e9:.1f} GB free"
        if seconds >= _ETA_SECONDS and not last:
            text += f", {_duration((self.work.tokens - self.tokens) / rate)} left"
        self.show(text, last=last)


def run(context: Context, terminal: Terminal, work: Work) -> dict[str, Any]:
    """Compute what remains; rate and times, or nothing when nothing remains.

    Raises:
        StoppedError: a signal ended it; what was in flight is finished and recorded.
        StorageError: the sink could not write.
        EngineError: the engine failed.
    """
    if not work.remaining:
        return {}
    began = time.monotonic()
    dtype = arithmetic.engine_dtype(context.recipe.target.dtype, context.device)
    settings = Settings(context.target, context.facts, context.recipe, max(work.lengths), dtype)
    ending = signals.Ending()
    with ending.while_starting():
        engine = VllmEngine(settings)
    ready = time.monotonic()
    terminal.line(f"extract: engine ready after {ready - began:.1f} s")
    progress = _Progress(work, terminal.progress)
    try:
        with ending.while_running(), signals.watched(engine.processes):
            try:
                engine.open(work.folder)
                drive.drive(engine, work.prompts(), engine.limits(), progress.record, ending.asked)
            finally:
                if signals.alive(engine.processes) and not isinstance(sys.exception(), KeyboardInterrupt):
                    with contextlib.suppress(Exception):
                        engine.leave()
    finally:
        engine.shut_down()
    if ending.number is not None and progress.samples < len(work.remaining):
        done = f"{progress.samples} of {len(work.remaining)} samples were made, all of them recorded"
        raise signals.StoppedError(ending.number, done)
    seconds = time.monotonic() - ready
    return {
        "tokens_per_second": round(progress.tokens / seconds, 1),
        "seconds": round(seconds, 1),
        "engine_start_seconds": round(ready - began, 1),
    }


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
