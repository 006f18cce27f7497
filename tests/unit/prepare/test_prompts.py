"""The shipped prompts."""

import re
from pathlib import Path

import pytest

from draftkiln.prepare.conversation import Conversation
from draftkiln.prepare.forms import Rules
from draftkiln.prepare.rows import Source, read

DATA = Path(__file__).parents[3] / "data"
TASK = re.compile(r" (?:that|which) (.+?)(?:\.|, and call it|\? Show)|# (.+)$|class (?:named |called )?(\w+)")


def texts_of(name):
    found = list(read([Source(DATA / name)], Rules(prompts_only=True)))
    assert all(isinstance(row, Conversation) for row in found)
    assert {len(row.messages) for row in found} == {1}
    return [row.messages[0]["content"] for row in found]


@pytest.mark.parametrize("name", ["prompts-en.jsonl", "prompts-code.jsonl"])
def test_the_shipped_prompts_are_many_distinct_and_each_one_turn_of_the_user(name):
    texts = texts_of(name)
    assert len(set(texts)) == len(texts) >= 640
    assert all(text == text.strip() and "{}" not in text for text in texts)


def test_no_task_of_the_code_evaluation_is_trained_on_in_any_wording():
    def tasks(name):
        found = [TASK.search(text) for text in texts_of(name)]
        assert all(found)
        return {next(filter(None, one.groups())) for one in found}

    evaluated = tasks("evaluation-code.jsonl")
    assert len(evaluated) == 40
    assert not evaluated & tasks("prompts-code.jsonl")
