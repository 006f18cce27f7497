"""`draftkiln extract`: run the target over every sample and keep its hidden states."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import arithmetic, durable, stage
from draftkiln.errors import EngineError, SystemMissingError
from draftkiln.extract import engine, manifest, plan, samples

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

_SYNC_SAMPLES = 64
_SYNC_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments every stage takes."""
    stage.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run the stage."""
    return stage.run("extract", arguments, _extract, error=EngineError)


def _extract(context: Context, terminal: Terminal) -> dict[str, Any]:
    import datasets

    recipe, facts = context.recipe, context.facts
    prepared = context.run.path / "prepare" / "dataset"
    rows = datasets.load_from_disk(str(prepared)).with_format(None)
    lengths = [int(length) for length in rows["seq_len"]]
    plan.refuse_long(lengths, recipe.data.max_tokens)
    _refuse_devices(recipe.target.tensor_parallel_size)
    ids = recipe.layers.captured(facts.num_layers)

    folder = context.run.folder("extract") / samples.FOLDER
    folder.mkdir(exist_ok=True)
    path = context.run.folder("extract") / manifest.FILE
    found = manifest.read(path) if path.exists() else None
    head = plan.head(
        {
            "layer_ids": ids,
            "hidden_size": facts.hidden_size,
            "dtype": recipe.target.dtype,
            "computed_in": arithmetic.engine_dtype(recipe.target.dtype, context.device),
            "samples": len(lengths),
            "dataset_sha256": context.inputs["dataset_sha256"],
            "stack": context.stack,
            "patched_wheel_sha256": context.inputs["speculators"],
        },
        found,
        path,
    )
    if found is None:
        manifest.create(path, head)
    todo = plan.compare(folder, found or manifest.Manifest(head, {}))
    if todo.stray:
        terminal.line(f"extract: {len(todo.stray)} stray files left alone in {folder}, the first: {todo.stray[0]}")
    if todo.remade:
        terminal.line(f"extract: {len(todo.remade)} samples are not what their receipts say and are made again")
    needed = sum(plan.sample_bytes(lengths[index], len(ids), facts.hidden_size) for index in todo.remaining)
    plan.refuse_without_room(folder, needed)
    count = f"{len(todo.remaining)} of {len(lengths)} samples"
    terminal.line(f"extract: {count} to do, layers {list(ids)}, {needed / 1e9:.2f} GB of states")
    work = _Work(rows, lengths, todo.remaining, folder, path)
    measured = _compute(context, terminal, work) if todo.remaining else {}
    return {
        "samples": len(lengths),
        "tokens": sum(lengths),
        "shape": [max(lengths), len(ids), facts.hidden_size],
        "dtype": recipe.target.dtype,
        "layer_ids": list(ids),
        **measured,
    }


@dataclass(frozen=True)
class _Work:
    """Samples to compute and where they go."""

    rows: Any
    """The dataset."""
    lengths: list[int]
    """Tokens of each of its rows."""
    remaining: list[int]
    """Rows to compute."""
    folder: Path
    path: Path
    """The manifest."""


def _compute(context: Context, terminal: Terminal, work: _Work) -> dict[str, Any]:
    import safetensors.torch

    rows, lengths, remaining, folder, path = work.rows, work.lengths, work.remaining, work.folder, work.path
    recipe = context.recipe
    began = time.monotonic()
    dtype = arithmetic.engine_dtype(recipe.target.dtype, context.device)
    generator = engine.start(recipe, context.target, context.facts.num_layers, max(lengths), dtype)
    ready = time.monotonic()
    terminal.line(f"extract: engine ready after {ready - began:.1f} s")
    shape = (len(recipe.layers.captured(context.facts.num_layers)), context.facts.hidden_size)
    total = sum(lengths[index] for index in remaining)
    done = done_tokens = 0
    pending: list[manifest.Receipt] = []
    synced = time.monotonic()
    batches = engine.batches([(index, lengths[index]) for index in remaining], recipe.extract.token_budget, 10**9)
    for batch in batches:
        for sample in engine.states(generator, batch, rows[batch]["input_ids"]):
            _refuse_wrong(sample, rows[sample.index]["input_ids"], shape)
            tensors = {"hidden_states": sample.hidden_states, "token_ids": sample.token_ids}
            data = safetensors.torch.save(tensors)
            digest = samples.write(folder, sample.index, data)
            pending.append(manifest.Receipt(sample.index, len(sample.token_ids), len(data), digest))
            done += 1
            done_tokens += len(sample.token_ids)
            if len(pending) >= _SYNC_SAMPLES or time.monotonic() - synced > _SYNC_SECONDS:
                _commit(folder, path, pending)
                synced = time.monotonic()
        rate = done_tokens / (time.monotonic() - ready)
        terminal.progress(
            f"extract: {done}/{len(remaining)} samples, {rate:.0f} tok/s, {(total - done_tokens) / rate:.0f} s left",
            last=done == len(remaining),
        )
    _commit(folder, path, pending)
    seconds = time.monotonic() - ready
    return {
        "tokens_per_second": round(total / seconds, 1),
        "seconds": round(seconds, 1),
        "engine_start_seconds": round(ready - began, 1),
    }


def _commit(folder: Path, path: Path, pending: list[manifest.Receipt]) -> None:
    """Make the files of `pending` durable, then their receipts."""
    for receipt in pending:
        with durable.storage_errors(folder):
            handle = os.open(folder / samples.name(receipt.index), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    durable.sync_folder(folder)
    manifest.append(path, pending)
    pending.clear()


def _refuse_wrong(sample: engine.Sample, asked: list[int], shape: tuple[int, int]) -> None:
    if sample.token_ids.tolist() != asked:
        raise EngineError(
            f"sample {sample.index}: the engine answered for other tokens than were asked",
            why="states would belong to another sample",
            fix="report it with the log of this stage; nothing of this sample was written",
        )
    wanted = (len(asked), *shape)
    if tuple(sample.hidden_states.shape) != wanted:
        raise EngineError(
            f"sample {sample.index}: states of shape {list(sample.hidden_states.shape)}, not {list(wanted)}",
            why="rows missing (prefix cache, chunks) or a layer not captured",
            fix="run `draftkiln preflight` on this stack; nothing of this sample was written",
        )


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
