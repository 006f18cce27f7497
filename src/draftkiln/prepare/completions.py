"""Completions of an OpenAI-compatible vLLM server: token ids in, token ids out, tried again where it fails."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import EngineError
from draftkiln.prepare import server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx

    from draftkiln.prepare.answerstore import Prompt
    from draftkiln.recipe.model import Answers

_FIRST_PAUSE_S = 0.5


@dataclass(frozen=True)
class Endpoint:
    """A server that answers: its address, the name it serves the target under, and where to look when it fails."""

    url: str
    model: str = server.MODEL
    see: str = "see logs/answers-server.log"
    key: str | None = None
    """Sent as a bearer token."""

    @classmethod
    def of_port(cls, port: int) -> Endpoint:
        """The server that this program started."""
        return cls(f"http://{server.HOST}:{port}")


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


async def post(client: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    """The one choice of a completion.

    Raises:
        EngineError: the server refuses the request, or gives no token ids.
        httpx.TransportError: it cannot be reached.
    """
    response = await client.post("/v1/completions", json=body)
    if response.is_error:
        raise EngineError(f"the server answered {response.status_code}: {response.text[:300]}")
    choice: dict[str, Any] = response.json()["choices"][0]
    if not choice.get("token_ids"):
        raise EngineError("the server gave no token ids")
    return choice
