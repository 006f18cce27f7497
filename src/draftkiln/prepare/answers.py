"""Answers by the target itself: prompts as token ids to its server, token ids back, kept row by row.

Ids go both ways, so nothing is rendered or tokenized a second time: a sample is exactly what the target read and wrote.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from draftkiln import arithmetic, durable
from draftkiln.errors import EngineError
from draftkiln.prepare import server
from draftkiln.prepare.outcome import RefusedRowError, Sample

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    import httpx

    from draftkiln.prepare.conversation import Conversation
    from draftkiln.prepare.outcome import Outcome
    from draftkiln.prepare.samples import Limits
    from draftkiln.recipe.model import Answers
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

FILE = "answers.jsonl"
_SYNC_ROWS = 32
_SYNC_SECONDS = 2.0
_FIRST_PAUSE_S = 0.5
_LONGEST_ANSWER_S = 3600.0


@dataclass(frozen=True)
class Prompt:
    """One request: its number among all prompts, the row it belongs to and its token ids."""

    number: int
    source: str
    ids: list[int]


@dataclass(frozen=True)
class Answer:
    """What the target wrote: ids with the end-of-turn token where it stopped by itself (`finish` = stop)."""

    key: str
    ids: list[int]
    text: str
    finish: str


class Store:
    """Answers on disk, one JSON object a line, appended and synced in groups; a line cut by a crash is dropped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, Answer] = {}
        good = 0
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break
                answer = Answer(**json.loads(line))
                self.answers[answer.key] = answer
                good += len(line)
            os.truncate(path, good)
        self._file = path.open("ab")
        self._waiting = 0
        self._synced = time.monotonic()

    def add(self, answer: Answer) -> None:
        """Append an answer; it is durable after at most 32 answers or 2 s, and always after `close`."""
        self.answers[answer.key] = answer
        with durable.storage_errors(self.path):
            self._file.write(json.dumps(vars(answer), ensure_ascii=False).encode() + b"\n")
            self._waiting += 1
            if self._waiting >= _SYNC_ROWS or time.monotonic() - self._synced > _SYNC_SECONDS:
                self._sync()

    def close(self) -> None:
        """Make everything durable."""
        with durable.storage_errors(self.path):
            self._sync()
            self._file.close()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._waiting, self._synced = 0, time.monotonic()


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
        return durable.sha256_json([prompt.source, prompt.ids, sampling(self.settings)])[:32]

    def missing(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Prompts whose answers are not on disk."""
        return [prompt for prompt in prompts if self.key(prompt) not in self.store.answers]

    async def ask_all(self, prompts: Sequence[Prompt], port: int) -> None:
        """Ask the server at `port`, `concurrency` requests in flight.

        Raises:
            EngineError: the server cannot be reached any more.
        """
        import httpx

        self.total = len(prompts)
        self._began = time.monotonic()
        waiting = iter(prompts)
        client = httpx.AsyncClient(
            base_url=f"http://{server.HOST}:{port}",
            timeout=_LONGEST_ANSWER_S,
            limits=httpx.Limits(max_connections=None),
        )
        async with client:
            await asyncio.gather(*(self._work(client, waiting) for _ in range(self.settings.concurrency)))

    async def _work(self, client: httpx.AsyncClient, waiting: Iterator[Prompt]) -> None:
        import httpx

        for prompt in waiting:
            body = request(prompt, self.settings, self.limits.max_tokens - len(prompt.ids))
            try:
                choice = await retried(functools.partial(_post, client, body), self.settings.retries)
            except httpx.TransportError as error:
                raise EngineError(
                    "the server of the target cannot be reached any more",
                    why=f"{type(error).__name__}: {error}",
                    fix="see logs/answers-server.log; run the same command again, answers that are written stay",
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
    settings = context.recipe.data.answers
    if settings is None:
        raise ValueError("the recipe asks for no answers")
    job = Job(settings, limits, Store(context.run.folder("prepare") / FILE), terminal)
    wanted = [Prompt(number, conversation.source, ids) for number, (conversation, ids) in enumerate(prompts)]
    seconds = started = 0.0
    try:
        missing = job.missing(wanted)
        if missing:
            terminal.line(f"prepare: {len(missing)} of {len(wanted)} answers to write; the target's server starts")
            began = time.monotonic()
            with server.running(
                context.target,
                context.run.log("answers-server"),
                max_model_len=limits.max_tokens,
                max_num_seqs=settings.concurrency,
                options=_options(context),
            ) as port:
                ready = time.monotonic()
                asyncio.run(job.ask_all(missing, port))
                started, seconds = ready - began, time.monotonic() - ready
    finally:
        job.store.close()
    job.into_samples(wanted, outcome)
    return _facts(job, wanted, started, seconds)


def sampling(settings: Answers) -> dict[str, Any]:
    """The settings that decide what is written, as they are recorded."""
    return settings.model_dump(include={"max_tokens", "temperature", "top_p", "seed"})


def request(prompt: Prompt, settings: Answers, room: int) -> dict[str, Any]:
    """Body of one completion request (token ids in, token ids out), within `room` tokens."""
    return {
        "model": server.MODEL,
        "prompt": prompt.ids,
        "max_tokens": min(settings.max_tokens, room),
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed + prompt.number,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }


async def retried(ask: Callable[[], Awaitable[dict[str, Any]]], retries: int) -> dict[str, Any]:
    """Try `ask` up to `1 + retries` times, with pauses of 0.5 s, 1 s, 2 s… between."""
    for attempt in range(retries):
        try:
            return await ask()
        except Exception:  # noqa: BLE001 - whatever it was, it is tried again
            await asyncio.sleep(_FIRST_PAUSE_S * 2**attempt)
    return await ask()


async def _post(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.post("/v1/completions", json=body)
    if response.is_error:
        raise EngineError(f"the server answered {response.status_code}: {response.text[:300]}")
    choice: dict[str, Any] = response.json()["choices"][0]
    if not choice.get("token_ids"):
        raise EngineError("the server gave no token ids")
    return choice


def _options(context: Context) -> tuple[str, ...]:
    target = context.recipe.target
    dtype = arithmetic.engine_dtype(target.dtype, context.device)
    options = ["--dtype", dtype, "--load-format", target.load_format]
    options += ["--tensor-parallel-size", str(target.tensor_parallel_size)]
    if target.trust_remote_code:
        options.append("--trust-remote-code")
    if context.device == "cpu":
        options.append("--enforce-eager")  # compiling for a CPU takes longer than it saves
    return tuple(options)


def _facts(job: Job, wanted: Sequence[Prompt], started: float, seconds: float) -> dict[str, Any]:
    finishes = [job.store.answers[job.key(prompt)].finish for prompt in wanted if job.key(prompt) in job.store.answers]
    return {
        "sampling": sampling(job.settings),
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
