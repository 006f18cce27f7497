"""`draftkiln validate`: check every sample, and some against independent computations."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from draftkiln import arithmetic, durable, rundir, stage
from draftkiln.errors import ExitCode, ProblemsError, RunDirectoryError, UsageError, ValidationError
from draftkiln.extract import manifest, samples
from draftkiln.validate import headers, numerics

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable
    from pathlib import Path

    from draftkiln.extract.manifest import Manifest
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal
    from draftkiln.validate.numerics import Comparison
    from draftkiln.validate.reference import Agreement

_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments every stage takes, and the header pass alone."""
    stage.add_arguments(parser)
    parser.add_argument(
        "--headers-only",
        action="store_true",
        help="look at headers, ids, sizes and checksums alone, on any host, also while extracting; records nothing",
    )
    parser.add_argument("--skip-checksums", action="store_true", help="with --headers-only: do not read whole files")
    parser.add_argument(
        "--against",
        choices=("transformers", "vllm"),
        help="compare some samples with this reference alone, whatever the recipe says; records no stage",
    )
    parser.add_argument(
        "--stack",
        metavar="NAME",
        help="with --against: stack of the reference; default: for vllm the extraction's, else the one of `validate`",
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the stage, or the header pass alone."""
    if arguments.headers_only:
        return _headers_only(arguments)
    if arguments.against is not None:
        return _against_alone(arguments)
    if arguments.stack is not None:
        raise UsageError("--stack goes with --against", fix="the stage itself runs on the recipe's stacks.validate")
    if arguments.skip_checksums:
        raise UsageError("--skip-checksums goes with --headers-only", fix="the stage itself reads every file whole")
    return stage.run("validate", arguments, _validate, error=ValidationError)


def _headers_only(arguments: argparse.Namespace) -> int:
    """Check what is extracted so far; neither a stack nor torch is needed."""
    from draftkiln.recipe.load import load

    recipe, run = load(arguments.recipe), arguments.run
    found = manifest.read(run / "extract" / manifest.FILE, mend=False)
    head = found.head
    problems = []
    if tuple(recipe.layers.aux) != head.layer_ids[:-1]:
        problems.append(
            ValidationError(f"manifest: slots are layers {list(head.layer_ids)}, layers.aux is {recipe.layers.aux}")
        )
    if (run / "prepare" / "stage.json").exists():
        prepared = rundir.read_record(run / "prepare" / "stage.json")["results"].get("samples")
        if prepared != head.samples:
            problems.append(ValidationError(f"manifest: {head.samples} samples, prepare made {prepared}"))
    looked = headers.Pass(run / "extract" / samples.FOLDER, found, checksums=not arguments.skip_checksums)
    problems += looked.problems()
    _stop(problems)
    rows = sum(receipt.rows for receipt in found.receipts.values())
    size = sum(receipt.bytes for receipt in found.receipts.values())
    checked = "headers, ids and sizes" if arguments.skip_checksums else "headers, ids, sizes and checksums"
    print(f"validate: {checked} of {len(found.receipts)} samples are good: {rows} tokens, {size / 1e9:.2f} GB")
    return ExitCode.OK


def _against_alone(arguments: argparse.Namespace) -> int:
    """Compare some samples with a reference and keep the figures beside the stage's own."""
    from draftkiln import stagelog
    from draftkiln.recipe.load import load
    from draftkiln.stack import environment
    from draftkiln.stack.model import read

    recipe, name = load(arguments.recipe), arguments.against
    if recipe.target.load_format == "dummy":
        raise UsageError(
            f"--against {name}: the weights were made up",
            why="target.load_format is dummy, and a reference has other weights",
            fix="validate without --against, or load the weights",
        )
    stacks = recipe.stacks
    stack = arguments.stack or (stacks.extract if name == "vllm" else stacks.of("validate"))
    environment.enter(stack, sys.argv[1:])
    context = replace(stage.context("validate", arguments, enter=False), stack=stack, device=read(stack).file.device)
    with stagelog.stage_log(context.run.log("validate"), ValidationError) as terminal:
        agreements, problems = _compare(name, _comparison(context, terminal), context)
        report = {"stack": stack, "agreements": [asdict(agreement) for agreement in agreements]}
        durable.write_json(context.run.folder("validate") / f"against-{name}.json", report)
        _stop(problems)
        terminal.line(_agreed(name, agreements))
    return ExitCode.OK


def _comparison(context: Context, terminal: Terminal) -> Comparison:
    import datasets

    folder = context.run.path / "extract"
    rows = datasets.load_from_disk(str(context.run.path / "prepare" / "dataset")).with_format(None)
    found = manifest.read(folder / manifest.FILE)
    settings = context.recipe.validate_
    return numerics.Comparison(context.target, settings, found, folder / samples.FOLDER, rows, terminal)


def _compare(name: str, comparison: Comparison, context: Context) -> tuple[list[Agreement], list[ValidationError]]:
    if name == "transformers":
        return comparison.with_transformers()
    from draftkiln.extract.engine import Settings

    longest = max(comparison.found.receipts[index].rows for index in comparison.chosen())
    dtype = arithmetic.engine_dtype(context.recipe.target.dtype, context.device)
    return comparison.with_vllm(Settings(context.target, context.facts, context.recipe, longest, dtype))


def _agreed(name: str, agreements: list[Agreement]) -> str:
    worst = min(agreements, key=lambda agreement: agreement.min_cosine)
    median, nearest = _middle(agreements)
    return (
        f"validate: {len({a.index for a in agreements})} samples agree with {name}: least cosine "
        f"{worst.min_cosine:.5f} (layer {worst.layer}), median {median:.5f} or more, at least {nearest:.1%} of the "
        "rows nearest to their own state"
    )


def _middle(agreements: list[Agreement]) -> tuple[float, float]:
    """The least median cosine and the least share of rows nearest to their own state, of all slots and samples."""
    return min(one.median_cosine for one in agreements), min(one.nearest for one in agreements)


def _validate(context: Context, terminal: Terminal) -> dict[str, Any]:
    import datasets

    from draftkiln.validate import head, profile

    folder = context.run.path / "extract" / samples.FOLDER
    found = manifest.read(context.run.path / "extract" / manifest.FILE)
    if found.head.shard is not None:
        raise RunDirectoryError(
            f"{context.run.path} holds shard {found.head.shard} only",
            fix="make one run of all shards with `draftkiln merge`, or add --headers-only to look at this one",
        )
    rows = datasets.load_from_disk(str(context.run.path / "prepare" / "dataset")).with_format(None)
    count = found.head.samples

    def tell(done: int) -> None:
        terminal.progress(f"validate: headers and checksums of {done}/{count} samples", last=done == count)

    _stop(headers.Pass(folder, found, [int(length) for length in rows["seq_len"]], tell=tell).problems())
    _stop(_value_problems(folder, found, rows, terminal))
    checks = ["count", "order", "token echo", "shape", "type", "checksum", "finite", "not constant", "slots differ"]
    made_up = context.recipe.target.load_format == "dummy"
    answers, problems = ([], iter(())) if made_up else numerics.against_engine(context.target, found, folder)
    if answers:
        same, of = sum(answer.same for answer in answers), sum(answer.rows for answer in answers)
        terminal.line(f"validate: lm_head(norm(last slot)) says what the engine said for {same} of {of} tokens")
        checks.append("engine's own next tokens")
    else:
        why = "the weights were made up" if made_up else head.why_not(context.target)
        why = why or "the extraction did not ask for them: no sample is short enough"
        terminal.line(f"validate: not compared with the engine's own next tokens: {why}")
    _stop(problems)
    agreements: list[Agreement] = []
    settings = context.recipe.validate_
    if settings.against:
        comparison = numerics.Comparison(context.target, settings, found, folder, rows, terminal)
        agreements, wrong = _compare(settings.against, comparison, context)
        _stop(wrong)
        terminal.line(_agreed(settings.against, agreements))
        checks.append(settings.against)
    looked = [folder / samples.name(index) for index in numerics.spread(found.head.indices, profile.SAMPLES)]
    report = {
        "checks": checks,
        "states": profile.measure(looked, found.head.layer_ids).content(),
        "agreements": [asdict(agreement) for agreement in agreements],
        "answers": [asdict(answer) for answer in answers],
    }
    durable.write_json(context.run.folder("validate") / "report.json", report)
    lowest = min((agreement.min_cosine for agreement in agreements), default=None)
    median, nearest = _middle(agreements) if agreements else (None, None)
    return {
        "samples": count,
        "checks": checks,
        "against": settings.against,
        "compared": len({a.index for a in agreements}),
        "min_cosine": lowest,
        "median_cosine": median,
        "nearest": nearest,
    }


def _value_problems(folder: Path, found: Manifest, rows: Any, terminal: Terminal) -> Iterable[ValidationError]:
    from draftkiln.validate import several, values

    count, layer_ids = found.head.samples, found.head.layer_ids

    def look(sample: tuple[int, list[int]]) -> list[str]:
        return values.problems(folder / samples.name(sample[0]), sample[1], layer_ids)

    wanted = ((index, rows[index]["input_ids"]) for index in range(count))
    for index, texts in enumerate(several.in_order(look, wanted)):
        yield from (ValidationError(f"{samples.name(index)}: {text}") for text in texts)
        terminal.progress(f"validate: values of {index + 1}/{count} samples", last=index + 1 == count)


def _stop(problems: Iterable[ValidationError]) -> None:
    """Stop if there is any problem; the first ones are shown, all are counted."""
    shown: list[ValidationError] = []
    more = 0
    for problem in problems:
        if len(shown) < _SHOWN:
            shown.append(problem)
        else:
            more += 1
    if more:
        shown.append(ValidationError(f"… and {more} more problems"))
    if shown:
        raise ProblemsError(shown)
