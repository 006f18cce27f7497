"""`draftkiln evaluate`: serve target and draft in the real vLLM and measure what is accepted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import arithmetic, durable, stage, stagelog
from draftkiln.cause import last_error
from draftkiln.errors import EngineError, EvaluationError, ExitCode
from draftkiln.evaluate import measure, prompts
from draftkiln.evaluate.serve import Answers, Job

if TYPE_CHECKING:
    import argparse

    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

_WEIGHTS = "model.safetensors"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments every stage takes, and the draft to measure."""
    stage.add_arguments(parser)
    parser.add_argument(
        "--draft",
        type=Path,
        metavar="DIR",
        help="measure this draft instead of the run's own; its numbers are printed and kept beside the run's",
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the stage, or measure another draft on the same prompts."""
    if arguments.draft is None:
        return stage.run("evaluate", arguments, _evaluate, error=EngineError)
    context = stage.context("evaluate", arguments)
    draft = arguments.draft.absolute()
    absent = [name for name in ("config.json", _WEIGHTS) if not (draft / name).is_file()]
    if absent:
        raise EvaluationError(
            f"{arguments.draft} is no draft", why=f"it has no {' and no '.join(absent)}", fix="name an export folder"
        )
    with stagelog.stage_log(context.run.log("evaluate"), EngineError) as terminal:
        folder = context.run.folder("evaluate") / f"other-{durable.sha256_file(draft / _WEIGHTS)[:12]}"
        results = evaluate_draft(context, terminal, draft, folder)
        terminal.line(f"evaluate: {draft}: {json.dumps(results)}")
    return ExitCode.OK


def _evaluate(context: Context, terminal: Terminal) -> dict[str, Any]:
    return evaluate_draft(context, terminal, context.run.path / "export" / "vllm", context.run.folder("evaluate"))


def evaluate_draft(context: Context, terminal: Terminal, draft: Path, folder: Path) -> dict[str, Any]:
    """Answer the held-out prompts with and without `draft`; write `folder/result.json` and give its numbers.

    Raises:
        EngineError: an engine did not start or died.
        EvaluationError: there are no prompts, nothing was drafted, or the draft changed the output.
    """
    recipe = context.recipe
    asked = recipe.evaluate
    rows = prompts.read(context.run.path / "prepare" / prompts.HELD_OUT, asked.prompts)
    if len(rows) < asked.prompts:
        terminal.line(f"evaluate: {len(rows)} held-out prompts are there, evaluate.prompts asks for {asked.prompts}")
    ids = prompts.token_ids(rows, context.target, trust_remote_code=recipe.target.trust_remote_code)
    cpu = context.device == "cpu"
    job = Job(
        target=str(context.target),
        draft=str(draft.absolute()),
        num_draft_tokens=asked.num_draft_tokens,
        prompts=ids,
        max_tokens=asked.max_tokens,
        ignore_eos=asked.ignore_eos,
        dtype=arithmetic.engine_dtype(recipe.target.dtype, context.device),
        tensor_parallel_size=recipe.target.tensor_parallel_size,
        trust_remote_code=recipe.target.trust_remote_code,
        load_format=recipe.target.load_format,
        enforce_eager=cpu,  # compiling for a CPU takes longer than these prompts
    )
    folder.mkdir(parents=True, exist_ok=True)
    alone = _alone(job, context.run.folder("evaluate"), terminal)
    drafted = _serve("with the draft", job, folder / "drafted.json", terminal)
    accepted = measure.acceptance(drafted.counters)
    differ = measure.divergences(alone.outputs, drafted.outputs)
    results = {
        "acceptance_length": round(accepted.length, 4),
        "acceptance_per_position": [round(share, 4) for share in accepted.per_position],
        "drafts": accepted.drafts,
        "accepted": accepted.accepted,
        "num_draft_tokens": asked.num_draft_tokens,
        "prompts": len(ids),
        "tokens": sum(map(len, drafted.outputs)),
        "lossless": not differ,
        "tokens_per_second": _rate(drafted),
        "tokens_per_second_alone": _rate(alone),
        "engine_start_seconds": round(drafted.start_seconds, 1),
    }
    provenance = {
        "draft_sha256": durable.sha256_file(draft / _WEIGHTS),
        "draft_config_sha256": durable.sha256_file(draft / "config.json"),
        "prompts_sha256": prompts.sha256(ids),
        "stack": context.stack,
        "requirements_sha256": context.inputs.get("requirements"),
        "vllm": drafted.vllm,
        "dtype": job.dtype,
        "sampling": {"temperature": 0.0, "max_tokens": asked.max_tokens, "ignore_eos": asked.ignore_eos},
    }
    report = {"schema_version": 1, **results, **provenance, "divergences": [asdict(one) for one in differ]}
    durable.write_json(folder / "result.json", report)
    _refuse_lossy(differ, len(ids), folder)
    return results


def _refuse_lossy(differ: list[measure.Divergence], count: int, folder: Path) -> None:
    if differ:
        first = differ[0]
        raise EvaluationError(
            f"{len(differ)} of {count} greedy answers change when the draft is used",
            why=f"the first is prompt {first.prompt}, after {first.position} equal tokens",
            fix=f"look at {folder / 'result.json'}; a draft must not change what a greedy target answers",
        )


def _rate(answers: Answers) -> float:
    return round(sum(map(len, answers.outputs)) / answers.seconds, 1)


def _alone(job: Job, folder: Path, terminal: Terminal) -> Answers:
    """Answers of the target alone; kept, for they are the same whatever draft is measured."""
    job = replace(job, draft=None)
    file = folder / "alone.json"
    key = durable.sha256_json(asdict(job))
    if file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept.get("job_sha256") == key:
            return Answers(**kept["answers"])
    answers = _serve("alone", job, folder / "target.json", terminal)
    durable.write_json(file, {"job_sha256": key, "answers": asdict(answers)})
    return answers


def _serve(what: str, job: Job, answers: Path, terminal: Terminal) -> Answers:
    terminal.line(f"evaluate: {len(job.prompts)} prompts, the target {what}")
    request = answers.with_name(f"{answers.stem}-job.json")
    durable.write_json(request, asdict(job))
    answers.unlink(missing_ok=True)
    command = [sys.executable, "-m", "draftkiln.evaluate.serve", str(request), str(answers)]
    # A file, not a pipe: a worker that outlives its engine would hold a pipe open, and we would wait for it.
    log = answers.with_suffix(".log")
    with log.open("wb") as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, env=os.environ
        )
    printed = log.read_text(encoding="utf-8", errors="replace")
    sys.stderr.write(printed)
    if done.returncode or not answers.exists():
        raise EngineError(
            f"the engine with the target {what} failed: {last_error(printed)}",
            why=f"its process ended with {_ending(done.returncode)}; its whole output is in this stage's log",
            fix="mend the cause and run the same command again",
        )
    return Answers(**json.loads(answers.read_text(encoding="utf-8")))


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
