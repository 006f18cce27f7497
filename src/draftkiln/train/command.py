"""`draftkiln train`: learn a draft from checked hidden states."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import cache, durable, stage
from draftkiln.errors import TrainingError
from draftkiln.extract import manifest
from draftkiln.extract.signals import Ending, StoppedError
from draftkiln.prepare import tokencount, tokenizer
from draftkiln.recipe.model import PathDraft
from draftkiln.target.facts import text_config
from draftkiln.train import (
    curve,
    data_folder,
    draft_config,
    inputs,
    job,
    loggers,
    settings,
    state,
    verifier,
    vocabulary,
    warmstart,
)
from draftkiln.train.job import Job
from draftkiln.train.schedule import Plan

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from draftkiln.recipe.model import Recipe
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal
    from draftkiln.train.schedule import Schedule
    from draftkiln.train.vocabulary import Vocabulary
    from draftkiln.train.warmstart import Published

CHECKPOINTS = "checkpoints"
_AVERAGED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments every stage takes."""
    stage.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run the stage."""
    return stage.run("train", arguments, _train, error=TrainingError, read=read)


def read(recipe: Recipe, _target: Path, *, fetch: bool = True) -> dict[str, Any]:
    """Hashes of what the stage reads besides the run directory; without `fetch` none of a draft on the Hub."""
    folder = _draft_folder(recipe) if fetch or isinstance(recipe.train.init_from, PathDraft) else None
    return {"init_from": warmstart.hashes(warmstart.read(folder))} if folder else {}


def _draft_folder(recipe: Recipe) -> Path | None:
    source = recipe.train.init_from
    if source is None:
        return None
    return warmstart.folder(source, Path.cwd(), cache.root() / "drafts", os.environ.get("HF_TOKEN"))


def _train(context: Context, terminal: Terminal) -> dict[str, Any]:
    ending = Ending()
    with ending.while_running():
        return _train_until(context, terminal, ending)


def _train_until(context: Context, terminal: Terminal, ending: Ending) -> dict[str, Any]:
    recipe = context.recipe
    _refuse(context)
    folder = context.run.folder("train").absolute()
    for leftover in (folder / CHECKPOINTS, folder / "verifier"):
        shutil.rmtree(leftover, ignore_errors=True)
    published = _published(context)
    chosen = _write_inputs(context, folder, published, terminal)

    began = time.monotonic()
    import torch

    lengths = job.lengths(folder / job.DATA)
    train = recipe.train
    plan = Plan(train.tokens_per_step, train.seed, train.epochs, train.max_steps, train.devices)
    planned = plan.schedule(lengths)
    accelerator = torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator().type if accelerator else "cpu"
    version = str(torch.__version__)
    values = settings.settings(recipe, folder, planned, accelerator=accelerator, torch_version=version)
    deciding = settings.deciding(values, folder)
    init_from = str(published.folder.absolute()) if published else None
    work = Job(str(folder), values, deciding, plan, train.save_minutes, train.save_steps, init_from)
    loggers.keep_local(train.loggers, folder / "logs", os.environ)
    work.write()
    _announce(terminal, planned, lengths, work, device)
    first_step_at = _run(work, planned, ending, terminal)
    lines = list(curve.read(folder / job.CURVE))
    _refuse_unfinished(lines, planned)
    checkpoint = folder / CHECKPOINTS / str(len(planned.epochs) - 1)
    shutil.rmtree(folder / state.FOLDER, ignore_errors=True)
    return {
        **_figures(lines),
        "epochs": len(planned.epochs),
        "start_seconds": round(first_step_at - began, 1) if first_step_at else None,
        "device": device,
        "devices": train.devices,
        "samples": planned.training,
        "held_out_samples": len(lengths) - planned.training,
        "tokens": planned.tokens,
        "draft_vocab_size": len(chosen.targets) if chosen else context.facts.vocab_size,
        "checkpoint": str(checkpoint.relative_to(context.run.path.absolute())),
        "checkpoint_sha256": durable.sha256_file(checkpoint / "model.safetensors"),
        "settings": deciding,
    }


def _refuse(context: Context) -> None:
    """Refuse what must not be learnt from, and what the training would miss later."""
    recipe, facts, run = context.recipe, context.facts, context.run
    inputs.refuse_made_up(recipe.target.load_format)
    found = manifest.read(run.path / "extract" / manifest.FILE)
    head = found.head
    inputs.refuse_other_states(head, recipe.layers.aux, facts.num_layers, facts.hidden_size, recipe.extract.storage)
    inputs.refuse_too_few(head.samples)
    inputs.refuse_not_validated(run.require("validate"), run.require("extract"), head.samples, len(found.receipts))
    inputs.refuse_cut(run.path / "extract", found.receipts)
    recorded = run.require("prepare")["inputs"].get("tokenizer")
    inputs.refuse_other_tokenizer(recorded, tokenizer.hashes(context.target))
    loggers.refuse_missing(recipe.train.loggers, context.stack)
    if recipe.train.devices > 1:
        from draftkiln.train import several

        several.refuse_missing(recipe.train.devices)


def _published(context: Context) -> Published | None:
    folder = _draft_folder(context.recipe)
    if folder is None:
        return None
    found = warmstart.read(folder)
    config = json.loads((context.target / "config.json").read_text(encoding="utf-8"))
    decoder = draft_config.decoder_config(config, context.recipe.train.draft)
    warmstart.refuse_other(found, context.recipe, context.facts, decoder)
    return found


def _write_inputs(
    context: Context, folder: Path, published: Published | None, terminal: Terminal
) -> vocabulary.Vocabulary | None:
    target = context.target
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    files = verifier.weight_map(target)
    text = text_config(config)
    tied = bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False)))
    verifier.write_folder(target, folder / "verifier", verifier.find(files, tied=tied), files)
    durable.write_json(folder / "draft.json", draft_config.decoder_config(config, context.recipe.train.draft))
    generation = target / "generation_config.json"
    more = [json.loads(generation.read_text(encoding="utf-8"))] if generation.exists() else []
    dataset = context.run.path / "prepare" / "dataset"
    size, target_size = context.recipe.train.draft.vocab_size, context.facts.vocab_size
    chosen: Vocabulary | None
    if published is not None:
        chosen = warmstart.vocabulary(published, size, target_size)
    else:
        counted = tokencount.read(context.run.path / "prepare", context) if size else Counter[int]()
        counts = vocabulary.count(_rows(dataset)) if counted is None else counted
        chosen = vocabulary.choose(counts, size, target_size, vocabulary.ends(config, text, *more))
        if chosen is not None and (unseen := chosen.unseen(counts)):
            terminal.line(
                f"train: {unseen} of the draft's {len(chosen.targets)} tokens are nowhere in what is trained on "
                f"({chosen.seen} different ones are): they are filled up in order and will not be proposed well"
            )
    states = context.run.path / "extract" / "hidden_states"
    data_folder.write(folder / job.DATA, dataset, states, chosen)
    return chosen


def _rows(dataset: Path) -> Any:
    import datasets

    return datasets.load_from_disk(str(dataset)).with_format(None)


def _announce(terminal: Terminal, planned: Schedule, lengths: Sequence[int], work: Job, device: str) -> None:
    long = sum(length > work.plan.tokens_per_step for length in lengths)
    if long:
        terminal.line(f"train: {long} samples are longer than train.tokens_per_step, their ends are not trained on")
    where = device if work.plan.devices == 1 else f"{work.plan.devices} x {device}"
    terminal.line(f"train: {planned.steps} steps in {len(planned.epochs)} epochs on {where}")
    if (begin := work.begin) is not None:
        terminal.line(f"train: going on after step {begin.step}")


def _run(work: Job, planned: Schedule, ending: Ending, terminal: Terminal) -> float | None:
    """Run the trainer; when its first step began, by the monotonic clock.

    Raises:
        StoppedError: a signal ended it.
    """
    from draftkiln.train.loop import StopAskedError

    if ending.number is not None:
        raise StoppedError(ending.number, "training had not begun")
    try:
        if work.plan.devices > 1:
            from draftkiln.train import several

            return several.run(work, planned.steps, ending, terminal)
        made = job.run(work, planned, ending, terminal)
    except StopAskedError:
        begin = work.begin
        done = f"{begin.step if begin else 0} of {planned.steps} steps are done and saved"
        raise StoppedError(ending.number or signal.SIGTERM, done) from None
    return made.first_step_at if made else None


def _figures(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    steps = [line for line in lines if not line.get("validation")]
    held_out = next(line for line in reversed(lines) if line.get("validation"))
    last = steps[-_AVERAGED:]
    return {
        "steps": len(steps),
        "loss_first": steps[0]["loss"],
        "loss_last": sum(line["loss"] for line in last) / len(last),
        "validation_loss": held_out["loss"],
        "validation_accuracy": held_out["accuracy"],
        "seconds_per_step": round(steps[-1]["seconds"] / len(steps), 3),
    }


def _refuse_unfinished(lines: Sequence[dict[str, Any]], planned: Schedule) -> None:
    """The trainer may end early as if all were well."""
    done = sum(not line.get("validation") for line in lines)
    if done < planned.steps:
        raise TrainingError(
            "training ended early", why=f"{done} of {planned.steps} steps were done", fix="run the same command again"
        )
