"""A server that is running: its answers through the OpenAI API, its counters through `/metrics`."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import EngineError, UsageError
from draftkiln.evaluate import prometheus
from draftkiln.evaluate.job import Round, Sampling
from draftkiln.evaluate.prompts import with_answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.evaluate.forms import Prompt

_PAGE_LIMIT_S = 30.0
_COUNTED_LIMIT_S = 10.0
"""A server counts a step after it has sent its answers; so long at most is waited for the counters to follow."""
_POLL_S = 0.2
_LONGEST_TOLD = 300


@dataclass(frozen=True)
class Settings:
    """What every request asks for."""

    max_tokens: int
    ignore_eos: bool
    concurrency: int
    timeout: float
    """Longest wait for one answer in seconds."""


@dataclass(frozen=True)
class Server:
    """A vLLM server by its address."""

    url: str
    key: str | None = None
    """Sent as a bearer token."""

    @classmethod
    def at(cls, url: str, key: str | None = None) -> Server:
        """The server at `url`, with or without `/v1` behind it.

        Raises:
            UsageError: it is no http address.
        """
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url} is no address of a server", fix="write it as http://HOST:PORT")
        return cls(url.rstrip("/").removesuffix("/v1").rstrip("/"), key)

    def model(self) -> str:
        """The first model that it serves."""
        text = self._get("/v1/models", _PAGE_LIMIT_S)
        try:
            return str(json.loads(text)["data"][0]["id"])
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise EngineError(
                f"{self.url}/v1/models names no model",
                why=text[:_LONGEST_TOLD],
                fix="is it a vLLM server? Or --model NAME",
            ) from error

    def counters(self, model: str) -> prometheus.Snapshot:
        """Its counters now."""
        return prometheus.parse(self._get("/metrics", _PAGE_LIMIT_S), model)

    def version(self) -> str:
        """Its vLLM version, `unknown` where it does not tell."""
        try:
            return str(json.loads(self._get("/version", _PAGE_LIMIT_S))["version"])
        except (EngineError, ValueError, KeyError, TypeError):
            return "unknown"

    def answer(self, name: str, prompts: Sequence[Prompt], model: str, sampling: Sampling, asked: Settings) -> Asked:
        """Have it answer a set of prompts, `concurrency` at a time.

        Raises:
            EngineError: it could not be reached, refused a request, or was slower than the timeout.
        """
        before = self.counters(model)
        began = time.monotonic()
        pool = ThreadPoolExecutor(max_workers=asked.concurrency)
        try:
            waiting = [
                pool.submit(self._converse, prompt, _settings(place, model, sampling, asked), asked.timeout)
                for place, prompt in enumerate(prompts)
            ]
            answers: list[list[Answer]] = []
            for place, future in enumerate(waiting):
                try:
                    answers.append(future.result())
                except EngineError as error:
                    raise EngineError(
                        f"set {name}, prompt {place}: {error.what}",
                        why=f"{error.why}; {len(answers)} of {len(prompts)} answers were there, nothing is written",
                        fix=error.fix,
                    ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        seconds = time.monotonic() - began
        tokens = sum(one.tokens for turns in answers for one in turns)
        after = self._counted(model, before.generated + tokens)
        outputs = [[one.ids for one in turns] for turns in answers]
        counters = after.since(before) if after.drafts is not None else {}
        return Asked(
            Round(name, sampling, outputs, seconds, counters),
            [[one.text for one in turns] for turns in answers],
            tokens,
            after.generated - before.generated - tokens,
        )

    def _counted(self, model: str, generated: int) -> prometheus.Snapshot:
        """The counters, once they hold `generated` tokens or stand still."""
        deadline = time.monotonic() + _COUNTED_LIMIT_S
        while (found := self.counters(model)).generated < generated and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return found

    def _converse(self, prompt: Prompt, body: dict[str, Any], timeout: float) -> list[Answer]:
        """Answers to the turns of a prompt; each further one is asked after the server's own answers."""
        if "prompt_token_ids" in prompt:
            return [self._ask("/v1/completions", body | {"prompt": prompt["prompt_token_ids"]}, timeout)]
        messages, then = prompt["messages"], prompt.get("then", [])
        answers: list[Answer] = []
        for _ in range(len(then) + 1):
            so_far = with_answers(messages, [one.text for one in answers], then)
            answers.append(self._ask("/v1/chat/completions", body | {"messages": so_far}, timeout))
        return answers

    def _ask(self, path: str, body: dict[str, Any], timeout: float) -> Answer:
        text = self._request(path, timeout, json.dumps(body).encode())
        try:
            value = json.loads(text)
            choice = value["choices"][0]
            content = choice["message"]["content"] if "message" in choice else choice["text"]
            ids = [int(token) for token in choice.get("token_ids") or ()]
            return Answer(ids, content or "", int(value["usage"]["completion_tokens"]))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise EngineError(
                f"{self.url}{path} answered something else than an answer",
                why=text[:_LONGEST_TOLD],
                fix="is it vLLM's?",
            ) from error

    def _get(self, path: str, timeout: float) -> str:
        return self._request(path, timeout, None)

    def _request(self, path: str, timeout: float, body: bytes | None) -> str:
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(f"{self.url}{path}", data=body, headers=headers)  # noqa: S310 - http by `at`
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:  # noqa: S310 - the same
                return str(response.read().decode("utf-8", "replace"))
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(_LONGEST_TOLD * 4).decode("utf-8", "replace")[:_LONGEST_TOLD]
            raise EngineError(
                f"{self.url}{path} refused the request: HTTP {error.code}", why=told, fix="see the server's log"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(path, timeout, error) from error

    def _unreachable(self, path: str, timeout: float, error: Exception) -> EngineError:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            return EngineError(
                f"{self.url}{path} did not answer within {timeout:g} s",
                why="the server is slower than the timeout, or stuck",
                fix="raise --timeout, lower --concurrency or --max-tokens, or see the server's log",
            )
        return EngineError(
            f"{self.url}{path} cannot be reached",
            why=f"{type(reason).__name__}: {reason}",
            fix="is the server running? Its log says why it ended",
        )


@dataclass(frozen=True)
class Answer:
    """One answer; `ids` is empty where the server does not return token ids."""

    ids: list[int]
    text: str
    tokens: int


@dataclass(frozen=True)
class Asked:
    """Answers to one set, and what the server counted meanwhile."""

    round: Round
    texts: list[list[str]]
    """By prompt and turn."""
    tokens: int
    others: int
    """Tokens that the server generated for others meanwhile; their drafts are in the counters too."""


def _settings(place: int, model: str, sampling: Sampling, asked: Settings) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": asked.max_tokens,
        "temperature": sampling.temperature,
        "ignore_eos": asked.ignore_eos,
        "return_token_ids": True,
    }
    if sampling.temperature:
        body |= {"top_p": sampling.top_p, "seed": sampling.seed + place}
    return body
