"""`draftkiln prepare`: conversations become token ids and loss masks, and every row is accounted for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable, stage
from draftkiln.errors import DataError
from draftkiln.prepare import output, rows, samples, synthetic, tokenizer
from draftkiln.prepare.rows import Conversation, RefusedRowError
from draftkiln.prepare.template import Template
from draftkiln.recipe.model import MakeTarget, PathData, SyntheticData
from draftkiln.target import language

if TYPE_CHECKING:
    import argparse

    from draftkiln.recipe.model import Data, Recipe
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

HeldOut = list[tuple[Conversation, list[int]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments every stage takes."""
    stage.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run the stage."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer.close_stdin()
    return stage.run("prepare", arguments, _prepare, error=DataError, read=_read)


def _read(recipe: Recipe, target: Path) -> dict[str, Any]:
    """Hashes of what the stage reads besides the recipe."""
    inputs: dict[str, Any] = {"tokenizer": tokenizer.hashes(target)}
    source = recipe.data.source
    if isinstance(source, PathData):
        file = Path(source.path)
        inputs["data_sha256"] = durable.sha256_file(file) if file.is_file() else None
    return inputs


def _prepare(context: Context, terminal: Terminal) -> dict[str, Any]:
    recipe, data = context.recipe, context.recipe.data
    loaded = tokenizer.load(context.target, trust_remote_code=recipe.target.trust_remote_code)
    tokenizer.check_single_tokens(loaded, recipe.target.must_be_single_token)
    template = Template(loaded, recipe.target.template_arguments)
    proof = template.prove()
    outcome = samples.Outcome()
    limits = samples.Limits(data.max_tokens, data.too_long)

    held_out, facts = _fill(context, terminal, template, limits, outcome)
    if not held_out and data.held_out:
        raise DataError("no prompt is held out", why="no conversation of the data can be a prompt", fix="mend the data")
    samples.check_share(outcome, data.max_refused)

    folder = context.run.folder("prepare")
    report = output.report(
        outcome,
        len(held_out),
        {"tokenizer": type(loaded).__name__, "mask_proved_by": proof.method, "end_of_turn": proof.end_of_turn, **facts},
    )
    durable.write_json(folder / "report.json", report)
    held_out_sha256 = output.write_held_out(folder, held_out)
    dataset_sha256 = output.write_dataset(folder, outcome.samples)
    for line in output.table(report):
        terminal.line(f"prepare: {line}")
    return {
        "samples": len(outcome.samples),
        "tokens": report["tokens"],
        "trained_tokens": report["trained_tokens"],
        "held_out": len(held_out),
        "refused": len(outcome.refusals),
        "dataset_sha256": dataset_sha256,
        "held_out_sha256": held_out_sha256,
        **facts,
    }


def _fill(
    context: Context, terminal: Terminal, template: Template, limits: samples.Limits, outcome: samples.Outcome
) -> tuple[HeldOut, dict[str, Any]]:
    """Fill `outcome` from the recipe's source; returns the held-out prompts and facts for the report."""
    data = context.recipe.data
    if isinstance(data.source, SyntheticData):
        answer = language.answer if isinstance(context.recipe.target.source, MakeTarget) else None
        made = synthetic.conversations(template, data.source, data.max_tokens, answer)
        apart = synthetic.held_out(template, data.held_out, data.source.seed)
        samples.from_conversations(made, template, limits, data.reasoning, outcome)
        return _prompts(apart, template, limits, outcome), {}
    taught, held_out = _split(data, data.source, template, limits, outcome)
    if data.answers is None:
        samples.from_conversations(taught, template, limits, data.reasoning, outcome)
        return held_out, {}
    from draftkiln.prepare import answers

    prompts = _prompts(taught, template, limits, outcome)
    facts = answers.write(context, terminal, prompts, limits, outcome)
    return held_out, {"answers": facts}


def _split(
    data: Data, source: PathData, template: Template, limits: samples.Limits, outcome: samples.Outcome
) -> tuple[list[Conversation], HeldOut]:
    """Conversations to learn from, and the last `held_out` as prompts; none of the first asks one of the second."""
    found: list[Conversation] = []
    for row in rows.read(Path(source.path), prompts_only=data.answers is not None, limit=data.limit):
        if isinstance(row, Conversation):
            found.append(row)
        else:
            outcome.refusals.append(row)
    if len(found) <= data.held_out:
        refused = f"; {len(outcome.refusals)} rows are refused: {outcome.reasons()}" if outcome.refusals else ""
        raise DataError(
            f"{source.path}: {len(found)} conversations are too few",
            why=f"data.held_out sets {data.held_out} apart and none is left to train on{refused}",
            fix="add rows, or lower data.held_out",
        )
    apart = found[len(found) - data.held_out :]
    held_out = _prompts(apart, template, limits, outcome)
    asked = {_key(conversation) for conversation in apart}
    taught, doubled = [], RefusedRowError("its prompt is held out for evaluation")
    for conversation in found[: len(found) - data.held_out]:
        if _key(conversation) in asked:
            outcome.refuse(conversation.source, doubled)
        else:
            taught.append(conversation)
    outcome.counts["doubled ids"] = len(found) - len({row.row_id or row.source for row in found})
    return taught, held_out


def _key(conversation: Conversation) -> str:
    return durable.sha256_json(conversation.prompt())


def _prompts(
    conversations: list[Conversation], template: Template, limits: samples.Limits, outcome: samples.Outcome
) -> HeldOut:
    """The prompts of conversations with their token ids; one that leaves no room for an answer is refused."""
    prompts: HeldOut = []
    for conversation in conversations:
        prompt = Conversation(conversation.source, conversation.prompt())
        try:
            ids = template.ids(prompt.messages, generation_prompt=True)
            limits.check_prompt(ids)
        except RefusedRowError as error:
            outcome.refuse(conversation.source, error)
            continue
        prompts.append((prompt, ids))
    return prompts
