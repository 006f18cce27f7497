"""`draftkiln extract`: run the target over every sample and keep its hidden states."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import lock, stage
from draftkiln.errors import EngineError, StorageError, SystemMissingError
from draftkiln.extract import begin, compute, manifest, plan, samples, shards, sink
from draftkiln.scale import hosts

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
    hosts.add_arguments(parser)


@dataclass(frozen=True)
class _Options:
    """What the command line says besides recipe and run directory."""

    full: bool
    force: bool
    metrics: Path | None
    shard: shards.Shard | None
    check_ranks: int
    hosts: hosts.Hosts | None

    @property
    def per_host(self) -> bool:
        """Whether the samples stay on the hosts that compute them."""
        return self.hosts is not None and self.hosts.run is not None


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
    several = hosts.of(arguments)
    options = _Options(full, arguments.force, arguments.metrics, arguments.shard, arguments.check_ranks, several)
    return stage.run(
        "extract",
        arguments,
        functools.partial(_extract, options=options),
        error=EngineError,
        read=lambda recipe, _target: choices(recipe, options),
        still_good=functools.partial(_still_good, options=options),
        # Ray's driver needs no engine; a cluster's head need not have the stack.
        enter=several is None,
    )


def choices(recipe: Recipe, options: _Options | None = None) -> dict[str, str]:
    """What else decides the results, where it is not as it always was; without options what the recipe alone says."""
    storage = recipe.extract.storage
    return (
        ({"shard": str(options.shard)} if options and options.shard else {})
        | ({"storage": storage} if storage == samples.FP8 else {})
        | (hosts.PER_HOST if options and options.per_host else {})
    )


def _still_good(context: Context, *, options: _Options) -> bool:
    """Whether every sample is as its receipt says; else what was validated is not what will be there."""
    if options.per_host:
        return True
    folder = context.run.folder("extract")
    todo = plan.compare(folder / samples.FOLDER, manifest.read(folder / manifest.FILE), full=options.full)
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
        if options.hosts is not None:
            from draftkiln.scale import extraction

            return extraction.extract(context, terminal, options.hosts)
        return _extract_alone(context, terminal, options)


def _extract_alone(context: Context, terminal: Terminal, options: _Options) -> dict[str, Any]:
    import datasets

    recipe = context.recipe
    prepared = context.run.path / "prepare" / "dataset"
    rows = datasets.load_from_disk(str(prepared)).with_format(None)
    lengths = [int(length) for length in rows["seq_len"]]
    plan.refuse_long(lengths, recipe.data.max_tokens)
    _refuse_devices(recipe.target.tensor_parallel_size)
    begun = begin.take_up(context, terminal.line, len(lengths), shard=options.shard, full=options.full)
    head, remaining = begun.head, list(begun.remaining)
    folder = context.run.folder("extract") / samples.FOLDER
    shape = len(head.layer_ids), head.hidden_size, head.dtype
    needed = sum(samples.size(lengths[index], *shape) for index in remaining)
    begin.announce(terminal.line, head, folder, len(remaining), needed, force=options.force)
    path = folder.parent / manifest.FILE
    work = compute.Work(rows, lengths, head.indices, remaining, folder, path, options.metrics, options.check_ranks)
    measured = compute.run(context, terminal, work)
    made = [lengths[index] for index in head.indices]
    return {**begin.results(head, len(made), sum(made), max(made, default=0)), **measured}


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
