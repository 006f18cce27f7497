"""The shipped prompts."""

from pathlib import Path

from draftkiln.prepare.conversation import Conversation
from draftkiln.prepare.forms import Rules
from draftkiln.prepare.rows import Source, read

FILE = Path(__file__).parents[3] / "data" / "prompts-en.jsonl"


def test_the_shipped_prompts_are_many_distinct_and_each_one_turn_of_the_user():
    found = list(read([Source(FILE)], Rules(prompts_only=True)))
    assert all(isinstance(row, Conversation) for row in found)
    texts = [row.messages[0]["content"] for row in found]
    assert {len(row.messages) for row in found} == {1}
    assert len(set(texts)) == len(texts) >= 640
    assert all(text == text.strip() and "{}" not in text for text in texts)
