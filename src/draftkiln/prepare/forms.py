"""One row of data to one conversation: OpenAI messages, ShareGPT, prompt and response, raw text.

Every turn of the row is in the conversation, or the row is refused by the name of what is wrong with it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from draftkiln.prepare import toolcalls
from draftkiln.prepare.conversation import REASONING_FIELDS, ROLES, Conversation, TextRow
from draftkiln.prepare.outcome import RefusedRowError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from draftkiln.prepare.conversation import Message

_PROMPTS = ("prompt", "instruction", "question")
_RESPONSES = ("response", "completion", "output", "answer")
_LEADING = ("system", "developer")
"""Roles of turns that stand before the first question only."""


@dataclass(frozen=True)
class Rules:
    """How rows are read."""

    prompts_only: bool = False
    """Whether a row needs no answer, because answers are written anew."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Role names of the recipe beyond `ROLES`."""
    text_field: str | None = None
    """Key of rows of raw text; None refuses such rows."""

    def role(self, name: Any) -> str | None:
        """The role that a name of the data means."""
        return self.roles.get(name, ROLES.get(name)) if isinstance(name, str) else None


def parse(source: str, row: Any, rules: Rules) -> Conversation | TextRow:
    """The conversation or raw text of a row.

    Raises:
        RefusedRowError: it is none, names an unknown role, lacks an answer, or its turns are out of order.
    """
    if not isinstance(row, dict):
        raise RefusedRowError("not an object", f"a {type(row).__name__}")
    row_id = None if row.get("id") is None else str(row["id"])
    turns = _turns(row)
    if turns is None:
        return TextRow(source, _raw_text(row, rules), row_id)
    messages = [_message(turn, position, rules) for position, turn in enumerate(turns)]
    if not rules.prompts_only:
        _refuse_untrained(turns)
    system = row.get("system")
    if isinstance(system, str) and system.strip() and not any(turn["role"] == "system" for turn in messages):
        messages.insert(0, {"role": "system", "content": system})
    kept = _until(messages, "user", "no prompt") if rules.prompts_only else _until(messages, "assistant", "no answer")
    _check_order(kept)
    dropped = len(messages) - len(kept)
    return Conversation(source, tuple(kept), dropped, row_id, toolcalls.read_tools(row.get("tools")))


def _turns(row: dict[str, Any]) -> list[Any] | None:
    """Turns of a row; None where it has none of the forms with turns."""
    found = [key for key in ("messages", "conversations") if isinstance(row.get(key), list)]
    if len(found) > 1:
        raise RefusedRowError("two forms in one row", "messages and conversations: which is meant?")
    if found:
        turns: list[Any] = row[found[0]]
        return turns
    prompt = next((row[key] for key in _PROMPTS if isinstance(row.get(key), (str, list))), None)
    if prompt is None:
        return None
    answer = next((row[key] for key in _RESPONSES if isinstance(row.get(key), (str, list))), None)
    return [*_as_turns(prompt, "user"), *([] if answer is None else _as_turns(answer, "assistant"))]


def _as_turns(value: str | list[Any], role: str) -> list[Any]:
    return [{"role": role, "content": value}] if isinstance(value, str) else value


def _raw_text(row: dict[str, Any], rules: Rules) -> str:
    text = row.get(rules.text_field or "text")
    if rules.text_field is None and isinstance(text, str):
        raise RefusedRowError("raw text without a rule", "text: say in data.raw_text what of it is trained")
    if not isinstance(text, str):
        raise RefusedRowError("no messages", f"keys: {', '.join(map(str, row)) or 'none'}")
    if not text.strip():
        raise RefusedRowError("empty text", f"{rules.text_field}")
    return text


def _refuse_untrained(turns: list[Any]) -> None:
    """An answer that its row says is not to be learnt is refused, not learnt."""
    for position, turn in enumerate(turns):
        for key in ("weight", "train"):
            if turn.get(key) is not None and turn[key] != 1:
                raise RefusedRowError("a turn is not to be trained", f"turn {position}: {key} is {turn[key]!r}")


def _message(turn: Any, position: int, rules: Rules) -> Message:
    if not isinstance(turn, dict):
        raise RefusedRowError("a turn is not an object", f"turn {position}")
    name = turn.get("role", turn.get("from"))
    if name is None:
        raise RefusedRowError("a turn has no role", f"turn {position}")
    role = rules.role(name)
    if role is None:
        raise RefusedRowError("unknown role", f"turn {position}: {name!r}")
    calls = toolcalls.read_calls(turn["tool_calls"], f"turn {position}") if turn.get("tool_calls") else []
    if calls and role != "assistant":
        raise RefusedRowError("tool calls outside an answer", f"turn {position}: {role}")
    message: Message = {"role": role, "content": _content(turn, position, calls=bool(calls))}
    named = (turn[key] for key in REASONING_FIELDS if isinstance(turn.get(key), str) and turn[key].strip())
    if reasoning := next(named, None):
        message["reasoning"] = reasoning
    if calls:
        message["tool_calls"] = calls
    if role == "tool":
        message |= {key: turn[key] for key in ("tool_call_id", "name") if isinstance(turn.get(key), str)}
    return message


def _content(turn: Message, position: int, *, calls: bool) -> str | None:
    content = turn.get("content", turn.get("value"))
    if isinstance(content, list):
        kinds = {part.get("type") if isinstance(part, dict) else type(part).__name__ for part in content}
        if kinds != {"text"} or not all(isinstance(part.get("text"), str) for part in content):
            raise RefusedRowError(
                "content is not text", f"turn {position}: parts of type {', '.join(sorted(map(str, kinds)))}"
            )
        content = "".join(part["text"] for part in content)
    if calls and (content is None or (isinstance(content, str) and not content.strip())):
        return None
    if not isinstance(content, str):
        kind = "missing" if "content" not in turn and "value" not in turn else f"a {type(content).__name__}"
        raise RefusedRowError("content is not text", f"turn {position}: it is {kind}")
    if not content.strip():
        raise RefusedRowError("empty turn", f"turn {position}")
    return content


def _until(messages: list[Message], role: str, reason: str) -> list[Message]:
    last = max((position for position, turn in enumerate(messages) if turn["role"] == role), default=None)
    if last is None:
        raise RefusedRowError(reason, f"no turn of the {role}" if messages else "no turns")
    return messages[: last + 1]


def _check_order(messages: list[Message]) -> None:
    roles = [turn["role"] for turn in messages]
    spoken = list(itertools.dropwhile(lambda role: role in _LEADING, roles))
    for role in _LEADING:
        if role in spoken or roles.count(role) > 1:
            raise RefusedRowError("turns out of order", f"a {role} turn after the first")
    if spoken[0] != "user":
        raise RefusedRowError("turns out of order", f"the first turn is the {spoken[0]}'s")
    for position, (before, after) in enumerate(itertools.pairwise(spoken), 1):
        if before == after and before != "tool":
            raise RefusedRowError("turns out of order", f"two turns of the {before} in a row, at turn {position}")
        if after == "tool" and before == "user":
            raise RefusedRowError("turns out of order", f"a tool's result without a call, at turn {position}")
