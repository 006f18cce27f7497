"""The prompts of an evaluation: token ids, none of them trained on."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from draftkiln.errors import DataError, EvaluationError

if TYPE_CHECKING:
    from pathlib import Path

HELD_OUT = "held_out.jsonl"


def read(path: Path, count: int) -> list[dict[str, Any]]:
    """The first `count` lines of a prompt file: objects with `prompt_token_ids` or `messages`.

    Raises:
        EvaluationError: the file holds no prompt.
        DataError: a line is no such object.
    """
    if not path.is_file():
        raise EvaluationError(
            f"no prompts: {path} is not there", fix="run `draftkiln prepare` with data.held_out above 0"
        )
    found: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if len(found) == count:
            break
        if line.strip():
            found.append(_prompt(line, f"{path}:{number}"))
    if not found:
        raise EvaluationError(f"no prompts: {path} is empty", fix="prepare with data.held_out above 0")
    return found


def token_ids(prompts: list[dict[str, Any]], target: Path, *, trust_remote_code: bool) -> list[list[int]]:
    """Token ids of prompts; `messages` are written out with the target's chat template."""
    tokenizer: Any = None
    rows = []
    for prompt in prompts:
        ids = prompt.get("prompt_token_ids")
        if ids is None:
            if tokenizer is None:
                from transformers import AutoTokenizer

                tokenizer = AutoTokenizer.from_pretrained(str(target), trust_remote_code=trust_remote_code)
            ids = tokenizer.apply_chat_template(
                prompt["messages"], add_generation_prompt=True, tokenize=True, return_dict=False
            )
        rows.append([int(token) for token in ids])
    return rows


def sha256(rows: list[list[int]]) -> str:
    """Hex sha256 of token ids, in order."""
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def _prompt(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: not JSON", why=str(error), fix="write one object a line") from error
    if not isinstance(value, dict) or not (value.get("prompt_token_ids") or value.get("messages")):
        raise DataError(
            f"{where}: no prompt", why="it has neither prompt_token_ids nor messages", fix="write one of them"
        )
    return value
