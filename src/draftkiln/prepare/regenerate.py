"""`draftkiln regenerate`: the target answers the data's prompts, and conversations with its answers come out.

`prepare` with `data.answers` keeps the answers' token ids as they are; this is for when the text itself is wanted, or
when the target runs elsewhere.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable, stage
from draftkiln.errors import EngineError, ExitCode, RecipeError
from draftkiln.prepare import answers, command, samples, split, termination, tokenizer
from draftkiln.prepare.answerstore import Prompt
from draftkiln.prepare.completions import Endpoint
from draftkiln.prepare.outcome import Outcome, RefusedRowError
from draftkiln.stagelog import stage_log

if TYPE_CHECKING:
    import argparse

    from draftkiln.prepare.answers import Job
    from draftkiln.prepare.answerstore import Answer
    from draftkiln.prepare.template import Template
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

FOLDER = "regenerate"
CONVERSATIONS = "conversations.jsonl"
REPORT = "regenerate-report.json"
KEY = "OPENAI_API_KEY"
"""Environment variable whose value goes to an endpoint named by URL as a bearer token."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments every stage takes, and the endpoint."""
    stage.add_arguments(parser)
    parser.add_argument(
        "--endpoint", metavar="URL", help="vLLM server that serves the target (default: the stack's own is started)"
    )


def main(arguments: argparse.Namespace) -> int:
    """Write the conversations; answers that are there already are not asked for again."""
    command.allow_network_if_asked(arguments.recipe)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer.close_stdin()
    context = stage.context("prepare", arguments)
    if context.recipe.data.answers is None:
        raise RecipeError(
            f"{arguments.recipe}: data.answers is missing",
            why="it says how answers are sampled",
            fix="add `answers: {}` under `data`, with max_tokens, temperature, …",
        )
    folder = context.run.folder(FOLDER)
    with termination.told(FOLDER), stage_log(context.run.log(FOLDER), EngineError) as terminal:
        endpoint = named_endpoint(arguments.endpoint) if arguments.endpoint else None
        report = regenerate(context, terminal, folder, endpoint)
        terminal.line(f"regenerate: {report['written']} conversations in {folder / CONVERSATIONS}")
        for reason, count in report["refused_by_reason"].items():
            terminal.line(f"regenerate: {count} left out: {reason}")
    return ExitCode.OK


def named_endpoint(url: str) -> Endpoint:
    """The server at `url`, under the one name that it serves a model.

    Raises:
        EngineError: it cannot be reached, or serves no model.
    """
    import httpx

    base, key = url.rstrip("/").removesuffix("/v1"), os.environ.get(KEY)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        response = httpx.get(f"{base}/v1/models", headers=headers, timeout=30)
        response.raise_for_status()
        models = [entry["id"] for entry in response.json()["data"]]
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"no model can be asked at {url}",
            why=f"{type(error).__name__}: {error}",
            fix=f"name the address of a vLLM server, such as http://host:8000, and set {KEY} where it wants a key",
        ) from error
    if not models:
        raise EngineError(f"the server at {url} serves no model", fix="start it with the target")
    return Endpoint(base, models[0], f"see the log of the server at {url}", key)


def regenerate(context: Context, terminal: Terminal, folder: Path, endpoint: Endpoint | None) -> dict[str, Any]:
    """Write `folder/conversations.jsonl` and the report; gives the report.

    Raises:
        DataError: no answer came, or more failed than `data.max_refused` allows.
    """
    data = context.recipe.data
    template, outcome = command.load_template(context), Outcome()
    limits = samples.Limits(data.max_tokens, data.too_long)
    found = command.conversations(split.everything(data).taught(outcome), outcome)
    tools = {conversation.source: conversation.tools for conversation in found}
    asked = command.prompts(found, samples.Renderer(template, limits, data.reasoning), outcome)
    wanted = [Prompt(number, conversation.source, ids) for number, (conversation, ids) in enumerate(asked)]
    job, facts = answers.answer_all(context, terminal, wanted, limits, folder / answers.FILE, endpoint)
    lines = []
    for prompt, (conversation, _) in zip(wanted, asked, strict=True):
        try:
            text, answer = answered(job, prompt, template)
        except RefusedRowError as error:
            outcome.refuse(prompt.source, error)
            continue
        turns = [*conversation.messages, {"role": "assistant", "content": text}]
        line = {"id": prompt.source, "messages": turns, "finish_reason": answer.finish}
        lines.append(line | ({"tools": list(tools[prompt.source])} if tools[prompt.source] else {}))
    outcome.kept_rows = len(lines)
    report = {
        "schema_version": 1,
        "model": endpoint.model if endpoint else str(context.target),
        "tokenizer_sha256": durable.sha256_json(tokenizer.hashes(context.target)),
        "refused": outcome.refused_rows,
        "refused_by_reason": dict(outcome.refused.most_common()),
        "refused_rows": [vars(refusal) for refusal in outcome.refusals],
        **facts,
    }
    durable.write_json(folder / REPORT, report | {"written": len(lines)})
    samples.check_share(outcome, data.max_refused)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    durable.write_text(Path(folder, CONVERSATIONS), text)
    return report | {"written": len(lines)}


def answered(job: Job, prompt: Prompt, template: Template) -> tuple[str, Answer]:
    """The text of an answer without the token that ends its turn.

    Raises:
        RefusedRowError: there is none, or it is blank.
    """
    answer = job.store.answers.get(job.key(prompt))
    if answer is None:
        raise RefusedRowError("no answer written", job.failed.get(prompt.source, ""))
    ends = answer.ids and answer.ids[-1] in template.special_ids
    text = str(template.tokenizer.decode(answer.ids[:-1] if ends else answer.ids))
    if not text.strip():
        raise RefusedRowError("empty answer", f"{len(answer.ids)} tokens")
    return text, answer
