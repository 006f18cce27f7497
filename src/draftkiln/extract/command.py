"""`draftkiln extract`: run the target over every sample and keep its hidden states."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import arithmetic, lock, stage
from draftkiln.errors import EngineError, StorageError, SystemMissingError
from draftkiln.extract import compute, manifest, plan, samples, shards, sink

if TYPE_CHECKING:
    import argparse

    from draftkiln.recipe.model import Recipe
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

_DRIVER_LOCK = "driver.lock"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments every stage takes, and how files that are there are checked."""
    stage.add_arguments(parser)
    parser.add_argument(
        "--check-existing",
        choices=("quick", "full"),
        default="quick",
        help="compare samples that are there with their receipts by size (quick) or also by checksum (full)",
    )
    parser.add_argument("--metrics", type=Path, metavar="FILE", help="also keep the progress there for Prometheus")
    parser.add_argument(
        "--shard",
        type=shards.parse,
        metavar="I/N",
        help="only part I of N, for one of N hosts; `draftkiln merge` makes one run of them",
    )
    parser.add_argument(
        "--check-ranks",
        type=int,
        default=0,
        metavar="N",
        help="with tensor parallelism: compare rows of N samples between all ranks before they are recorded",
    )
    parser.add_argument("--force", action="store_true", help="begin although the disk has no room for all samples")


@dataclass(frozen=True)
class _Options:
    """What the command line says besides recipe and run directory."""

    full: bool
    force: bool
    metrics: Path | None
    shard: shards.Shard | None
    check_ranks: int


def main(arguments: argparse.Namespace) -> int:
    """Run the stage."""
    full = arguments.check_existing == "full"
    metrics = arguments.metrics
    if metrics is not None and (metrics.is_dir() or not os.access(metrics.absolute().parent, os.W_OK)):
        raise StorageError(
            f"cannot write {metrics}",
            why="its folder is absent or read-only",
            fix="name a file in a folder that is there",
        )
    options = _Options(full, arguments.force, arguments.metrics, arguments.shard, arguments.check_ranks)
    return stage.run(
        "extract",
        arguments,
        functools.partial(_extract, options=options),
        error=EngineError,
        read=lambda recipe, _target: _choices(recipe, options),
        still_good=functools.partial(_still_good, full=options.full),
    )


def _choices(recipe: Recipe, options: _Options) -> dict[str, str]:
    """What else decides the results, where it is not as it always was."""
    storage = recipe.extract.storage
    return ({"shard": str(options.shard)} if options.shard else {}) | (
        {"storage": storage} if storage == samples.FP8 else {}
    )


def _still_good(context: Context, *, full: bool) -> bool:
    """Whether every sample is as its receipt says; else what was validated is not what will be there."""
    folder = context.run.folder("extract")
    todo = plan.compare(folder / samples.FOLDER, manifest.read(folder / manifest.FILE), full=full)
    if not todo.remaining:
        return True
    for record in ("stage.json", "begun.json"):
        (context.run.path / "validate" / record).unlink(missing_ok=True)
    return False


def _extract(context: Context, terminal: Terminal, *, options: _Options) -> dict[str, Any]:
    folder = context.run.folder("extract")
    with lock.held(folder / _DRIVER_LOCK, announce=terminal.line):
        # A worker whose driver was killed may have a moment to live.
        with lock.held(folder / sink.LOCK, announce=terminal.line):
            pass
        return _extract_alone(context, terminal, options)


def _extract_alone(context: Context, terminal: Terminal, options: _Options) -> dict[str, Any]:
    import datasets

    recipe = context.recipe
    prepared = context.run.path / "prepare" / "dataset"
    rows = datasets.load_from_disk(str(prepared)).with_format(None)
    lengths = [int(length) for length in rows["seq_len"]]
    plan.refuse_long(lengths, recipe.data.max_tokens)
    _refuse_devices(recipe.target.tensor_parallel_size)
    folder = context.run.folder("extract") / samples.FOLDER
    folder.mkdir(exist_ok=True)
    head, remaining = _take_up(context, terminal, options, lengths)
    _announce(terminal, head, options, [lengths[index] for index in remaining], folder)
    path = folder.parent / manifest.FILE
    work = compute.Work(rows, lengths, head.indices, remaining, folder, path, options.metrics, options.check_ranks)
    measured = compute.run(context, terminal, work)
    made = [lengths[index] for index in head.indices]
    return {
        "samples": len(made),
        "tokens": sum(made),
        "shape": [max(made, default=0), len(head.layer_ids), head.hidden_size],
        "dtype": head.dtype,
        "layer_ids": list(head.layer_ids),
        **measured,
    }


def _take_up(
    context: Context, terminal: Terminal, options: _Options, lengths: list[int]
) -> tuple[manifest.Head, list[int]]:
    """Begin the manifest, or go on with the one that is there; its head, and the samples that remain.

    The receipts are let go again: they are what grows with the number of samples.
    """
    recipe, facts = context.recipe, context.facts
    folder = context.run.folder("extract") / samples.FOLDER
    path = folder.parent / manifest.FILE
    found = manifest.read(path) if path.exists() else None
    head = plan.head(
        {
            "layer_ids": recipe.layers.captured(facts.num_layers),
            "hidden_size": facts.hidden_size,
            "dtype": recipe.extract.storage,
            "computed_in": arithmetic.engine_dtype(recipe.target.dtype, context.device),
            "samples": len(lengths),
            "dataset_sha256": context.inputs["dataset_sha256"],
            "stack": context.stack,
            "patched_wheel_sha256": context.inputs["speculators"],
            "shard": options.shard,
        },
        found,
        path,
    )
    if found is None:
        manifest.create(path, head)
    todo = plan.compare(folder, found or manifest.Manifest(head, {}), full=options.full)
    plan.clear(folder, path, todo, terminal.line)
    return head, todo.remaining


def _announce(terminal: Terminal, head: manifest.Head, options: _Options, lengths: list[int], folder: Path) -> None:
    """Say what is to be done and refuse it where the disk has no room.

    Raises:
        StorageError: it has none, and that was not to be ignored.
    """
    shape = len(head.layer_ids), head.hidden_size, head.dtype
    needed = sum(samples.size(length, *shape) for length in lengths)
    if not options.force:
        plan.refuse_without_room(folder, needed)
    count = f"{len(lengths)} of {len(head.indices)} samples"
    if head.shard is not None:
        count += f" (shard {head.shard} of {head.samples})"
    per_token = samples.row_bytes(*shape) + samples.scale_bytes(head.dtype) + samples.TOKEN_ID_BYTES
    size = f"{per_token} B a token, {needed / 1e9:.2f} GB of states"
    terminal.line(f"extract: {count} to do, layers {list(head.layer_ids)}, {size}")


def _refuse_devices(parallel: int) -> None:
    import torch

    devices = torch.cuda.device_count() if torch.cuda.is_available() else len(os.sched_getaffinity(0))
    kind = "GPUs" if torch.cuda.is_available() else "CPU cores"
    if parallel > devices:
        raise SystemMissingError(
            f"target.tensor_parallel_size is {parallel}",
            why=f"this machine has {devices} {kind}",
            fix="lower it in the recipe, or run on a larger host",
        )
