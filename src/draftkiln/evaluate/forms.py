"""Forms of prompt files: what a line of each benchmark is, and the prompt that it becomes.

Sources of the forms: `question.jsonl` of FastChat's MT-Bench, `test.jsonl` of openai/grade-school-math (GSM8K) and
`HumanEval.jsonl` of openai/human-eval.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from draftkiln import unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from draftkiln.recipe.model import PromptForm

Prompt = dict[str, Any]
"""A mapping with `prompt_token_ids` (ids as they are) or `messages` (for the target's chat template), and with `then`:
what the user says after each answer, where the prompt has further turns."""


class NoPromptError(ValueError):
    """A line that is no prompt of the declared form; its text says why."""


def parse(line: str, form: PromptForm) -> Prompt:
    """The prompt of one line of a file of `form`.

    Raises:
        NoPromptError: the line is not JSON, no object, or not of this form.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NoPromptError(f"not JSON ({error})") from error
    if not isinstance(value, dict):
        raise NoPromptError(f"a {type(value).__name__}, not an object")
    if not unicode.is_whole(value):
        raise NoPromptError(unicode.HALF)
    found = _READERS[form](value)
    if found is None:
        raise NoPromptError(f"{_WANTED[form]} ({_other_form(value)})")
    return found


def _messages(value: Mapping[str, Any]) -> Prompt | None:
    ids = value.get("prompt_token_ids")
    if ids is not None:
        if not isinstance(ids, list) or not ids or not all(type(token) is int and token >= 0 for token in ids):
            raise NoPromptError("prompt_token_ids is not a list of token ids")
        return {"prompt_token_ids": ids}
    messages = value.get("messages")
    if not messages:
        return None
    if not isinstance(messages, list) or not all(_is_message(message) for message in messages):
        raise NoPromptError("messages is not a list of objects with the texts `role` and `content`")
    return {"messages": messages}


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


def _mt_bench(value: Mapping[str, Any]) -> Prompt | None:
    turns = value.get("turns")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
        return None
    asked = [_asked(turn, f"turns[{place}]") for place, turn in enumerate(turns)]
    return asked[0] and (asked[0] | ({"then": turns[1:]} if turns[1:] else {}))


def _gsm8k(value: Mapping[str, Any]) -> Prompt | None:
    return _asked(value.get("question"), "question") if "answer" in value else None


def _humaneval(value: Mapping[str, Any]) -> Prompt | None:
    return _asked(value.get("prompt"), "prompt") if "entry_point" in value else None


def _asked(text: Any, key: str) -> Prompt | None:
    if not isinstance(text, str):
        return None
    if not text.strip():
        raise NoPromptError(f"{key} is empty")
    return {"messages": [{"role": "user", "content": text}]}


_READERS: dict[PromptForm, Callable[[Mapping[str, Any]], Prompt | None]] = {
    "messages": _messages,
    "mt-bench": _mt_bench,
    "gsm8k": _gsm8k,
    "humaneval": _humaneval,
}
"""Each gives the prompt, or None for an object that is of another form."""
_WANTED: dict[PromptForm, str] = {
    "messages": "neither `messages` nor `prompt_token_ids`",
    "mt-bench": "no list of texts under `turns`",
    "gsm8k": "no text under `question`, or no `answer`",
    "humaneval": "no text under `prompt`, or no `entry_point`",
}
FORMS = tuple(_READERS)


def _other_form(value: Mapping[str, Any]) -> str:
    """Names the form that an object has, where one fits, else its keys."""
    for form, read in _READERS.items():
        with contextlib.suppress(NoPromptError):
            if read(value) is not None:
                return f"it looks like form `{form}`"
    return f"keys: {', '.join(map(str, value)) or 'none'}"
