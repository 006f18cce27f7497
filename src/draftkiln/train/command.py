"""`draftkiln train`: learn a draft from checked hidden states."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from draftkiln import durable, stage
from draftkiln.errors import TrainingError
from draftkiln.extract import manifest
from draftkiln.prepare import tokencount
from draftkiln.target.facts import text_config
from draftkiln.train import data_folder, draft_config, inputs, schedule, settings, verifier, vocabulary
from draftkiln.train.curve import Curve

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal
    from draftkiln.train.schedule import Schedule

CHECKPOINTS = "checkpoints"
_AVERAGED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments every stage takes."""
    stage.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run the stage."""
    return stage.run("train", arguments, _train, error=TrainingError)


def _train(context: Context, terminal: Terminal) -> dict[str, Any]:
    recipe, facts = context.recipe, context.facts
    head = manifest.read(context.run.path / "extract" / manifest.FILE).head
    inputs.refuse_other_states(head, recipe.layers.aux, facts.num_layers, facts.hidden_size, recipe.extract.storage)
    inputs.refuse_too_few(head.samples)
    folder = context.run.folder("train").absolute()
    for leftover in (folder / CHECKPOINTS, folder / "verifier"):
        shutil.rmtree(leftover, ignore_errors=True)
    rows = _rows(context.run.path / "prepare" / "dataset")
    chosen = _write_inputs(context, folder, rows)

    began = time.monotonic()
    import torch

    lengths = [int(length) for length in rows["seq_len"]]
    train = recipe.train
    planned = schedule.plan(lengths, train.tokens_per_step, train.seed, train.epochs, train.max_steps)
    accelerator = torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator().type if accelerator else "cpu"
    long = sum(length > train.tokens_per_step for length in lengths)
    if long:
        terminal.line(f"train: {long} samples are longer than train.tokens_per_step, their ends are not trained on")
    terminal.line(f"train: {planned.steps} steps in {len(planned.epochs)} epochs on {device}")
    values = settings.settings(recipe, folder, planned, accelerator=accelerator)
    curve = _run(values, Curve(folder / "curve.jsonl", planned, train.ttt_steps, terminal))
    _refuse_unfinished(curve, planned)
    checkpoint = folder / CHECKPOINTS / str(len(planned.epochs) - 1)
    last = curve.training[-_AVERAGED:]
    return {
        "steps": len(curve.training),
        "epochs": len(planned.epochs),
        "loss_first": curve.training[0]["loss"],
        "loss_last": sum(line["loss"] for line in last) / len(last),
        "validation_loss": curve.validation[-1]["loss"],
        "validation_accuracy": curve.validation[-1]["accuracy"],
        "seconds_per_step": round(curve.training[-1]["seconds"] / len(curve.training), 3),
        "start_seconds": round(time.monotonic() - began - curve.training[-1]["seconds"], 1),
        "device": device,
        "samples": planned.training,
        "tokens": planned.tokens(lengths, train.tokens_per_step),
        "draft_vocab_size": len(chosen.targets) if chosen else facts.vocab_size,
        "checkpoint": str(checkpoint.relative_to(context.run.path.absolute())),
        "checkpoint_sha256": durable.sha256_file(checkpoint / "model.safetensors"),
        "settings": {key: value for key, value in values.items() if not str(value).startswith(str(folder))},
    }


def _rows(dataset: Path) -> Any:
    import datasets

    return datasets.load_from_disk(str(dataset)).with_format(None)


def _write_inputs(context: Context, folder: Path, rows: Any) -> vocabulary.Vocabulary | None:
    target = context.target
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    files = verifier.weight_map(target)
    text = text_config(config)
    tied = bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False)))
    verifier.write_folder(target, folder / "verifier", verifier.find(files, tied=tied), files)
    durable.write_json(folder / "draft.json", draft_config.decoder_config(config, context.recipe.train.draft))
    generation = target / "generation_config.json"
    more = [json.loads(generation.read_text(encoding="utf-8"))] if generation.exists() else []
    size = context.recipe.train.draft.vocab_size
    counts = (tokencount.read(context.run.path / "prepare", context) or vocabulary.count(rows)) if size else {}
    chosen = vocabulary.choose(counts, size, context.facts.vocab_size, vocabulary.ends(config, text, *more))
    states = context.run.path / "extract" / "hidden_states"
    data_folder.write(folder / "data", context.run.path / "prepare" / "dataset", states, chosen)
    return chosen


def _run(values: dict[str, Any], curve: Curve) -> Curve:
    """Run speculators' trainer with these settings and the curve listening."""
    from speculators.train import cli
    from speculators.train.config import TrainConfig

    root = logging.getLogger()
    # With a handler in place the trainer adds none of its own, which would draw boxes as wide as a terminal.
    text = logging.StreamHandler(sys.stderr)
    text.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handlers = (text, curve)
    for handler in handlers:
        root.addHandler(handler)
    try:
        cli.main(TrainConfig.from_flat(values))
    finally:
        for handler in handlers:
            root.removeHandler(handler)
    return curve


def _refuse_unfinished(curve: Curve, planned: Schedule) -> None:
    """The trainer returns as if all were well when a signal ends it."""
    if len(curve.training) < planned.steps:
        done = f"{len(curve.training)} of {planned.steps} steps were done"
        raise TrainingError("training was stopped by a signal", why=done, fix="run the same command again")
