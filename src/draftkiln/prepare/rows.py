"""Rows of a conversations file: each becomes a conversation or a refusal that names file, line and reason."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Message = dict[str, Any]

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Names under which data and templates carry the reasoning before an answer."""
ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "tool": "tool",
}
"""Role names that are known, and what the template calls them; any other refuses the row by its name."""


class RefusedRowError(Exception):
    """A row that is not trained on: the reason (one of few, counted) and what was seen in this row."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Refusal:
    """A row that was refused: where it stands, and why."""

    source: str
    reason: str
    detail: str = ""

    def place(self) -> str:
        """Where it stands, with what was seen there."""
        return f"{self.source}: {self.detail}" if self.detail else self.source


@dataclass(frozen=True)
class Conversation:
    """A conversation and where it stands in the data (`file:line`)."""

    source: str
    messages: tuple[Message, ...]
    dropped_turns: int = 0
    """Trailing turns left out, after which no answer stands."""
    row_id: str | None = None
    """The row's own `id`, if it has one."""

    @property
    def answered(self) -> bool:
        """Whether it ends with an answer."""
        return bool(self.messages[-1]["role"] == "assistant")

    def prompt(self) -> tuple[Message, ...]:
        """The messages before the last answer."""
        return self.messages[:-1] if self.answered else self.messages


def read(path: Path, *, prompts_only: bool, limit: int | None = None) -> Iterator[Conversation | Refusal]:
    """Read a JSON-lines file, row by row.

    Args:
        path: file of one JSON object a line: `messages` (role, content) or `conversations` (from, value).
        prompts_only: whether a row needs no answer, because answers are written anew.
        limit: at most so many rows.

    Raises:
        DataError: the file is missing, a directory, unreadable, or holds no row.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        why = "it is a directory" if path.is_dir() else error.strerror or str(error)
        fix = "name a JSON-lines file in data.source.path, relative to the working directory"
        raise DataError(f"{path}: cannot be read as conversations", why=why, fix=fix) from error
    count = 0
    with file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            if limit is not None and count >= limit:
                break
            count += 1
            source = f"{path}:{number}"
            try:
                yield _conversation(source, text, prompts_only=prompts_only)
            except RefusedRowError as error:
                yield Refusal(source, error.reason, error.detail)
    if count == 0:
        raise DataError(f"{path}: holds no row", why="it is empty", fix="write one JSON object with `messages` a line")


def _conversation(source: str, line: bytes, *, prompts_only: bool) -> Conversation:
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RefusedRowError("not UTF-8", f"byte {error.start} of the line") from error
    except (ValueError, RecursionError) as error:
        raise RefusedRowError("not JSON", str(error)) from error
    if not isinstance(row, dict):
        raise RefusedRowError("not an object", f"a {type(row).__name__}")
    turns = row.get("messages", row.get("conversations"))
    if not isinstance(turns, list):
        raise RefusedRowError("no messages", f"keys: {', '.join(map(str, row)) or 'none'}")
    messages = [_message(turn, position) for position, turn in enumerate(turns)]
    if (
        isinstance(row.get("system"), str)
        and row["system"].strip()
        and not any(turn["role"] == "system" for turn in messages)
    ):
        messages.insert(0, {"role": "system", "content": row["system"]})
    kept = _until_answer(messages) if not prompts_only else _until_prompt(messages)
    _check_order(kept)
    row_id = row.get("id")
    return Conversation(source, tuple(kept), len(messages) - len(kept), None if row_id is None else str(row_id))


def _message(turn: Any, position: int) -> Message:
    if not isinstance(turn, dict):
        raise RefusedRowError("a turn is not an object", f"turn {position}")
    name = turn.get("role", turn.get("from"))
    if name is None:
        raise RefusedRowError("a turn has no role", f"turn {position}")
    role = ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        raise RefusedRowError("unknown role", f"turn {position}: {name!r}")
    message = {"role": role, "content": _content(turn.get("content", turn.get("value")), turn, position)}
    named = (turn[key] for key in REASONING_FIELDS if isinstance(turn.get(key), str) and turn[key].strip())
    if reasoning := next(named, None):
        message["reasoning"] = reasoning
    if turn.get("tool_calls"):
        raise RefusedRowError("tool calls are not supported", f"turn {position}")
    return message


def _content(content: Any, turn: Message, position: int) -> str:
    if isinstance(content, list):
        kinds = {part.get("type") if isinstance(part, dict) else type(part).__name__ for part in content}
        if kinds != {"text"} or not all(isinstance(part.get("text"), str) for part in content):
            raise RefusedRowError(
                "content is not text", f"turn {position}: parts of type {', '.join(sorted(map(str, kinds)))}"
            )
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        kind = "missing" if "content" not in turn and "value" not in turn else f"a {type(content).__name__}"
        raise RefusedRowError("content is not text", f"turn {position}: it is {kind}")
    if not content.strip():
        raise RefusedRowError("empty turn", f"turn {position}")
    return content


def _until_answer(messages: list[Message]) -> list[Message]:
    last = max((position for position, turn in enumerate(messages) if turn["role"] == "assistant"), default=None)
    if last is None:
        raise RefusedRowError("no answer", "no turn of the assistant" if messages else "no turns")
    return messages[: last + 1]


def _until_prompt(messages: list[Message]) -> list[Message]:
    last = max((position for position, turn in enumerate(messages) if turn["role"] == "user"), default=None)
    if last is None:
        raise RefusedRowError("no prompt", "no turn of the user" if messages else "no turns")
    return messages[: last + 1]


def _check_order(messages: list[Message]) -> None:
    roles = [turn["role"] for turn in messages]
    if "system" in roles[1:]:
        raise RefusedRowError("turns out of order", "a system turn after the first")
    spoken = [role for role in roles if role != "system"]
    if spoken[0] != "user":
        raise RefusedRowError("turns out of order", f"the first turn is the {spoken[0]}'s")
    for position, (before, after) in enumerate(itertools.pairwise(spoken), 1):
        if before == after and before != "tool":
            raise RefusedRowError("turns out of order", f"two turns of the {before} in a row, at turn {position}")
