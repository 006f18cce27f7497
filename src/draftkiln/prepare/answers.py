"""Answers by the target itself: prompts as token ids to its server, token ids back, kept row by row.

Ids go both ways, so nothing is rendered or tokenized a second time: a sample is exactly what the target read and wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from draftkiln import arithmetic, durable, one_process
from draftkiln.errors import EngineError
from draftkiln.prepare import completions, server
from draftkiln.prepare.answerstore import Answer, Prompt, Store
from draftkiln.prepare.completions import Endpoint
from draftkiln.prepare.outcome import RefusedRowError, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import httpx

    from draftkiln.prepare.conversation import Conversation
    from draftkiln.prepare.outcome import Outcome
    from draftkiln.prepare.samples import Limits
    from draftkiln.recipe.model import Answers
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

FILE = "answers.jsonl"
_LONGEST_ANSWER_S = 3600.0


@dataclass
class Job:
    """Answers being written: the settings, where they go, and what came of them so far."""

    settings: Answers
    limits: Limits
    store: Store
    terminal: Terminal
    total: int = 0
    done: int = 0
    tokens: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """Rows whose every try failed, with the last reason."""

    def key(self, prompt: Prompt) -> str:
        """Identity of an answer: the row, its ids and the sampling settings."""
        return durable.sha256_json([prompt.source, prompt.ids, completions.sampling(self.settings)])[:32]

    def missing(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Prompts whose answers are not on disk."""
        return [prompt for prompt in prompts if self.key(prompt) not in self.store.answers]

    async def ask_all(self, prompts: Sequence[Prompt], endpoint: Endpoint) -> None:
        """Ask a server, `concurrency` requests in flight.

        Raises:
            EngineError: the server cannot be reached any more.
        """
        import httpx

        self.total = len(prompts)
        self._began = time.monotonic()
        waiting = iter(prompts)
        client = httpx.AsyncClient(
            base_url=endpoint.url,
            headers={"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {},
            timeout=_LONGEST_ANSWER_S,
            limits=httpx.Limits(max_connections=None),
        )
        async with client:
            await asyncio.gather(*(self._work(client, endpoint, waiting) for _ in range(self.settings.concurrency)))

    async def _work(self, client: httpx.AsyncClient, endpoint: Endpoint, waiting: Iterator[Prompt]) -> None:
        import httpx

        for prompt in waiting:
            room = self.limits.max_tokens - len(prompt.ids)
            body = completions.request(prompt, self.settings, room) | {"model": endpoint.model}
            try:
                choice = await completions.retried(
                    functools.partial(completions.post, client, body), self.settings.retries
                )
            except httpx.TransportError as error:
                raise EngineError(
                    "the server of the target cannot be reached any more",
                    why=f"{type(error).__name__}: {error}",
                    fix=f"{endpoint.see}; run the same command again, answers that are written stay",
                ) from error
            except EngineError as error:
                self.failed[prompt.source] = error.what
            else:
                answer = Answer(self.key(prompt), choice["token_ids"], choice["text"], choice["finish_reason"])
                self.store.add(answer)
                self.tokens += len(answer.ids)
            self.done += 1
            rate = self.tokens / (time.monotonic() - self._began)
            self.terminal.progress(
                f"prepare: {self.done}/{self.total} answers, {rate:.0f} tok/s, {len(self.failed)} failed",
                last=self.done == self.total,
            )

    def into_samples(self, prompts: Sequence[Prompt], outcome: Outcome) -> None:
        """Join prompts and answers into samples whose answers are trained."""
        for prompt in prompts:
            answer = self.store.answers.get(self.key(prompt))
            if answer is None:
                outcome.refuse(prompt.source, RefusedRowError("no answer written", self.failed.get(prompt.source, "")))
                continue
            mask = [0] * len(prompt.ids) + [1] * len(answer.ids)
            try:
                outcome.add(self.limits.apply(Sample(prompt.source, prompt.ids + answer.ids, mask)))
            except RefusedRowError as error:
                outcome.refuse(prompt.source, error)
                continue
            outcome.counts["answers cut at their limit"] += answer.finish == "length"


def write(
    context: Context,
    terminal: Terminal,
    prompts: Sequence[tuple[Conversation, list[int]]],
    limits: Limits,
    outcome: Outcome,
) -> dict[str, Any]:
    """Have the target answer `prompts` and add the samples to `outcome`; answers on disk are not asked for again.

    Returns:
        Facts for the report: sampling settings, tokens, seconds, tokens per second, how answers ended.
    """
    wanted = [Prompt(number, conversation.source, ids) for number, (conversation, ids) in enumerate(prompts)]
    job, facts = answer_all(context, terminal, wanted, limits, context.run.folder("prepare") / FILE)
    job.into_samples(wanted, outcome)
    return facts


def answer_all(
    context: Context,
    terminal: Terminal,
    wanted: Sequence[Prompt],
    limits: Limits,
    file: Path,
    endpoint: Endpoint | None = None,
) -> tuple[Job, dict[str, Any]]:
    """Have answers written to `file` until it holds all that can be had.

    Args:
        context: of the run, with `data.answers` in its recipe.
        terminal: for progress.
        wanted: prompts.
        limits: longest sequence.
        file: of the store.
        endpoint: server to ask; without one the stack's own is started for the target.
    """
    settings = context.recipe.data.answers
    if settings is None:
        raise ValueError("the recipe asks for no answers")
    job = Job(settings, limits, Store(file), terminal)
    seconds = started = 0.0
    try:
        missing = job.missing(wanted)
        if missing:
            where = f"asked at {endpoint.url}" if endpoint else "the target's server starts"
            terminal.line(f"prepare: {len(missing)} of {len(wanted)} answers to write; {where}")
            began = time.monotonic()
            with contextlib.nullcontext(endpoint) if endpoint else _own_server(context, limits, settings) as ready:
                up = time.monotonic()
                asyncio.run(job.ask_all(missing, ready))
                started, seconds = up - began, time.monotonic() - up
    finally:
        job.store.close()
    return job, _facts(job, wanted, started, seconds)


@contextlib.contextmanager
def _own_server(context: Context, limits: Limits, settings: Answers) -> Iterator[Endpoint]:
    with server.running(
        context.target,
        context.run.log("answers-server"),
        max_model_len=limits.max_tokens,
        max_num_seqs=settings.concurrency,
        options=_options(context),
        variables=one_process.variables() if _in_one_process(context) else {},
    ) as port:
        yield Endpoint.of_port(port)


def _in_one_process(context: Context) -> bool:
    return one_process.possible(context.device, context.recipe.target.tensor_parallel_size)


def _options(context: Context) -> tuple[str, ...]:
    target = context.recipe.target
    dtype = arithmetic.engine_dtype(target.dtype, context.device)
    options = ["--dtype", dtype, "--load-format", target.load_format]
    options += ["--tensor-parallel-size", str(target.tensor_parallel_size)]
    if target.trust_remote_code:
        options.append("--trust-remote-code")
    if context.device == "cpu":
        options.append("--enforce-eager")  # compiling for a CPU takes longer than it saves
    if _in_one_process(context):
        options += ["--distributed-executor-backend", one_process.EXECUTOR]
    return tuple(options)


def _facts(job: Job, wanted: Sequence[Prompt], started: float, seconds: float) -> dict[str, Any]:
    finishes = [job.store.answers[job.key(prompt)].finish for prompt in wanted if job.key(prompt) in job.store.answers]
    return {
        "sampling": completions.sampling(job.settings),
        "written": len(finishes),
        "failed": len(job.failed),
        "stopped_by_themselves": finishes.count("stop"),
        "cut_at_their_limit": finishes.count("length"),
        "asked_now": job.done,
        "generated_tokens_now": job.tokens,
        "seconds_now": round(seconds, 1),
        "server_start_seconds": round(started, 1),
        "tokens_per_second": round(job.tokens / seconds, 1) if seconds else None,
    }
