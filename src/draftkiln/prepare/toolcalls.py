"""Tools and tool calls: read in any usual form, handed to the template in the form that it renders, and missed by name.

vLLM's server hands a template arguments as an object, whatever form a client sent; a template that pastes them as text
(DeepSeek's) gets their JSON. Some want no content beside a call, some an empty one (Harmony). What a template wants is
tried out once.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from draftkiln.prepare.outcome import RefusedRowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.prepare.conversation import Message
    from draftkiln.prepare.template import Template


class Style(NamedTuple):
    """How a template wants calls."""

    arguments: Literal["object", "text"]
    content: Literal[""] | None
    """Content of a turn that has calls only."""
    named_ids: bool = False
    """Whether a call's name is written in its id only: `functions.NAME:N`, N counted through the row (Kimi's)."""


_NAME, _VALUE = "look_up_weather", "a town in the north"
_LEFT_OUT = "the template leaves tool calls out"


def read_tools(value: Any) -> tuple[dict[str, Any], ...]:
    """The tools of a row: a list of objects, or JSON text of one.

    Raises:
        RefusedRowError: it is neither, or a tool has no name.
    """
    tools = _parsed(value, "tools are not JSON", "tools") if isinstance(value, str) and value.strip() else value or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RefusedRowError("tools are not a list of objects", f"tools: a {type(tools).__name__}")
    for position, tool in enumerate(tools):
        if not _tool_name(tool):
            raise RefusedRowError("a tool has no name", f"tools[{position}]")
    return tuple(tools)


def read_calls(value: Any, where: str) -> list[dict[str, Any]]:
    """The tool calls of a turn, with arguments as objects, in the order of their keys.

    Raises:
        RefusedRowError: a call is no object, has no name, or its arguments are no JSON object.
    """
    calls = _parsed(value, "tool calls are not JSON", where) if isinstance(value, str) else value
    if not isinstance(calls, list):
        raise RefusedRowError("tool calls are not a list", f"{where}: a {type(calls).__name__}")
    return [_call(call, f"{where}.tool_calls[{position}]") for position, call in enumerate(calls)]


def style_of(template: Template) -> Style | None:
    """The style in which the template renders calls; None when it leaves them out.

    One that gives arguments as JSON is taken before one that gives them in a form of the template's own; Python's way
    of writing them is none.
    """
    return _style_of(template, named_ids=False) or _style_of(template, named_ids=True)


def _style_of(template: Template, *, named_ids: bool) -> Style | None:
    call = {"id": "call_0", "type": "function", "function": {"name": _NAME, "arguments": {"place": _VALUE}}}
    answer: Message = {"role": "assistant", "content": None, "tool_calls": [call]}
    forms: tuple[Literal["object", "text"], ...] = ("object", "text")
    contents: tuple[Literal[""] | None, ...] = (None, "")
    own: Style | None = None
    for arguments, content in itertools.product(forms, contents):
        style = Style(arguments, content, named_ids)
        try:
            text = template.text(arrange([{"role": "user", "content": "How is the weather?"}, answer], style))
        except RefusedRowError:
            continue
        if _NAME in text and f'"{_VALUE}"' in text:
            return style
        if _NAME in text and _VALUE in text and f"'{_VALUE}'" not in text:
            own = own or style
    return own


def arrange(messages: Sequence[Message], style: Style | None) -> list[Message]:
    """Messages with calls in the style that the template renders.

    Raises:
        RefusedRowError: there are calls and the template leaves them out.
    """
    arranged = []
    names = _Ids()
    for position, turn in enumerate(messages):
        if "tool_calls" in turn and style is None:
            raise RefusedRowError(_LEFT_OUT, f"turn {position}")
        changed = names.renamed(turn) if style is not None and style.named_ids else turn
        arranged.append(_styled(changed, style) if style is not None and "tool_calls" in turn else changed)
    return arranged


@dataclass
class _Ids:
    """Ids of calls as Kimi's models write them, given to the calls and results of a conversation in turn."""

    given: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    """Of calls whose results have not come yet."""
    count: int = 0

    def renamed(self, turn: Message) -> Message:
        """The turn with its ids, or that of its call, renamed."""
        if turn["role"] == "tool":
            return {**turn, "tool_call_id": self._answered(turn.get("tool_call_id"))}
        if "tool_calls" in turn:
            return {**turn, "tool_calls": [self._named(call) for call in turn["tool_calls"]]}
        return turn

    def _named(self, call: dict[str, Any]) -> dict[str, Any]:
        name = f"functions.{call['function']['name']}:{self.count}"
        self.count += 1
        self.given[call.get("id", name)] = name
        self.waiting.append(name)
        return {**call, "id": name}

    def _answered(self, number: str | None) -> str:
        """Id of the call that a result belongs to: the one that it names, else the first without a result."""
        name = self.given.get(number or "") or (self.waiting[0] if self.waiting else "")
        if name in self.waiting:
            self.waiting.remove(name)
        if not name:
            raise RefusedRowError("a tool's result belongs to no call", f"{number}")
        return name


def check(text: str, head: str, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> None:
    """Hold the rendered `text` to the tools and calls that a row has.

    Args:
        text: the whole conversation.
        head: what stands before the first answer.
        messages: as the template got them.
        tools: as the template got them.

    Raises:
        RefusedRowError: the template left one out.
    """
    for tool in tools:
        if _tool_name(tool) not in head:
            raise RefusedRowError("the template leaves tools out", f"{_tool_name(tool)!r}")
    names = [call["function"]["name"] for turn in messages for call in turn.get("tool_calls", ())]
    for name in set(names):
        if text.count(name) - head.count(name) < names.count(name):
            raise RefusedRowError(_LEFT_OUT, f"{name!r}")


def _styled(turn: Message, style: Style) -> Message:
    calls = turn["tool_calls"] if style.arguments == "object" else [_as_text(call) for call in turn["tool_calls"]]
    return {**turn, "content": turn["content"] or style.content, "tool_calls": calls}


def _as_text(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}}


def _call(call: Any, where: str) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise RefusedRowError("a tool call is not an object", where)
    function = call.get("function", call)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RefusedRowError("a tool call has no name", where)
    arguments = function.get("arguments", function.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _parsed(arguments or "{}", "tool call arguments are not JSON", f"{where}.arguments")
    if not isinstance(arguments, dict):
        raise RefusedRowError(
            "tool call arguments are not an object", f"{where}.arguments: a {type(arguments).__name__}"
        )
    read: dict[str, Any] = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    return {"id": str(call["id"]), **read} if call.get("id") is not None else read


def _parsed(text: str, reason: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusedRowError(reason, f"{where}: {error}") from error


def _tool_name(tool: dict[str, Any]) -> str:
    described = tool.get("function", tool)
    name = described.get("name") if isinstance(described, dict) else None
    return name if isinstance(name, str) else ""
