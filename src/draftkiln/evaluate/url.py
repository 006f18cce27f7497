"""`draftkiln evaluate --url`: a server that runs, measured through its own counters before and after our prompts."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, get_args

from draftkiln import checkout, durable
from draftkiln.errors import EvaluationError, ExitCode, ProblemsError, UsageError
from draftkiln.evaluate import prompts, results
from draftkiln.evaluate.job import GREEDY, Sampling
from draftkiln.evaluate.measure import agreed
from draftkiln.evaluate.remote import Asked, Server, Settings
from draftkiln.recipe.model import PromptForm, PromptSet

if TYPE_CHECKING:
    import argparse

    from draftkiln.evaluate.prompts import PromptFile

KEY = "OPENAI_API_KEY"
"""Environment variable with the server's key, where it wants one."""
SHIPPED = PromptSet(name="shipped", path="data/evaluation-en.jsonl", form="messages")
"""The small set that the repository ships; its prompts are in no recipe's training data."""
_TIMEOUT_S = 600.0
_SET = re.compile(r"(?P<name>[a-z0-9][a-z0-9._-]{0,59})=(?P<form>[^:]+):(?P<path>.+)")


def measure(arguments: argparse.Namespace) -> int:
    """Ask a server all prompt sets, compare with the target alone where one is named, and write the results."""
    files = [prompts.from_file(one) for one in _sets(arguments.sets, arguments.limit)]
    if arguments.out is not None and arguments.out.is_dir():
        raise UsageError(f"{arguments.out} is a directory", fix="name a file with --out")
    asked = Settings(arguments.max_tokens, arguments.ignore_eos, arguments.concurrency, arguments.timeout or _TIMEOUT_S)
    samplings = [GREEDY]
    if arguments.temperature is not None:
        samplings.append(Sampling(arguments.temperature, 1.0, arguments.seed))
    server = Server.at(arguments.url, os.environ.get(KEY))
    model = arguments.model or server.model()
    server.counters(model).drafted()  # refuses a server without a draft before it is asked anything
    other = _alone(arguments)
    drafted = [server.answer(file.name, file.prompts, model, one, asked) for one in samplings for file in files]
    alone: list[Asked | None] = [None] * len(drafted)
    if other is not None:
        alone = [other[0].answer(file.name, file.prompts, other[1], one, asked) for one in samplings for file in files]
    hashes = {file.name: file for file in files}
    reports = [_report(one, two, hashes[one.round.set]) for one, two in zip(drafted, alone, strict=True)]
    report: dict[str, Any] = {
        "schema_version": results.SCHEMA_VERSION,
        "url": arguments.url,
        "alone_url": arguments.alone_url,
        "model": model,
        "vllm": server.version(),
        "max_tokens": asked.max_tokens,
        "ignore_eos": asked.ignore_eos,
        "concurrency": asked.concurrency,
        "sets": reports,
    }
    for one in reports:
        print(f"evaluate: {results.lines(one)}")
        if one["tokens_for_others"]:
            print(
                f"evaluate: set {one['set']}: the server generated {one['tokens_for_others']} tokens for others "
                "meanwhile; their drafts are counted too",
                file=sys.stderr,
            )
    if arguments.out is not None:
        durable.write_json(arguments.out, report)
        print(f"evaluate: all numbers are in {arguments.out}")
    _refuse_lossy(reports)
    results.refuse_below(reports, arguments.fail_under)
    return ExitCode.OK


def _alone(arguments: argparse.Namespace) -> tuple[Server, str] | None:
    """The server with the target alone and its name there, where one is named.

    Raises:
        EvaluationError: it drafts too.
    """
    if arguments.alone_url is None:
        return None
    server = Server.at(arguments.alone_url, os.environ.get(KEY))
    model = arguments.model or server.model()
    if server.counters(model).drafts is not None:
        raise EvaluationError(
            f"{arguments.alone_url} drafts too", why="it is to be the target alone", fix="start it without a draft"
        )
    return server, model


def _report(drafted: Asked, alone: Asked | None, file: PromptFile) -> dict[str, Any]:
    # Servers that return no token ids are compared by text.
    compared = None if alone is None else (_comparable(alone), _comparable(drafted))
    differ = [] if compared is None or drafted.round.sampling != GREEDY else _differences(*compared)
    measured = results.Measured(drafted.round, None if alone is None else alone.round, _draft_tokens(drafted))
    figures = measured.as_results() | {
        "tokens": drafted.tokens,
        "tokens_per_second": _rate(drafted),
        "tokens_per_second_alone": None if alone is None else _rate(alone),
    }
    if compared is not None and drafted.round.sampling == GREEDY:
        figures["lossless"] = not differ
    return {
        "set": drafted.round.set,
        "sampling": asdict(drafted.round.sampling),
        **figures,
        "tokens_for_others": drafted.others,
        "file_sha256": file.file_sha256,
        "divergences": differ,
    }


def _comparable(asked: Asked) -> list[list[tuple[list[int], str]]]:
    return [list(zip(*turns, strict=True)) for turns in zip(asked.round.outputs, asked.texts, strict=True)]


def _differences(
    alone: list[list[tuple[list[int], str]]], drafted: list[list[tuple[list[int], str]]]
) -> list[dict[str, Any]]:
    """Each prompt whose answers differ, and the first turn in which they do."""
    found = []
    for index, turns in enumerate(zip(alone, drafted, strict=True)):
        for turn, ((ids, text), (other_ids, other_text)) in enumerate(zip(*turns, strict=True)):
            if (ids and other_ids and ids != other_ids) or text != other_text:
                same = agreed(text, other_text)
                parts = {"alone": text[same : same + 40], "drafted": other_text[same : same + 40]}
                found.append({"prompt": index, "turn": turn, "characters": same, **parts})
                break
    return found


def _refuse_lossy(reports: list[dict[str, Any]]) -> None:
    lossy = [one for one in reports if one["divergences"]]
    if lossy:
        first = lossy[0]["divergences"][0]
        turn = f", turn {first['turn']}" if first["turn"] else ""
        raise EvaluationError(
            f"greedy answers to {sum(len(one['divergences']) for one in lossy)} prompts change when the draft is used",
            why=f"the first is prompt {first['prompt']}{turn} of set {lossy[0]['set']}, after {first['characters']} "
            f"equal characters: alone {first['alone']!r}, with the draft {first['drafted']!r}",
            fix="start both servers with the same target, dtype and batch settings",
        )


def _draft_tokens(asked: Asked) -> int:
    """Tokens that the server drafts a step: it does not say, but counts by position."""
    return len(asked.round.counters.get("accepted_per_position", ()))


def _rate(asked: Asked) -> float:
    return round(asked.tokens / asked.round.seconds, 1)


def _sets(named: list[str] | None, limit: int | None) -> list[PromptSet]:
    """The sets of the command line, or the shipped one.

    Raises:
        ProblemsError: of `UsageError`s, one a set that is not written as NAME=FORM:FILE.
    """
    if not named:
        path = checkout.root() / SHIPPED.path
        return [SHIPPED.model_copy(update={"path": str(path), "limit": limit})]
    found: list[PromptSet] = []
    problems = []
    for text in named:
        match = _SET.fullmatch(text)
        if match is None or match["form"] not in get_args(PromptForm):
            forms = ", ".join(get_args(PromptForm))
            problems.append(UsageError(f"--set {text}: not NAME=FORM:FILE", fix=f"FORM is one of {forms}"))
        elif match["name"] in {one.name for one in found}:
            problems.append(UsageError(f"--set {text}: another set has this name", fix="name it otherwise"))
        else:
            found.append(PromptSet.model_validate({**match.groupdict(), "limit": limit}))
    if problems:
        raise ProblemsError(problems)
    return found
