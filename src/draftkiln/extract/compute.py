"""From the samples that remain to their files: the engine from its start to its end, with receipts and progress."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import arithmetic
from draftkiln.extract import drive, manifest, progress, signals, top_tokens
from draftkiln.extract.engine import Settings, VllmEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from draftkiln.extract.manifest import Receipt
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal


@dataclass(frozen=True)
class Work:
    """Samples to compute and where they go.

    Attributes:
        rows: the dataset.
        lengths: tokens of each of its rows.
        indices: rows that there will be, computed before or now.
        remaining: rows to compute.
        folder: of the samples.
        manifest: that their receipts are appended to.
        metrics: file for Prometheus, or None.
        check_ranks: samples of which rows are compared between ranks.
    """

    rows: Any
    lengths: list[int]
    indices: range
    remaining: list[int]
    folder: Path
    manifest: Path
    metrics: Path | None = None
    check_ranks: int = 0

    @property
    def tokens(self) -> int:
        """Tokens to compute."""
        return sum(self.lengths[index] for index in self.remaining)

    def prompts(self) -> Iterator[tuple[int, list[int]]]:
        """Index and token ids of each row to compute."""
        for index in self.remaining:
            yield index, self.rows[index]["input_ids"]


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
        engine = VllmEngine(settings, top_tokens.choose(work.lengths, work.indices))
    ready = time.monotonic()
    terminal.line(f"extract: engine ready after {ready - began:.1f} s")
    keep = work.manifest.with_name(progress.FILE)
    shown = progress.Progress(
        work.folder, len(work.remaining), work.tokens, terminal.progress, keep, metrics=work.metrics
    )

    def record(receipts: list[Receipt]) -> None:
        if engine.answers:
            answers, engine.answers = engine.answers, {}
            top_tokens.append(work.manifest.with_name(top_tokens.FILE), answers)
        engine.compare_ranks()
        manifest.append(work.manifest, receipts)
        shown.count(receipts, len(engine.in_flight))

    try:
        with ending.while_running(), signals.watched(engine.processes):
            try:
                found = engine.open(work.folder, work.remaining[: work.check_ranks])
                for rank in found:
                    terminal.event("rank ready", **rank)
                drive.drive(engine, work.prompts(), engine.limits(), record, ending.asked)
            finally:
                if signals.alive(engine.processes) and not isinstance(sys.exception(), KeyboardInterrupt):
                    with contextlib.suppress(Exception):
                        engine.leave()
    finally:
        engine.shut_down()
    if ending.number is not None and shown.samples < len(work.remaining):
        done = f"{shown.samples} of {len(work.remaining)} samples were made, all of them recorded"
        raise signals.StoppedError(ending.number, done)
    seconds = time.monotonic() - ready
    if work.check_ranks:
        terminal.line(f"extract: {engine.rows_compared} rows are the same on {len(found)} ranks, bit for bit")
    lost = dict(zip(context.recipe.layers.captured(context.facts.num_layers), engine.lost, strict=False))
    for layer, (error, cosine) in lost.items():
        terminal.line(f"extract: FP8 costs layer {layer} a relative error of {error:.2%}, least cosine {cosine:.5f}")
    return {
        **({"fp8": {str(layer): values for layer, values in lost.items()}} if lost else {}),
        "tokens_per_second": round(shown.tokens / seconds, 1),
        "seconds": round(seconds, 1),
        "engine_start_seconds": round(ready - began, 1),
    }
