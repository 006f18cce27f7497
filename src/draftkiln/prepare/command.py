"""`draftkiln prepare`: conversations become token ids and loss masks, and every row is accounted for."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from draftkiln import durable, stage
from draftkiln.counts import positive
from draftkiln.errors import DataError, DraftkilnError
from draftkiln.prepare import (
    containers,
    output,
    pool,
    presets,
    proof,
    samples,
    split,
    synthetic,
    termination,
    tokencount,
    tokenizer,
)
from draftkiln.prepare.conversation import Conversation
from draftkiln.prepare.outcome import Refusal, RefusedRowError
from draftkiln.prepare.samples import Renderer
from draftkiln.prepare.template import Template, template_text
from draftkiln.recipe.model import HubData, MakeTarget, SyntheticData
from draftkiln.target import language

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from draftkiln.prepare.conversation import Row
    from draftkiln.prepare.outcome import Outcome
    from draftkiln.prepare.split import Split
    from draftkiln.recipe.model import Recipe
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

HeldOut = list[tuple[Conversation, list[int]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments every stage takes, and the number of processes."""
    stage.add_arguments(parser)
    parser.add_argument(
        "--workers", type=positive, metavar="N", help="processes that render (default: one a core); changes no result"
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the stage."""
    allow_network_if_asked(arguments.recipe)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer.close_stdin()
    workers = arguments.workers or pool.default_workers()

    def body(context: Context, terminal: Terminal) -> dict[str, Any]:
        return prepare(context, terminal, workers)

    with termination.told("prepare"):
        return stage.run("prepare", arguments, body, error=DataError, read=read)


def allow_network_if_asked(recipe: Path) -> None:
    """Keep the Hub's libraries offline unless the recipe's data are to be fetched."""
    from draftkiln.recipe.load import load

    try:
        source = load(recipe).data.source
    except DraftkilnError:
        return  # it is told where the stage reads the recipe
    if not (isinstance(source, HubData) and source.network):
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


def load_template(context: Context) -> Template:
    """The target's template, its special tokens held to the recipe.

    Raises:
        TargetError: the tokenizer cannot be loaded, or a token that must be whole is not.
    """
    target = context.recipe.target
    loaded = tokenizer.load(context.target, trust_remote_code=target.trust_remote_code)
    tokenizer.check_single_tokens(loaded, target.must_be_single_token)
    return Template(loaded, target.template_arguments)


def read(recipe: Recipe, target: Path, *, fetch: bool = True) -> dict[str, Any]:
    """Hashes of what the stage reads besides the recipe.

    Args:
        recipe: of the run.
        target: its folder.
        fetch: whether data of the Hub are fetched; without it their hash is left out.
    """
    inputs: dict[str, Any] = {"tokenizer": tokenizer.hashes(target)}
    left_out = isinstance(recipe.data.source, HubData) and not fetch
    paths = [] if left_out else [source.path for source in split.sources(recipe.data)]
    for path in paths:
        containers.refuse_missing(path)
    hashes = [tokenizer.content_hash(path) for path in paths]
    if hashes:
        inputs["data_sha256"] = hashes[0] if len(hashes) == 1 else hashes
    return inputs


def prepare(context: Context, terminal: Terminal, workers: int = 1) -> dict[str, Any]:
    """Make the samples of a recipe; gives what the stage records."""
    data = context.recipe.data
    template = load_template(context)
    proved = _proved(template, answered=data.answers is not None)
    limits = samples.Limits(data.max_tokens, data.too_long)
    folder = context.run.folder("prepare")
    text = template_text(template.tokenizer)
    for note in presets.notes(text):
        terminal.line(f"prepare: {note}")
    with output.writing(folder) as outcome:
        held_out, facts = _fill(
            context, terminal, Renderer(template, limits, data.reasoning, data.raw_text), outcome, workers
        )
        facts = {**facts, **tokencount.facts(context, outcome)}
        checked = presets.of(text)
        about = {
            "tokenizer": type(template.tokenizer).__name__,
            "checked_template": checked.name if checked else None,
            **proved,
        }
        report = output.report(outcome, len(held_out), {**about, **facts})
        outcome.finish_refusals()
        durable.write_json(folder / output.REPORT, report)
        for line in output.table(report):
            terminal.line(f"prepare: {line}")
        if not held_out and data.held_out:
            raise DataError(
                "no prompt is held out", why="no conversation of the data can be a prompt", fix="mend the data"
            )
        samples.check_share(outcome, data.max_refused)
        held_out_sha256 = output.write_held_out(folder, held_out)
        dataset_sha256 = outcome.finish()
    tokencount.write(folder, outcome, dataset_sha256, context)
    return {
        "samples": outcome.kept_samples,
        "tokens": report["tokens"],
        "trained_tokens": report["trained_tokens"],
        "held_out": len(held_out),
        "refused": outcome.refused_rows,
        "dataset_sha256": dataset_sha256,
        "held_out_sha256": held_out_sha256,
        **facts,
    }


def _proved(template: Template, *, answered: bool) -> dict[str, Any]:
    """How masks are proved, for the report; where the target answers, its own token ids are all that is trained.

    Raises:
        DataError: they cannot be.
    """
    if answered:
        proof.check_prompt(template)
        return {"mask_proved_by": "the target's own token ids"}
    found = template.prove()
    return {"mask_proved_by": found.method, "end_of_turn": found.end_of_turn}


def _fill(
    context: Context, terminal: Terminal, renderer: Renderer, outcome: Outcome, workers: int
) -> tuple[HeldOut, dict[str, Any]]:
    """Fill `outcome` from the recipe's source; returns the held-out prompts and facts for the report."""
    data, template, limits = context.recipe.data, renderer.template, renderer.limits
    if isinstance(data.source, SyntheticData):
        answer = language.answer if isinstance(context.recipe.target.source, MakeTarget) else None
        made = synthetic.conversations(template, data.source, data.max_tokens, answer)
        apart = synthetic.held_out(template, data.held_out, data.source.seed)
        samples.from_conversations(made, template, limits, data.reasoning, outcome)
        return prompts(apart, renderer, outcome), {}
    divided = split.of(data)
    held_out = prompts(divided.held_out, renderer, outcome)
    if data.answers is None:
        return held_out, _rendered(divided, renderer, outcome, terminal, workers)
    from draftkiln.prepare import answers

    asked = prompts(conversations(divided.taught(outcome), outcome), renderer, outcome)
    return held_out, {"answers": answers.write(context, terminal, asked, limits, outcome)}


def _rendered(divided: Split, renderer: Renderer, outcome: Outcome, terminal: Terminal, workers: int) -> dict[str, Any]:
    began = time.monotonic()
    for made in pool.render(renderer, divided.taught(outcome), workers):
        samples.record(made, outcome)
        rows = outcome.kept_rows + outcome.refused_rows
        terminal.progress(f"prepare: {rows} rows, {rows / (time.monotonic() - began):.0f} a second")
    samples.refuse_too_long(outcome, renderer.limits)
    rows = outcome.kept_rows + outcome.refused_rows
    return {"rows_per_second": round(rows / (time.monotonic() - began), 1)}


def conversations(found: Iterator[Row | Refusal], outcome: Outcome) -> list[Conversation]:
    """The conversations among rows; refused ones go to the account."""
    kept = []
    for row in found:
        if isinstance(row, Conversation):
            kept.append(row)
        elif isinstance(row, Refusal):
            outcome.note(row)
    return kept


def prompts(found: list[Conversation], renderer: Renderer, outcome: Outcome) -> HeldOut:
    """The prompts of conversations with their token ids; one that leaves no room for an answer is refused."""
    asked: HeldOut = []
    for conversation in found:
        prompt = Conversation(conversation.source, conversation.prompt(), tools=conversation.tools)
        try:
            asked.append((prompt, renderer.prompt_ids(prompt)))
        except RefusedRowError as error:
            outcome.refuse(conversation.source, error)
    return asked
