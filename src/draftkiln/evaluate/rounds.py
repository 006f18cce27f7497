"""One set of prompts asked of an engine, drawn in one way: turn by turn, with what the engine counts meanwhile."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from draftkiln.evaluate.job import Round
from draftkiln.evaluate.prompts import said, with_answers, written_out

if TYPE_CHECKING:
    from draftkiln.evaluate.job import Job, Question, Sampling

_COUNTERS = {
    "vllm:spec_decode_num_drafts": "drafts",
    "vllm:spec_decode_num_draft_tokens": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "accepted_per_position",
}


def ask(engine: Any, job: Job, place: int, sampling: Sampling) -> Round:
    """Have `engine` answer a set; what comes next in a conversation is asked after its own answers.

    Args:
        engine: a `vllm.LLM`.
        job: what it answers.
        place: of the set in the job.
        sampling: how answers are drawn.

    Raises:
        ValueError: a further turn does not fit behind the answers before it.
    """
    name, questions = job.sets[place]
    outputs: list[list[list[int]]] = [[] for _ in questions]
    texts: list[list[str]] = [[] for _ in questions]
    before = _counters(engine) if job.draft else {}
    seconds = 0.0
    asked = {number: question.ids for number, question in enumerate(questions)}
    while asked:
        prompts: Any = [{"prompt_token_ids": ids} for ids in asked.values()]
        parameters = [_parameters(job, sampling, number) for number in asked]
        began = time.monotonic()
        made = engine.generate(prompts, parameters, use_tqdm=False)
        seconds += time.monotonic() - began
        answers = {number: one.outputs[0] for number, one in zip(asked, made, strict=True)}
        for number, answer in answers.items():
            outputs[number].append(list(answer.token_ids))
        left = [number for number in asked if len(outputs[number]) <= len(questions[number].then)]
        for number in left:
            texts[number].append(said(outputs[number][-1], answers[number].text, _tokenizer(job)))
        asked = {number: _next_turn(job, name, number, questions[number], texts[number]) for number in left}
    counters = _difference(_counters(engine), before) if job.draft else {}
    return Round(name, sampling, outputs, seconds, counters)


def _parameters(job: Job, sampling: Sampling, number: int) -> Any:
    from vllm import SamplingParams

    wanted = {"max_tokens": job.max_tokens, "ignore_eos": job.ignore_eos, "temperature": sampling.temperature}
    if sampling.temperature:
        wanted |= {"top_p": sampling.top_p, "seed": sampling.seed + number}
    return SamplingParams(**wanted)


def _next_turn(job: Job, name: str, number: int, question: Question, texts: list[str]) -> list[int]:
    ids = written_out(with_answers(question.messages, texts, question.then), _tokenizer(job), job.template_arguments)
    room = job.max_model_len - job.beyond
    if len(ids) > room:
        raise ValueError(
            f"set {name}, prompt {number}, turn {len(texts)}: {len(ids)} tokens with the answers before it, at most "
            f"{room} fit; lower evaluate.max_tokens, or leave the prompt out"
        )
    return ids


@functools.cache
def _tokenizer_at(folder: str, trust_remote_code: bool) -> Any:  # noqa: FBT001 - a cache's key
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)


def _tokenizer(job: Job) -> Any:
    return _tokenizer_at(job.target, job.trust_remote_code)


def _counters(engine: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for metric in engine.get_metrics():
        if metric.name in _COUNTERS:
            found[_COUNTERS[metric.name]] = list(metric.values) if hasattr(metric, "values") else metric.value
    return found


def _difference(after: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [new - old for new, old in zip(value, before[name], strict=True)]
        if isinstance(value, list)
        else value - before[name]
        for name, value in after.items()
    }
