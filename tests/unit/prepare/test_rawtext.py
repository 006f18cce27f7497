"""Raw text is trained by an explicit rule only, and no token crosses the border of an answer."""

import pytest

from draftkiln.prepare import rawtext
from draftkiln.prepare.outcome import RefusedRowError
from draftkiln.recipe.model import RawText

from .stubs import Tokenizer

MARKED = RawText(answer_begins="A:", answer_ends="\n")


class WithBos(Tokenizer):
    def encode(self, text, *, add_special_tokens=True):
        ids = super().encode(text)
        return [self.bos_token_id, *ids] if add_special_tokens else ids


class Merging(Tokenizer):
    """Makes one token of the mark's end and what follows it."""

    def encode(self, text, **_options):
        return super().encode(text.replace(": ", ":"))


def trained(tokenizer, text, rule):
    ids, mask = rawtext.render(tokenizer, text, rule)
    assert len(ids) == len(mask)
    return tokenizer.decode([number for number, bit in zip(ids, mask, strict=True) if bit])


def test_all_of_a_text_is_trained_where_the_rule_says_so():
    assert trained(Tokenizer(), "Once upon a time.", RawText()) == "Once upon a time."


def test_only_what_stands_between_marks_is_trained_with_the_mark_that_ends_it():
    assert trained(Tokenizer(), "Q: x\nA:yes\nQ: y\nA:no\n", MARKED) == "yes\nno\n"
    assert trained(Tokenizer(), "Q: x\nA:yes\nand", RawText(answer_begins="A:")) == "yes\nand"


def test_case_45_bos_comes_once_and_is_not_trained():
    tokenizer = WithBos(bos="[BOS]")
    for text in ("Once.", "[BOS]Once."):
        ids, mask = rawtext.render(tokenizer, text, RawText())
        assert tokenizer.decode(ids) == "[BOS]Once."
        assert mask == [0, 1, 1]


@pytest.mark.parametrize(
    ("tokenizer", "text", "reason"),
    [
        (Tokenizer(), "Q: x\n", "no answer"),
        (Tokenizer(), "Q: x\nA:yes", "an answer does not end"),
        (Merging(), "Q: x\nA: yes\n", "boundary of an answer not provable"),
    ],
)
def test_texts_whose_answers_cannot_be_found_are_refused(tokenizer, text, reason):
    with pytest.raises(RefusedRowError) as caught:
        rawtext.render(tokenizer, text, MARKED)
    assert caught.value.reason == reason
