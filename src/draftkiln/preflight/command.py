"""`draftkiln preflight`: all that can be known before weights load, as a table or as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln.errors import DraftkilnError, ExitCode, ProblemsError
from draftkiln.preflight.finding import Finding, failed, unknown

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from draftkiln.preflight.host import Host
    from draftkiln.recipe.model import Recipe
    from draftkiln.target.facts import TargetFacts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `draftkiln preflight`."""
    parser.add_argument("--recipe", type=Path, required=True, metavar="FILE", help="what is to be run")
    parser.add_argument("--stack", help="the stack that extracts (default: the recipe's)")
    parser.add_argument(
        "--target", type=Path, metavar="DIR", help="where the target lies (default: where the recipe puts it)"
    )
    parser.add_argument("--run", type=Path, default=Path(), metavar="DIR", help="run directory, for the disk estimate")
    parser.add_argument(
        "--static", action="store_true", help="leave out what needs a stack's environment: seams and probe"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """Make all checks, show all findings; `ExitCode.PREFLIGHT` when one failed."""
    from draftkiln.preflight import host
    from draftkiln.recipe.load import load

    start = time.monotonic()
    try:
        recipe = load(arguments.recipe)
    except DraftkilnError as error:
        if arguments.json:  # a program that reads the findings gets them whatever is wrong; the error follows on stderr
            print(json.dumps({"recipe": None, "findings": as_json(_of_recipe(error))}, indent=2))
        raise
    stack = arguments.stack or recipe.stacks.extract
    facts, problems = _facts(recipe, arguments.target)
    findings = problems + static_checks(recipe, stack, facts, host.read(arguments.run))
    static_seconds = time.monotonic() - start
    if not arguments.static:
        findings += engine_findings(stack, recipe.stacks.evaluate, facts)
    seconds = {"static": round(static_seconds, 2), "all": round(time.monotonic() - start, 2)}
    if arguments.json:
        print(
            json.dumps(
                {"recipe": recipe.name, "stack": stack, "seconds": seconds, "findings": as_json(findings)}, indent=2
            )
        )
    else:
        show(findings, f"{recipe.name} on {stack}", seconds)
    return ExitCode.PREFLIGHT if any(item.status == "fail" for item in findings) else ExitCode.OK


def _of_recipe(error: DraftkilnError) -> list[Finding]:
    problems = error.problems if isinstance(error, ProblemsError) else (error,)
    return [
        failed("recipe", f"{one.what}: {one.why}" if one.why else one.what, one.fix or "mend the recipe")
        for one in problems
        if isinstance(one, DraftkilnError)
    ]


def _facts(recipe: Recipe, target: Path | None) -> tuple[TargetFacts | None, list[Finding]]:
    from draftkiln.recipe.model import HubTarget, PathTarget
    from draftkiln.target import facts, resolve

    folder = target or resolve.location(recipe.target.source)
    if target is None and not folder.exists() and not isinstance(recipe.target.source, PathTarget):
        command = "draftkiln fetch-target" if isinstance(recipe.target.source, HubTarget) else "draftkiln run"
        enough = "config.json and the tokenizer's files in a folder, named with --target, are enough for most checks"
        return None, [unknown("target", f"{folder} is not there yet", f"{command} makes it; until then {enough}")]
    try:
        return facts.read(folder), []
    except DraftkilnError as error:
        return None, [failed("target", error.what, error.fix)]


def static_checks(recipe: Recipe, stack: str, facts: TargetFacts | None, host: Host) -> list[Finding]:
    """What files and the host tell; those that need the target are left out when it is not there."""
    from draftkiln.preflight import driver, host_checks, samples, target_checks, weight_checks
    from draftkiln.stack.model import read

    file = read(stack).file
    found = [
        target_checks.check_generator(file.speculators.version),
        host_checks.check_devices(recipe, file.device, host),
        host_checks.check_shared_memory(recipe, host),
    ]
    if facts is None:
        return [*found, driver.check(host.nvidia_driver, file.cuda, quantized=False)]
    if facts.has_weights and recipe.target.load_format != "dummy":
        found.append(weight_checks.check_shapes(facts))
    return [
        target_checks.check_layers(recipe, facts),
        target_checks.check_lengths(recipe, facts),
        target_checks.check_parallelism(recipe, facts),
        target_checks.check_weights(recipe, facts),
        target_checks.check_tokenizer(recipe, facts),
        host_checks.check_disk(recipe, facts, samples.count(recipe.data), host),
        *found,
        host_checks.check_memory(recipe, facts, file.device, host),
        host_checks.check_kernels(facts, facts.model_type, file.device, host),
        driver.check(host.nvidia_driver, file.cuda, quantized=facts.quantization is not None),
    ]


def engine_findings(extract: str, evaluate: str, facts: TargetFacts | None) -> list[Finding]:
    """What the stacks' environments tell; they are made when they are not there."""
    from draftkiln.preflight import engine_checks
    from draftkiln.stack.environment import ensure

    found: list[Finding] = []
    try:
        environment = ensure(extract)
        found += engine_checks.check_seams(environment, facts)
        found += engine_checks.check_probe(environment)
    except DraftkilnError as error:
        found.append(failed("stack", error.what, error.fix))
    if facts is not None:
        try:
            found += engine_checks.check_serving(ensure(evaluate).python, evaluate, facts)
        except DraftkilnError as error:
            found.append(failed("stack", error.what, error.fix))
    return found


def as_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The findings as JSON objects."""
    return [item.as_json() for item in findings]


def show(findings: Sequence[Finding], title: str, seconds: dict[str, float]) -> None:
    """Print the findings as a table, the worst last, and what to do below it."""
    from rich.console import Console
    from rich.table import Table

    colours = {"pass": "green", "warn": "yellow", "fail": "red", "unknown": "cyan"}
    order = ("pass", "unknown", "warn", "fail")
    table = Table(title=f"preflight of {title}", title_justify="left")
    for column in ("check", "status", "reason"):
        table.add_column(column, overflow="fold")
    for item in sorted(findings, key=lambda each: order.index(each.status)):
        table.add_row(item.check, f"[{colours[item.status]}]{item.status}[/]", _plain(item.reason))
    console = Console()
    console.print(table)
    for item in findings:
        if item.fix:
            console.print(f"{item.check} ({item.status}): {item.fix}", markup=False, soft_wrap=True)
    counts = ", ".join(f"{sum(item.status == status for item in findings)} {status}" for status in order)
    console.print(f"{counts}; static part {seconds['static']:.1f} s, all {seconds['all']:.1f} s", markup=False)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
