"""What becomes of an answer's ids when its text is wanted."""

import sys

import pytest

from draftkiln.prepare import regenerate
from draftkiln.prepare.answers import Job
from draftkiln.prepare.answerstore import Answer, Prompt, Store
from draftkiln.prepare.outcome import RefusedRowError
from draftkiln.prepare.samples import Limits
from draftkiln.prepare.template import Template
from draftkiln.recipe.model import Answers
from draftkiln.stagelog import Terminal

from .stubs import Tokenizer

PROMPT = Prompt(0, "d.jsonl:1", [1, 2])


def text_of(tmp_path, text, finish="stop", **failed):
    template = Template(Tokenizer())
    job = Job(Answers(), Limits(64), Store(tmp_path / "a.jsonl"), Terminal(sys.stdout))
    job.failed.update(failed.get("failed", {}))
    if text is not None:
        job.store.add(Answer(job.key(PROMPT), template.tokenizer.encode(text), text, finish))
    job.store.close()
    return regenerate.answered(job, PROMPT, template)[0]


@pytest.mark.parametrize("text", ["Yes, it is.<|im_end|>", "Yes, it is."])
def test_the_text_of_an_answer_ends_before_the_token_that_ends_its_turn(tmp_path, text):
    assert text_of(tmp_path, text) == "Yes, it is."


def test_answers_that_are_blank_or_not_there_are_refused_with_the_reason(tmp_path):
    with pytest.raises(RefusedRowError, match="empty answer: 1 tokens"):
        text_of(tmp_path, "<|im_end|>")
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(RefusedRowError, match="no answer written: the server answered 500"):
        text_of(tmp_path, None, failed={PROMPT.source: "the server answered 500"})
