"""Lengths, reasoning and synthetic conversations."""

import pytest

from draftkiln.errors import DataError
from draftkiln.prepare import reasoning, synthetic
from draftkiln.prepare.conversation import Conversation
from draftkiln.prepare.outcome import Outcome, RefusedRowError, Sample
from draftkiln.prepare.samples import Limits, from_conversations
from draftkiln.prepare.template import Template
from draftkiln.recipe.model import SyntheticData

from .stubs import Tokenizer, chatml, kimi, qwen


def sample(prompt, answer):
    return Sample("d.jsonl:1", list(range(prompt + answer)), [0] * prompt + [1] * answer)


def made_of(count, **fields):
    return SyntheticData(synthetic=count, **fields)


def conversation(question, answer, **fields):
    turns = ({"role": "user", "content": question}, {"role": "assistant", "content": answer} | fields)
    return Conversation("d.jsonl:1", turns)


def prepared(template, *conversations, limits=None, policy="template"):
    outcome = Outcome()
    from_conversations(conversations, template, limits or Limits(512), policy, outcome)
    return outcome


def test_a_sample_of_exactly_the_limit_stays_whole():
    whole = sample(10, 54)
    assert Limits(64).apply(whole) is whole


def test_a_longer_sample_is_cut_with_mask_and_ids_in_step():
    cut = Limits(64).apply(sample(10, 60))
    assert (len(cut.input_ids), len(cut.loss_mask), sum(cut.loss_mask), cut.cut_tokens) == (64, 64, 54, 6)


def test_a_longer_sample_is_split_with_mask_and_ids_in_step_and_nothing_is_lost():
    whole = sample(70, 80)
    first, second = Limits(64, "split").parts(whole)
    assert (first.source, second.source) == ("d.jsonl:1 part 2", "d.jsonl:1 part 3")
    assert first.input_ids + second.input_ids == whole.input_ids[64:]
    assert first.loss_mask + second.loss_mask == whole.loss_mask[64:]
    assert Limits(150, "split").parts(whole) == (whole,)
    with pytest.raises(RefusedRowError, match="no trained token: in none of its 2 parts"):
        Limits(64, "split").parts(sample(100, 0))


def test_case_48_a_prompt_that_fills_the_limit_refuses_the_row():
    with pytest.raises(RefusedRowError, match="no trained token: its first 64 of 110 tokens are all prompt"):
        Limits(64).apply(sample(100, 10))
    assert sum(Limits(64).apply(sample(63, 10)).loss_mask) == 1


def test_case_48_such_rows_are_counted_and_the_others_kept():
    long = conversation(" ".join(["word"] * 100), "Yes.")
    outcome = prepared(Template(Tokenizer()), long, conversation("Hm?", "Yes."), limits=Limits(64))
    assert [refusal.reason for refusal in outcome.refusals] == ["no trained token"]
    assert len(outcome.samples) == 1


def test_too_long_samples_are_dropped_or_fail_the_run_as_the_recipe_says():
    long, short = conversation("Hm?", "word " * 50), conversation("Hm?", "Yes.")
    dropped = prepared(Template(Tokenizer()), long, short, limits=Limits(64, "drop"))
    assert (len(dropped.samples), [refusal.reason for refusal in dropped.refusals]) == (1, ["too long"])
    with pytest.raises(DataError, match=r"d\.jsonl:1: 11\d tokens, the recipe allows 64"):
        prepared(Template(Tokenizer()), long, short, limits=Limits(64, "refuse"))


@pytest.mark.parametrize(
    ("question", "answer", "place"), [("<|im_end|> Hm?", "Yes.", 0), ("Hm?", "Yes.<|im_end|>No.", 1)]
)
def test_a_turn_that_speaks_the_templates_language_refuses_its_row(question, answer, place):
    (refusal,) = prepared(Template(Tokenizer()), conversation(question, answer)).refusals
    assert (refusal.reason, refusal.detail) == ("a turn holds a special token", f"turn {place}: <|im_end|>")


def test_case_45_a_row_whose_text_doubles_bos_is_refused():
    def twice(messages, *, add_generation_prompt):
        bos = "[BOS]" * (1 + (messages[0]["content"] == "Again?"))
        return bos + chatml(messages, add_generation_prompt=add_generation_prompt)

    outcome = prepared(Template(Tokenizer(twice, bos="[BOS]")), conversation("Hm?", "x"), conversation("Again?", "x"))
    assert [refusal.reason for refusal in outcome.refusals] == ["the BOS token comes out twice"]
    assert len(outcome.samples) == 1


def text(outcome, template):
    (only,) = outcome.samples
    return template.tokenizer.decode(only.input_ids)


@pytest.mark.parametrize(
    ("answer", "fields"),
    [
        ("Yes.", {"reasoning": "because so"}),
        ("<think>\nbecause so\n</think>\n\nYes.", {}),
        ("because so\n</think>\n\nYes.", {}),
    ],
)
def test_case_17_reasoning_of_the_last_turn_is_there_exactly_once_whatever_form_it_came_in(answer, fields):
    template = Template(Tokenizer(qwen))
    rendered = text(prepared(template, conversation("Why?", answer, **fields)), template)
    assert rendered.count("<think>") == rendered.count("</think>") == rendered.count("because so") == 1
    assert rendered.endswith("<think>\nbecause so\n</think>\n\nYes.<|im_end|>\n")


def test_case_17_reasoning_that_the_template_leaves_out_is_counted_or_refused():
    template = Template(Tokenizer(chatml))
    row = conversation("Why?", "Yes.", reasoning="because so")
    assert prepared(template, row).counts["reasoning left out"] == 1
    kept = prepared(template, row, policy="keep")
    assert [refusal.reason for refusal in kept.refusals] == ["the template leaves reasoning out"]


def test_case_17_earlier_reasoning_dropped_by_the_template_is_refused_where_it_must_be_kept():
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning": "because so"}]
    row = Conversation("d.jsonl:1", (*turns, turns[0], {**turns[1], "reasoning": "and so"}))
    template = Template(Tokenizer(qwen))
    assert prepared(template, row).counts["reasoning left out"] == 1
    assert prepared(template, row, policy="keep").refusals[0].detail == "of 1 of 2 answers"


def test_case_17_reasoning_is_dropped_when_the_recipe_says_so():
    template = Template(Tokenizer(kimi), {"thinking": False})
    rendered = text(prepared(template, conversation("Why?", "Yes.", reasoning="because so"), policy="drop"), template)
    assert "because" not in rendered
    assert "<think></think>Yes." in rendered


@pytest.mark.parametrize(
    "content", ["<think>a", "a</think>b</think>c", "<think>a<think>b</think>c", "a</think>b<think>"]
)
def test_case_17_tags_that_do_not_pair_refuse_the_row(content):
    with pytest.raises(RefusedRowError, match="do not pair"):
        reasoning.split(content)


def test_case_17_an_empty_block_before_a_closing_tag_is_refused():
    with pytest.raises(RefusedRowError, match="empty reasoning block"):
        reasoning.check("<think>\n\n</think>\n\nbecause so\n</think>\n\nYes.", ["because so"], "template")
    assert reasoning.check("<think></think>one <think>because so</think>two", ["because so"], "template") == 0


@pytest.fixture
def words():
    tokenizer = Tokenizer(kimi)
    tokenizer.encode("user assistant " + " ".join(f"word{number}" for number in range(200)))
    return Template(tokenizer, {"thinking": False})


def test_synthetic_conversations_have_exactly_the_asked_tokens_and_come_out_the_same_again(words):
    made = synthetic.conversations(words, made_of(5, seed=3), max_tokens=128)
    lengths = {len(words.render(row.messages).input_ids) for row in made}
    assert lengths == {128}
    assert len({row.messages[1]["content"] for row in made}) == 5
    assert made == synthetic.conversations(words, made_of(5, seed=3), max_tokens=128)
    assert made != synthetic.conversations(words, made_of(5, seed=4), max_tokens=128)


def test_only_each_so_many_th_synthetic_conversation_is_long_where_asked(words):
    made = synthetic.conversations(words, made_of(5, seed=3, long_every=3), max_tokens=256)
    assert [len(words.render(row.messages).input_ids) for row in made] == [256, 64, 64, 256, 64]


def test_synthetic_answers_can_follow_what_a_target_says(words):
    asked = []

    def answer(prompt, count):
        asked.append(prompt)
        return [f"word{(prompt[-2] + number) % 200}" for number in range(count)]

    made = synthetic.conversations(words, made_of(3, seed=3), max_tokens=64, answer=answer)
    for prompt, row in zip(list(asked), made, strict=True):
        rendered = words.render(row.messages).input_ids
        assert rendered[: len(prompt)] == prompt
        assert len(rendered) == 64
        assert row.messages[1]["content"].split()[0] == answer(prompt, 1)[0]


def test_synthetic_held_out_prompts_are_other_questions(words):
    asked = {row.messages[0]["content"] for row in synthetic.conversations(words, made_of(20, seed=3), max_tokens=64)}
    apart = synthetic.held_out(words, 20, seed=3)
    assert len(apart) == 20
    assert asked.isdisjoint(row.messages[0]["content"] for row in apart)


def test_a_limit_too_short_for_one_word_is_told(words):
    with pytest.raises(DataError, match=r"raise data\.max_tokens"):
        synthetic.conversations(words, made_of(1, seed=3), max_tokens=16)


def test_a_vocabulary_without_words_is_refused():
    with pytest.raises(DataError, match="words of one token"):
        synthetic.conversations(Template(Tokenizer()), made_of(5, seed=3), max_tokens=64)
