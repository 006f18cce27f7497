"""The prompts of an evaluation: named sets, none of them trained on, as token ids."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import DataError, EvaluationError, ProblemsError
from draftkiln.evaluate import forms
from draftkiln.evaluate.job import Question
from draftkiln.recipe.files import path_of
from draftkiln.recipe.model import HELD_OUT as HELD_OUT_SET
from draftkiln.recipe.model import PromptForm, PromptSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from draftkiln.evaluate.forms import Prompt

HELD_OUT = "held_out.jsonl"
"""What `prepare` writes."""
_MOST_TOLD = 20
_PREPARE = "run `draftkiln prepare` with data.held_out above 0"
_HARMONY = "<|channel|>final<|message|>"
"""In a chat template whose answers have channels (gpt-oss); an answer's content is the text of the final one there."""
_FINAL = re.compile(
    r"<\|channel\|>final(?:\s*<\|constrain\|>[^<]*)?<\|message\|>(.*?)(?=<\|(?:end|return|call|start|channel)\|>|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True)
class PromptFile:
    """Prompts of one named set, and the hash of the file that they are from."""

    name: str
    prompts: list[Prompt]
    file_sha256: str


def held_out(run: Path, count: int) -> PromptFile:
    """The first `count` prompts that `prepare` set apart in the run directory `run`.

    Raises:
        EvaluationError: there are none.
        ProblemsError: of `DataError`s, one a bad line.
    """
    file = run / "prepare" / HELD_OUT
    return PromptFile(HELD_OUT_SET, read(file, count, fix=_PREPARE), durable.sha256_file(file))


def from_file(wanted: PromptSet) -> PromptFile:
    """The prompts of a set that a recipe or the command line names.

    Raises:
        EvaluationError: the file is missing or holds no prompt.
        ProblemsError: of `DataError`s, one a bad line.
    """
    path = path_of(wanted.path)
    fix = f"name the file of set {wanted.name} rightly, or remove the set"
    return PromptFile(wanted.name, read(path, wanted.limit, wanted.form, fix=fix), durable.sha256_file(path))


def read(path: Path, count: int | None, form: PromptForm = "messages", *, fix: str = _PREPARE) -> list[Prompt]:
    """The first `count` (None: all) prompts of a file of `form`; empty lines are skipped.

    Raises:
        EvaluationError: the file is missing or holds no prompt.
        ProblemsError: of `DataError`s: every line that is no prompt, by file and line.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        why = "it is not there" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise EvaluationError(f"no prompts: {path} cannot be read: {why}", fix=fix) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{line}: not UTF-8", fix="save the file as UTF-8") from error
    found: list[Prompt] = []
    problems: list[DataError] = []
    for number, row in enumerate(text.split("\n"), 1):  # not splitlines: JSON may hold U+2028 as it is
        if count is not None and len(found) == count:
            break
        if row.strip():
            try:
                found.append(forms.parse(row, form))
            except forms.NoPromptError as error:
                fix_line = f"mend the line, or declare the form that the file has: {', '.join(forms.FORMS)}"
                problems.append(DataError(f"{path}:{number}: no prompt of form {form}", why=str(error), fix=fix_line))
    if problems:
        raise ProblemsError(_first(problems, path))
    if not found:
        raise EvaluationError(f"no prompts: {path} is empty", fix=fix)
    return found


def questions(
    prompts: Sequence[Prompt], tokenizer: Callable[[], Any], template_arguments: dict[str, Any]
) -> list[Question]:
    """Prompts as an engine takes them; `messages` are written out with the chat template of what `tokenizer` gives."""
    found = []
    for prompt in prompts:
        ids = prompt.get("prompt_token_ids")
        if ids is not None:
            found.append(Question([int(token) for token in ids]))
            continue
        messages, then = prompt["messages"], prompt.get("then", [])
        ids = written_out(messages, tokenizer(), template_arguments)
        if then:
            unanswered = with_answers(messages, [""] * len(then), then)
            found.append(Question(ids, messages, then, len(written_out(unanswered, tokenizer(), template_arguments))))
        else:
            found.append(Question(ids))
    return found


def written_out(messages: list[dict[str, str]], tokenizer: Any, template_arguments: dict[str, Any]) -> list[int]:
    """Token ids of a conversation in the target's chat template, up to where an answer begins."""
    ids = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False, **template_arguments
    )
    return [int(token) for token in ids]


def said(ids: Sequence[int], text: str, tokenizer: Any) -> str:
    """What an answer says, as a chat client sends it back in the next turn.

    Args:
        ids: of the answer.
        text: of the same, as the engine writes it: without special tokens.
        tokenizer: the target's.

    Returns:
        `text`; of an answer in channels the final one, empty where it was cut before that.
    """
    if _HARMONY not in str(getattr(tokenizer, "chat_template", None) or ""):
        return text
    final = _FINAL.findall(tokenizer.decode(list(ids), skip_special_tokens=False))
    return str(final[-1]) if final else ""


def with_answers(messages: list[dict[str, str]], answers: Sequence[str], then: Sequence[str]) -> list[dict[str, str]]:
    """A conversation with its answers so far and what the user says after each."""
    found = list(messages)
    for answer, turn in zip(answers, then, strict=False):
        found += [{"role": "assistant", "content": answer}, {"role": "user", "content": turn}]
    return found


def refuse_unfit(name: str, asked: Sequence[Question], *, vocab_size: int, longest: int, answer: int) -> None:
    """Refuse prompts that the target cannot read, before an engine starts.

    Args:
        name: of the set.
        asked: its prompts.
        vocab_size: of the target.
        longest: tokens that a prompt may have, so that its answer still fits the target's positions.
        answer: tokens that an answer may have; those of earlier turns are part of a later one's prompt.

    Raises:
        ProblemsError: of `EvaluationError`s.
    """
    problems = []
    for index, one in enumerate(asked):
        where = f"set {name}, prompt {index}"
        tokens = max(len(one.ids), one.least + len(one.then) * answer)
        if tokens > longest:
            fix = "lower evaluate.max_tokens, or leave the prompt out"
            turns = f" with the answers to its {len(one.then)} earlier turns" if one.then else ""
            problems.append(EvaluationError(f"{where}: {tokens} tokens{turns}, at most {longest} fit", fix=fix))
        elif max(one.ids) >= vocab_size:
            fix = "write its ids with the target's own tokenizer"
            problems.append(EvaluationError(f"{where}: id {max(one.ids)} is beyond {vocab_size} tokens", fix=fix))
    if problems:
        raise ProblemsError(problems[:_MOST_TOLD])


def sha256(asked: Sequence[Question]) -> str:
    """Hex sha256 of the prompts' token ids, in order, and of their further turns."""
    rows = [[one.ids, one.then] if one.then else one.ids for one in asked]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def _first(problems: list[DataError], path: Path) -> list[DataError]:
    more = len(problems) - _MOST_TOLD
    return problems[:_MOST_TOLD] + ([DataError(f"{path}: {more} more lines like these")] if more > 0 else [])
