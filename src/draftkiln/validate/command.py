"""`draftkiln validate`: check every sample, and some against an independent computation."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from draftkiln import durable, stage
from draftkiln.errors import ProblemsError, ValidationError
from draftkiln.extract import manifest, samples
from draftkiln.validate import headers, values

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from draftkiln.extract.manifest import Manifest
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal
    from draftkiln.validate.reference import Agreement

_SHOWN = 20
_MIN_ARGMAX = 0.98


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments every stage takes."""
    stage.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run the stage."""
    return stage.run("validate", arguments, _validate, error=ValidationError)


def _validate(context: Context, terminal: Terminal) -> dict[str, Any]:
    import datasets

    folder = context.run.path / "extract" / samples.FOLDER
    found = manifest.read(context.run.path / "extract" / manifest.FILE)
    rows = datasets.load_from_disk(str(context.run.path / "prepare" / "dataset")).with_format(None)
    problems = list(headers.problems(folder, found, [int(length) for length in rows["seq_len"]]))
    terminal.line(f"validate: {found.head.samples} headers and checksums, {len(problems)} problems")
    _stop(problems)
    for index in range(found.head.samples):
        texts = values.problems(folder / samples.name(index), rows[index]["input_ids"], found.head.layer_ids)
        problems.extend(ValidationError(f"{samples.name(index)}: {text}") for text in texts)
        terminal.progress(
            f"validate: values of {index + 1}/{found.head.samples} samples", last=index + 1 == found.head.samples
        )
    _stop(problems)
    checks = ["count", "order", "token echo", "shape", "type", "checksum", "finite", "not constant", "slots differ"]
    agreements: list[Agreement] = []
    if context.recipe.validate_.against:
        agreements = _against_transformers(context, terminal, found, folder, rows)
        checks.append("transformers")
    report = {"checks": checks, "agreements": [asdict(agreement) for agreement in agreements]}
    durable.write_json(context.run.folder("validate") / "report.json", report)
    lowest = min((agreement.min_cosine for agreement in agreements), default=None)
    return {
        "samples": found.head.samples,
        "checks": checks,
        "compared": len({a.index for a in agreements}),
        "min_cosine": lowest,
    }


def _against_transformers(
    context: Context, terminal: Terminal, found: Manifest, folder: Path, rows: Any
) -> list[Agreement]:
    import safetensors.torch

    from draftkiln.target.reference import reference_text_model
    from draftkiln.validate import reference

    settings = context.recipe.validate_
    model = reference_text_model(context.target)
    count = min(settings.samples, found.head.samples)
    # Spread over the whole run: a fault that begins with a later batch must be met too.
    chosen = [round(k * (found.head.samples - 1) / max(count - 1, 1)) for k in range(count)]
    agreements = []
    for number, index in enumerate(dict.fromkeys(chosen), start=1):
        states = safetensors.torch.load_file(folder / samples.name(index))["hidden_states"]
        agreements += reference.compare(model, index, rows[index]["input_ids"], states, found.head.layer_ids)
        lowest = min(agreement.min_cosine for agreement in agreements)
        terminal.progress(
            f"validate: {number}/{count} samples against transformers, least cosine {lowest:.5f}", last=number == count
        )
    _stop(
        [problem for agreement in agreements if (problem := _disagreement(agreement, settings.min_cosine)) is not None]
    )
    return agreements


def _disagreement(agreement: Agreement, least: float) -> ValidationError | None:
    if agreement.min_cosine < least:
        return ValidationError(
            f"{samples.name(agreement.index)}: layer {agreement.layer}, row {agreement.row}: "
            f"cosine {agreement.min_cosine:.5f} to transformers, at least {least} wanted",
            why="rows of another sample, another layer, or an engine that computes something else",
            fix="run `draftkiln preflight` on the extraction stack; do not train on these states",
        )
    if agreement.argmax is not None and agreement.argmax < _MIN_ARGMAX:
        return ValidationError(
            f"{samples.name(agreement.index)}: lm_head(norm(last slot)) gives the reference's next token for "
            f"{agreement.argmax:.1%} of the tokens, at least {_MIN_ARGMAX:.0%} wanted",
            why="the last slot is not the state before the final norm",
        )
    return None


def _stop(problems: list[ValidationError]) -> None:
    if len(problems) > _SHOWN:
        problems = [*problems[:_SHOWN], ValidationError(f"… and {len(problems) - _SHOWN} more problems")]
    if problems:
        raise ProblemsError(problems)
