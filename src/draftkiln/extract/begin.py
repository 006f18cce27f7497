"""How an extraction begins or goes on, whoever computes: its manifest, what remains, and whether there is room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln import arithmetic
from draftkiln.extract import manifest, plan, samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from draftkiln.extract.shards import Shard
    from draftkiln.stage import Context


@dataclass(frozen=True)
class Begun:
    """An extraction that was begun or is gone on with.

    Attributes:
        head: of its manifest.
        remaining: samples to compute, ascending.
        done_rows: tokens of the others.
        longest: tokens of the longest of the others.
    """

    head: manifest.Head
    remaining: Sequence[int]
    done_rows: int
    longest: int


def take_up(
    context: Context,
    tell: Callable[[str], None],
    count: int,
    *,
    shard: Shard | None = None,
    full: bool = False,
    files: bool = True,
) -> Begun:
    """Begin the manifest, or go on with the one that is there.

    The receipts are let go again: they are what grows with the number of samples.

    Args:
        context: of the stage.
        tell: takes a line for people.
        count: samples of the dataset.
        shard: part of them that is extracted here.
        full: whether files are compared with their receipts by checksum as well.
        files: whether they are looked at; where they lie on other hosts they cannot be.

    Raises:
        RunDirectoryError: the manifest there was begun for something else.
    """
    recipe, facts = context.recipe, context.facts
    folder = context.run.folder("extract") / samples.FOLDER
    folder.mkdir(exist_ok=True)
    path = folder.parent / manifest.FILE
    found = manifest.read(path) if path.exists() else None
    head = plan.head(
        {
            "layer_ids": recipe.layers.captured(facts.num_layers),
            "hidden_size": facts.hidden_size,
            "dtype": recipe.extract.storage,
            "computed_in": arithmetic.engine_dtype(recipe.target.dtype, context.device),
            "samples": count,
            "dataset_sha256": context.inputs["dataset_sha256"],
            "stack": context.stack,
            "patched_wheel_sha256": context.inputs["speculators"],
            "shard": shard,
        },
        found,
        path,
    )
    if found is None:
        manifest.create(path, head)
        found = manifest.Manifest(head, {})
    if not files:
        return Begun(head, [index for index in head.indices if index not in found.receipts], *_done(found, set()))
    todo = plan.compare(folder, found, full=full)
    plan.clear(folder, path, todo, tell)
    return Begun(head, todo.remaining, *_done(found, set(todo.remade)))


def _done(found: manifest.Manifest, remade: set[int]) -> tuple[int, int]:
    rows = [receipt.rows for index, receipt in found.receipts.items() if index not in remade]
    return sum(rows), max(rows, default=0)


def announce(
    tell: Callable[[str], None], head: manifest.Head, folder: Path, count: int, needed: int, *, force: bool
) -> None:
    """Say what is to be done and refuse it where the disk has no room.

    Args:
        tell: takes a line for people.
        head: of the manifest.
        folder: of the samples.
        count: of samples that remain.
        needed: bytes of them.
        force: whether a lack of room is ignored.

    Raises:
        StorageError: it has none, and that was not to be ignored.
    """
    if not force:
        plan.refuse_without_room(folder, needed)
    text = f"{count} of {len(head.indices)} samples"
    if head.shard is not None:
        text += f" (shard {head.shard} of {head.samples})"
    size = f"{token_bytes(head)} B a token, {needed / 1e9:.2f} GB of states"
    tell(f"extract: {text} to do, layers {list(head.layer_ids)}, {size}")


def token_bytes(head: manifest.Head) -> int:
    """Bytes of a token in a sample's file."""
    shape = len(head.layer_ids), head.hidden_size, head.dtype
    return samples.row_bytes(*shape) + samples.scale_bytes(head.dtype) + samples.TOKEN_ID_BYTES


def results(head: manifest.Head, count: int, tokens: int, longest: int) -> dict[str, object]:
    """What the stage says of all samples that there are, however many hosts computed them."""
    return {
        "samples": count,
        "tokens": tokens,
        "shape": [longest, len(head.layer_ids), head.hidden_size],
        "dtype": head.dtype,
        "layer_ids": list(head.layer_ids),
    }
