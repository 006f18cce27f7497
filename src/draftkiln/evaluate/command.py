"""`draftkiln evaluate`: serve target and draft in the real vLLM and measure what is accepted."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable, stage, stagelog
from draftkiln.errors import EngineError, ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from draftkiln.recipe.model import Recipe
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the stage, and those that measure another draft or a server that runs."""
    parser.add_argument("--recipe", type=Path, metavar="FILE", help="what to run: a YAML file of recipes/")
    parser.add_argument("--run", type=Path, metavar="DIR", help="run directory whose draft is measured")
    parser.add_argument(
        "--draft",
        type=Path,
        metavar="DIR",
        help="measure this draft instead of the run's own, in vLLM's or SGLang's layout; its numbers are printed "
        "and kept beside the run's",
    )
    parser.add_argument(
        "--fail-under", type=_length, metavar="X", help="exit code 14 when a set's acceptance length is below X"
    )
    parser.add_argument(
        "--timeout",
        type=_positive,
        metavar="SECONDS",
        help="longest time for an engine (default: none) or, with --url, for one answer (default: 600)",
    )
    server = parser.add_argument_group("a server that runs (needs no recipe, no run and no stack)")
    server.add_argument("--url", help="address of a vLLM server that drafts, such as http://host:8000")
    server.add_argument("--alone-url", metavar="URL", help="the same target served without a draft, to compare with")
    server.add_argument("--model", help="name under which the server serves (default: its first)")
    server.add_argument(
        "--set",
        dest="sets",
        action="append",
        metavar="NAME=FORM:FILE",
        help="a prompt set, FORM one of messages, mt-bench, gsm8k, humaneval; repeatable (default: the shipped one)",
    )
    server.add_argument("--limit", type=_count, metavar="N", help="at most so many prompts of each set")
    server.add_argument("--max-tokens", type=_count, default=256, metavar="N", help="tokens of an answer (default 256)")
    server.add_argument("--ignore-eos", action="store_true", help="generate on past the end token")
    server.add_argument("--concurrency", type=_count, default=16, metavar="N", help="requests in flight (default 16)")
    server.add_argument("--temperature", type=_positive, help="measure with sampling besides greedy")
    server.add_argument("--seed", type=int, default=0, help="seed of sampling (default 0)")
    server.add_argument("--out", type=Path, metavar="FILE", help="write the results as JSON")


def main(arguments: argparse.Namespace) -> int:
    """Run the stage, measure another draft on the same prompts, or measure a server that runs."""
    if arguments.url is not None:
        from draftkiln.evaluate import url

        return url.measure(arguments)
    if arguments.recipe is None or arguments.run is None:
        raise UsageError("evaluate needs --recipe and --run, or --url", fix="name them; `evaluate --help` tells more")
    if arguments.draft is None:
        body = _stage_body(arguments.timeout)
        code = stage.run("evaluate", arguments, body, error=EngineError, read=read)
        _write_cards(arguments)
        _refuse_below(arguments)
        return code
    context = stage.context("evaluate", arguments)
    draft = arguments.draft.absolute()
    with stagelog.stage_log(context.run.log("evaluate"), EngineError) as terminal:
        from draftkiln.evaluate import draft as drafts
        from draftkiln.evaluate import evaluation, results

        drafts.check(draft, context.facts)
        folder = context.run.folder("evaluate") / f"other-{durable.sha256_file(draft / drafts.WEIGHTS)[:12]}"
        found = evaluation.evaluate_draft(context, terminal, draft, folder, timeout=arguments.timeout)
        terminal.line(f"evaluate: {draft}: all numbers are in {folder / evaluation.RESULT}")
        results.refuse_below(found["sets"], arguments.fail_under)
    return ExitCode.OK


def _stage_body(timeout: float | None) -> Callable[[Context, Terminal], dict[str, Any]]:
    def body(context: Context, terminal: Terminal) -> dict[str, Any]:
        from draftkiln.evaluate import evaluation

        draft, folder = context.run.path / "export" / "vllm", context.run.folder("evaluate")
        trained_on = evaluation.trained_on(context)
        return evaluation.evaluate_draft(context, terminal, draft, folder, trained_on=trained_on, timeout=timeout)

    return body


def _evaluate(context: Context, terminal: Terminal) -> dict[str, Any]:
    return _stage_body(None)(context, terminal)


def read(recipe: Recipe, _target: Path) -> dict[str, Any]:
    """Hashes of the prompt files that the recipe names; `prepare`'s own is in what it recorded."""
    from draftkiln.evaluate import prompts

    return {f"prompts.{one.name}": prompts.from_file(one).file_sha256 for one in recipe.evaluate.sets}


def _write_cards(arguments: argparse.Namespace) -> None:
    """Write the draft's model cards again, now with what was measured."""
    from draftkiln.export import card
    from draftkiln.recipe.load import load
    from draftkiln.target import resolve

    card.write(arguments.run, resolve.location(load(arguments.recipe).target.source))


def _refuse_below(arguments: argparse.Namespace) -> None:
    if arguments.fail_under is None:
        return
    from draftkiln.evaluate import results
    from draftkiln.rundir import RunDirectory

    found = RunDirectory(arguments.run).require("evaluate")["results"]
    results.refuse_below(found.get("sets") or [found], arguments.fail_under)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("it should be a number above 0")
    return value


def _length(text: str) -> float:
    value = float(text)
    if not 1 <= value < float("inf"):
        raise argparse.ArgumentTypeError("an acceptance length is 1 or more (1 = nothing accepted)")
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 0 < value <= 10**6:
        raise argparse.ArgumentTypeError("it should be a number from 1 to 1000000")
    return value
