"""One draft measured beside its target: engines are started, answer, and end; the results are written."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from draftkiln import arithmetic, durable
from draftkiln.errors import RunDirectoryError
from draftkiln.evaluate import draft as drafts
from draftkiln.evaluate import engines, prompts, results
from draftkiln.evaluate.job import GREEDY, Job, Sampling

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from draftkiln.evaluate.prompts import PromptFile
    from draftkiln.recipe.model import Recipe
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

RESULT = "result.json"


def evaluate_draft(
    context: Context,
    terminal: Terminal,
    draft: Path,
    folder: Path,
    *,
    trained_on: dict[str, Any] | None = None,
    timeout: float | None = None,
) -> dict[str, Any]:
    """Answer all prompt sets with and without `draft`; write `folder/result.json` and give its numbers.

    The numbers at the top level are those of the first round: the held-out prompts, greedy.

    Args:
        context: of the stage.
        terminal: of the stage.
        draft: folder of the draft in a layout that vLLM loads.
        folder: for the results.
        trained_on: what the draft was trained on, where that is known.
        timeout: longest time for an engine in seconds.

    Raises:
        EngineError: an engine did not start, died, or took too long.
        EvaluationError: there are no prompts, nothing was drafted, or the draft changed the output.
    """
    recipe, asked = context.recipe, context.recipe.evaluate
    drafts.check(draft, context.facts)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULT).unlink(missing_ok=True)  # of an earlier measurement: it says nothing of this one
    for remark in drafts.remarks(draft, context.facts, getattr(recipe.target.source, "hub", None)):
        terminal.line(f"evaluate: {draft}: {remark}")
    ids, serving = drafts.layer_ids(draft, context.facts), drafts.served(draft, context.facts, folder / "draft")
    if serving != draft:
        terminal.line(
            f"evaluate: {draft} is in SGLang's layout; its layers, {ids} as vLLM counts, are named so in {serving}"
        )
    files = _prompt_files(recipe, context.run.path, terminal)
    tokenizer = functools.cache(lambda: _tokenizer(context))  # seconds, and prompts of `prepare` do without it
    arguments = dict(recipe.target.template_arguments)
    sets = {file.name: prompts.questions(file.prompts, tokenizer, arguments) for file in files}
    job = Job(
        target=str(context.target),
        draft=str(serving.absolute()),
        num_draft_tokens=asked.num_draft_tokens,
        sets=list(sets.items()),
        samplings=[GREEDY, *(Sampling(one.temperature, one.top_p, one.seed) for one in asked.sampled)],
        max_tokens=asked.max_tokens,
        ignore_eos=asked.ignore_eos,
        dtype=arithmetic.engine_dtype(recipe.target.dtype, context.device),
        device=context.device,
        tensor_parallel_size=recipe.target.tensor_parallel_size,
        trust_remote_code=recipe.target.trust_remote_code,
        load_format=recipe.target.load_format,
        template_arguments=arguments,
        positions=context.facts.max_positions,
        gpu_memory_utilization=recipe.extract.gpu_memory_utilization,
    )
    _refuse_unfit(job, context)
    environment = durable.sha256_json([context.stack, context.inputs.get("requirements")])
    kept = context.run.folder("evaluate")
    alone, drafted = engines.both(job, kept, folder, terminal, environment=environment, timeout=timeout)
    rounds = [
        results.Measured.of(one, other, asked.num_draft_tokens)
        for one, other in zip(drafted.rounds, alone.rounds, strict=True)
    ]
    of_file = {file.name: file.file_sha256 for file in files}
    reports = [one.as_report(prompts.sha256(sets[one.drafted.set]), of_file[one.drafted.set]) for one in rounds]
    figures = rounds[0].as_results() | {"engine_start_seconds": round(drafted.start_seconds, 1)}
    provenance = {
        "draft_sha256": durable.sha256_file(draft / drafts.WEIGHTS),
        "draft_config_sha256": durable.sha256_file(draft / drafts.CONFIG),
        "draft_layer_ids": ids,
        "prompts_sha256": reports[0]["prompts_sha256"],
        "target_config_sha256": durable.sha256_file(context.target / "config.json"),
        "stack": context.stack,
        "requirements_sha256": context.inputs.get("requirements"),
        "vllm": drafted.vllm,
        "dtype": job.dtype,
        "sampling": {"temperature": 0.0, "max_tokens": asked.max_tokens, "ignore_eos": asked.ignore_eos},
        "trained_on": trained_on,
    }
    report = {"schema_version": results.SCHEMA_VERSION, **figures, **provenance}
    report |= {"divergences": reports[0]["divergences"], "sets": reports}
    durable.write_json(folder / RESULT, report)
    for one in reports:
        terminal.line(f"evaluate: {results.lines(one)}")
    if trained_on is not None:
        terminal.line(f"evaluate: {results.expectation(trained_on)}")
    results.refuse_lossy(rounds, str(folder / RESULT), _decoder(tokenizer))
    return figures | {"sets": [{key: one[key] for key in one if key != "divergences"} for one in reports]}


def _prompt_files(recipe: Recipe, run: Path, terminal: Terminal) -> list[PromptFile]:
    asked = recipe.evaluate
    held_out = prompts.held_out(run, asked.prompts)
    if len(held_out.prompts) < asked.prompts:
        there = len(held_out.prompts)
        terminal.line(f"evaluate: {there} held-out prompts are there, evaluate.prompts asks for {asked.prompts}")
    return [held_out, *(prompts.from_file(one) for one in asked.sets)]


def _refuse_unfit(job: Job, context: Context) -> None:
    longest = (job.positions or job.max_model_len) - job.beyond
    for name, asked in job.sets:
        prompts.refuse_unfit(name, asked, vocab_size=context.facts.vocab_size, longest=longest, answer=job.max_tokens)


def _tokenizer(context: Context) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(context.target), trust_remote_code=context.recipe.target.trust_remote_code)


def _decoder(tokenizer: Callable[[], Any]) -> Callable[[int], str]:
    return lambda token: str(tokenizer().decode([token]))


def trained_on(context: Context) -> dict[str, Any] | None:
    """Samples and tokens of the run's own draft, and whose answers they hold."""
    with contextlib.suppress(RunDirectoryError, KeyError):
        made = context.run.require("extract")["results"]
        data = context.recipe.data
        if "synthetic" in data.source.model_fields_set:
            answers = "of random words"
        else:
            answers = "by the target itself" if data.answers is not None else "of the data"
        on_policy = data.answers is not None
        return {"samples": made["samples"], "tokens": made["tokens"], "answers": answers, "on_policy": on_policy}
    return None
