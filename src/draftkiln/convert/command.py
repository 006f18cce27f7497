"""`draftkiln convert`: old samples become a run directory, as `prepare` and `extract` would have left it.

Nothing in an old folder says which layers its states come from, and the two ways to count them differ by one: the user
says it, and `validate` proves it against the target.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable, layers, stage
from draftkiln.convert import old
from draftkiln.errors import DataError, ProblemsError
from draftkiln.extract import manifest, plan, samples
from draftkiln.prepare import output, tokenizer
from draftkiln.prepare.conversation import Conversation
from draftkiln.prepare.outcome import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftkiln.prepare.output import Written
    from draftkiln.recipe.model import Recipe
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

_SHOWN = 20
_GROUP = 32
"""Samples whose receipts become durable together."""
ORIGIN = "converted"
"""What the manifest says in place of a stack."""


@dataclass(frozen=True)
class _Source:
    """The old folder, and which layers its states come from, in vLLM's convention."""

    folder: Path
    layer_ids: tuple[int, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder, the recipe, the run directory and the layers."""
    parser.add_argument("folder", type=Path, metavar="OLD_FOLDER", help="folder of data_0.pt, data_1.pt, …")
    parser.add_argument(
        "--recipe", type=Path, required=True, metavar="FILE", help="whose target and layers the samples are"
    )
    parser.add_argument(
        "--out", "--run", dest="run", type=Path, required=True, metavar="RUN_DATA", help="run directory to make"
    )
    ids = parser.add_mutually_exclusive_group(required=True)
    ids.add_argument(
        "--layers-after",
        type=_ids,
        metavar="I,J,K,L",
        help="layers whose outputs were kept, counted from 0, as speculators 0.3 and 0.4 number them (default there: "
        "2, n//2, n-3, n-1)",
    )
    ids.add_argument(
        "--layer-ids",
        type=_ids,
        metavar="I,J,K,L",
        help="the same as vLLM and recipes number them: decoder layers applied, each one higher",
    )


def main(arguments: argparse.Namespace) -> int:
    """Convert, unless that is done already; goes on with a conversion that was interrupted."""
    ids = arguments.layer_ids or tuple(layer + 1 for layer in arguments.layers_after)
    source = _Source(arguments.folder.absolute(), ids)

    def read(_recipe: Recipe, target: Path) -> dict[str, Any]:
        named = {"folder": str(source.folder), "files": len(old.files(source.folder)), "layer_ids": list(ids)}
        return {"tokenizer": tokenizer.hashes(target), "converted": named}

    def body(context: Context, terminal: Terminal) -> dict[str, Any]:
        return convert(context, terminal, source)

    return stage.run("prepare", arguments, body, error=DataError, read=read)


def _ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 2,4,5,7") from None


def convert(context: Context, terminal: Terminal, source: _Source) -> dict[str, Any]:
    """Write dataset, samples and manifest; gives what the stage `prepare` records."""
    recipe, facts = context.recipe, context.facts
    wanted = recipe.layers.captured(facts.num_layers)
    refuse_other_layers(source.layer_ids, wanted, facts.num_layers)
    if recipe.extract.storage != "bfloat16":
        raise DataError(
            f"extract.storage is {recipe.extract.storage}, old samples are bfloat16", fix="remove it from the recipe"
        )
    found = old.files(source.folder)
    held_out = recipe.data.held_out
    if held_out >= len(found):
        raise DataError(
            f"data.held_out sets {held_out} of {len(found)} samples apart",
            why="none would be left to train on",
            fix="lower data.held_out in the recipe; 0 when nothing is evaluated",
        )
    kept, apart = found[: len(found) - held_out], found[len(found) - held_out :]
    expected = old.Expected(len(wanted), facts.hidden_size, facts.vocab_size, recipe.data.max_tokens)
    _check(found, expected, terminal)
    folder = context.run.folder("prepare")
    with output.writing(folder) as outcome:
        _add(kept, outcome)
        outcome.finish_refusals()
        held_out_sha256 = output.write_held_out(folder, [_prompt(old.read(path)) for path in apart])
        dataset_sha256 = outcome.finish()
    values = {
        "layer_ids": wanted,
        "hidden_size": facts.hidden_size,
        "dtype": recipe.extract.storage,
        "computed_in": "unknown",
        "samples": len(kept),
        "dataset_sha256": dataset_sha256,
        "stack": ORIGIN,
        "patched_wheel_sha256": "",
        "shard": None,
    }
    size = _write_samples(context, terminal, kept, values)
    made = {
        "samples": len(kept),
        "tokens": outcome.tokens,
        "shape": [max(outcome.lengths), len(wanted), facts.hidden_size],
        "dtype": recipe.extract.storage,
        "layer_ids": list(wanted),
        "bytes": size,
    }
    content = recipe.model_dump(mode="json", by_alias=True)
    inputs = {f"recipe.{section}": content[section] for section in ("target", "layers")}
    inputs |= {"stack": ORIGIN, "converted": context.inputs["converted"], "dataset_sha256": dataset_sha256}
    inputs["prepare.record"] = durable.sha256_json(context.inputs)
    context.run.finish("extract", inputs, made)
    terminal.line(f"convert: {len(kept)} samples, layers {list(wanted)}, {size / 1e9:.2f} GB; now run `validate`")
    return {
        "samples": len(kept),
        "tokens": outcome.tokens,
        "trained_tokens": outcome.trained_tokens,
        "held_out": len(apart),
        "refused": 0,
        "dataset_sha256": dataset_sha256,
        "held_out_sha256": held_out_sha256,
    }


def refuse_other_layers(named: Sequence[int], wanted: Sequence[int], num_layers: int) -> None:
    """Refuse samples whose layers are not the recipe's.

    Args:
        named: by the user, in vLLM's convention.
        wanted: by the recipe, the state after the last layer included.
        num_layers: of the target.

    Raises:
        DataError: with both, and the recipe's line that would fit.
    """
    if tuple(named) == tuple(wanted):
        return
    *aux, last = named
    why = "the draft would be served with other states than it learns from"
    if last != num_layers:
        why = f"the last slot must be {num_layers}, the state after the last of {num_layers} layers"
    fix = "look whether the ids count outputs (--layers-after) or layers applied (--layer-ids), or extract again"
    if last == num_layers and len(named) == len(wanted) and not layers.problems(aux, num_layers):
        fix = f"set layers.aux to {aux} in the recipe, if that is what they hold"
    what = f"the old samples hold layers {list(named)}, the recipe asks for {list(wanted)} (decoder layers applied)"
    raise DataError(what, why=why, fix=fix)


def _check(found: Sequence[Path], expected: old.Expected, terminal: Terminal) -> None:
    """Look at every file's shapes, types and ids before anything is written; all problems at once."""
    shown: list[DataError] = []
    count = 0
    for number, path in enumerate(found, 1):
        for text in _texts(path, expected):
            count += 1
            if len(shown) < _SHOWN:
                shown.append(DataError(text))
        terminal.progress(f"convert: looked at {number}/{len(found)} files", last=number == len(found))
    if count > len(shown):
        shown.append(DataError(f"… and {count - len(shown)} more problems"))
    if shown:
        raise ProblemsError(shown)


def _texts(path: Path, expected: old.Expected) -> Iterator[str]:
    try:
        sample = old.read(path)
    except DataError as error:
        yield str(error)
        return
    yield from (f"{path.name}: {text}" for text in old.problems(sample, expected))


def _add(found: Sequence[Path], outcome: Written) -> None:
    for path in found:
        sample = old.read(path)
        outcome.add(Sample(path.name, sample.input_ids, sample.loss_mask))


def _prompt(sample: old.OldSample) -> tuple[Conversation, list[int]]:
    """The tokens before the first trained one; the whole sample where none is trained."""
    begin = sample.loss_mask.index(1) if 1 in sample.loss_mask else len(sample.input_ids)
    return Conversation(sample.name, ()), sample.input_ids[: max(begin, 1)]


def _write_samples(context: Context, terminal: Terminal, kept: Sequence[Path], values: dict[str, Any]) -> int:
    """Write the samples that are not there yet, and their receipts; gives the bytes of all."""
    folder = context.run.folder("extract") / samples.FOLDER
    folder.mkdir(exist_ok=True)
    path = folder.parent / manifest.FILE
    found = manifest.read(path) if path.exists() else None
    head = plan.head(values, found, path)
    if found is None:
        manifest.create(path, head)
    todo = plan.compare(folder, found or manifest.Manifest(head, {}))
    plan.clear(folder, path, todo, terminal.line)
    receipts: list[manifest.Receipt] = []
    for done, index in enumerate(todo.remaining, 1):
        receipts.append(_write(folder, index, old.read(kept[index])))
        if len(receipts) == _GROUP or done == len(todo.remaining):
            durable.sync_folder(folder)
            manifest.append(path, receipts)
            receipts = []
        terminal.progress(f"convert: {done}/{len(todo.remaining)} samples", last=done == len(todo.remaining))
    return sum(receipt.bytes for receipt in manifest.read(path).receipts.values())


def _write(folder: Path, index: int, sample: old.OldSample) -> manifest.Receipt:
    """Write a sample's file, synced; its folder is synced with the group.

    Raises:
        DataError: a state is not finite.
    """
    import torch

    states = torch.stack(tuple(sample.states), dim=1).contiguous()
    if not states.isfinite().all():
        row = int((~states.isfinite()).flatten(1).any(1).nonzero()[0])
        raise DataError(
            f"{sample.name}: the state of token {row} is not finite",
            why="its extraction overflowed or the file was damaged",
            fix="extract this sample again, or leave it out and renumber the files",
        )
    tokens, slots, hidden = states.shape
    ids = torch.tensor(sample.input_ids, dtype=torch.int64).numpy().tobytes()
    temporary, final = folder / samples.temporary(index), folder / samples.name(index)
    with durable.storage_errors(final), temporary.open("wb") as file:
        file.write(samples.head_bytes(tokens, slots, hidden))
        file.write(ids)
        file.write(states.view(torch.uint8).numpy())
        file.flush()
        os.fsync(file.fileno())
    checksum, size = samples.checksum(temporary), temporary.stat().st_size
    temporary.rename(final)
    return manifest.Receipt(index, tokens, size, checksum, samples.token_ids_checksum(ids))
