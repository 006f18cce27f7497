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
    from collections.abc import Callable, Iterable, Iterator, Sequence
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


@dataclass(frozen=True)
class Started:
    """An engine that is ready.

    Attributes:
        engine: that it is.
        ending: notes signals, from its start on.
        seconds: that the start took.
        ready: when it was, on the monotonic clock.
    """

    engine: VllmEngine
    ending: signals.Ending
    seconds: float
    ready: float


def start(
    context: Context, terminal: Terminal, lengths: list[int], indices: Sequence[int], executor: str | None = None
) -> Started:
    """Start the engine of a stage.

    Args:
        context: of the stage.
        terminal: for people.
        lengths: tokens of each row of the dataset.
        indices: rows that there will be; of a few of them it is asked what it would say next as well.
        executor: see `Settings`.

    Raises:
        StoppedError: a signal ended it.
        EngineError: it did not start.
    """
    began = time.monotonic()
    dtype = arithmetic.engine_dtype(context.recipe.target.dtype, context.device)
    settings = Settings(context.target, context.facts, context.recipe, max(lengths), dtype, executor)
    ending = signals.Ending()
    # What made-up weights say is compared with nothing.
    made_up = context.recipe.target.load_format == "dummy"
    asked = frozenset[int]() if made_up else top_tokens.choose(lengths, indices)
    with ending.while_starting():
        engine = VllmEngine(settings, asked)
    ready = time.monotonic()
    terminal.line(f"extract: engine ready after {ready - began:.1f} s")
    return Started(engine, ending, ready - began, ready)


def drive_engine(
    started: Started,
    folder: Path,
    prompts: Iterable[tuple[int, Sequence[int]] | None],
    record: Callable[[list[Receipt]], None],
    terminal: Terminal,
    *,
    compared: Sequence[int] = (),
    stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Have an engine compute `prompts` into `folder`, and end it; gives the number of its ranks.

    Args:
        started: the engine.
        folder: of the samples.
        prompts: index and token ids; None for the time being.
        record: takes receipts of samples that became durable.
        terminal: for people.
        compared: samples of which rows are compared between ranks.
        stopping: whether the end was asked for otherwise than by a signal.

    Raises:
        StorageError: the sink could not write.
        EngineError: the engine failed.
    """
    engine, ending = started.engine, started.ending

    def take(receipts: list[Receipt]) -> None:
        engine.compare_ranks()
        record(receipts)

    try:
        with ending.while_running(), signals.watched(engine.processes):
            try:
                found = engine.open(folder, compared)
                for rank in found:
                    terminal.event("rank ready", **rank)
                drive.drive(engine, prompts, engine.limits(), take, lambda: ending.asked() or stopping())
            finally:
                if signals.alive(engine.processes) and not isinstance(sys.exception(), KeyboardInterrupt):
                    with contextlib.suppress(Exception):
                        engine.leave()
    finally:
        engine.shut_down()
    return len(found)


def run(context: Context, terminal: Terminal, work: Work) -> dict[str, Any]:
    """Compute what remains; rate and times, or nothing when nothing remains.

    Raises:
        StoppedError: a signal ended it; what was in flight is finished and recorded.
        StorageError: the sink could not write.
        EngineError: the engine failed.
    """
    if not work.remaining:
        return {}
    started = start(context, terminal, work.lengths, work.indices)
    engine = started.engine
    keep = work.manifest.with_name(progress.FILE)
    shown = progress.Progress(
        work.folder, len(work.remaining), work.tokens, terminal.progress, keep, metrics=work.metrics
    )

    def record(receipts: list[Receipt]) -> None:
        if engine.answers:
            top_tokens.append(work.manifest.with_name(top_tokens.FILE), engine.take_answers())
        manifest.append(work.manifest, receipts)
        shown.count(receipts, len(engine.in_flight))

    compared = work.remaining[: work.check_ranks]
    ranks = drive_engine(started, work.folder, work.prompts(), record, terminal, compared=compared)
    number = started.ending.number
    if number is not None and shown.samples < len(work.remaining):
        done = f"{shown.samples} of {len(work.remaining)} samples were made, all of them recorded"
        raise signals.StoppedError(number, done)
    seconds = time.monotonic() - started.ready
    if work.check_ranks:
        terminal.line(f"extract: {engine.rows_compared} rows are the same on {ranks} ranks, bit for bit")
    lost = dict(zip(context.recipe.layers.captured(context.facts.num_layers), engine.lost, strict=False))
    for layer, (error, cosine) in lost.items():
        terminal.line(f"extract: FP8 costs layer {layer} a relative error of {error:.2%}, least cosine {cosine:.5f}")
    return {
        **({"fp8": {str(layer): values for layer, values in lost.items()}} if lost else {}),
        "tokens_per_second": round(shown.tokens / seconds, 1),
        "seconds": round(seconds, 1),
        "engine_start_seconds": round(started.seconds, 1),
    }
