"""Which tokens are trained, shown with templates of the known shapes."""

import pytest

from draftkiln.errors import DataError, ExitCode
from draftkiln.prepare.outcome import RefusedRowError
from draftkiln.prepare.template import Template

from .stubs import Tokenizer, chatml, kimi, llama3, qwen


def talk(*turns):
    roles = ("user", "assistant")
    return [{"role": roles[place % 2], "content": text} for place, text in enumerate(turns)]


def trained(template, messages):
    rendered = template.render(messages)
    assert len(rendered.input_ids) == len(rendered.loss_mask)
    runs, text = [], ""
    for number, bit in zip([*rendered.input_ids, None], [*rendered.loss_mask, 0], strict=True):
        if bit:
            text += template.tokenizer.decode([number])
        elif text:
            runs.append(text)
            text = ""
    return runs


@pytest.mark.parametrize(
    ("shape", "end", "arguments"),
    [
        (chatml, "<|im_end|>", {}),
        (llama3, "<|eot_id|>", {}),
        (kimi, "<|im_end|>", {"thinking": False}),
        (qwen, "<|im_end|>", {"enable_thinking": False}),
    ],
)
def test_case_18_without_markers_the_mask_is_the_answer_and_its_end_of_turn(shape, end, arguments):
    template = Template(Tokenizer(shape), arguments)
    assert template.prove().end_of_turn == end
    assert trained(template, talk("How are you?", "Well, thanks!")) == ["Well, thanks!" + end]


def test_every_answer_of_a_longer_conversation_is_trained_and_no_prompt():
    template = Template(Tokenizer())
    runs = trained(template, talk("One?", "First.", "Two?", "Second."))
    assert runs == ["First.<|im_end|>", "Second.<|im_end|>"]


def test_an_answer_that_quotes_the_prompt_is_trained_alone():
    template = Template(Tokenizer())
    assert trained(template, talk("echo this", "echo this")) == ["echo this<|im_end|>"]


def test_case_17_answers_that_the_template_rewrites_as_history_stay_untrained_and_are_counted():
    template = Template(Tokenizer(qwen))
    template.prove()
    messages = talk("One?", "First.", "Two?", "Second.")
    messages[1] |= {"reasoning_content": "hm one"}
    messages[3] |= {"reasoning_content": "hm two"}
    assert trained(template, messages) == ["<think>\nhm two\n</think>\n\nSecond.<|im_end|>"]
    assert template.render(messages).untrained_answers == 1


@pytest.mark.parametrize("shape", [qwen, kimi])
def test_case_17_an_empty_reasoning_block_is_never_trained(shape):
    template = Template(Tokenizer(shape))
    template.prove()
    with pytest.raises(RefusedRowError, match="empty reasoning block would be trained"):
        template.render(talk("One?", "First."))


def test_a_generation_prompt_that_is_no_prefix_stops_the_run_with_class_and_reason():
    template = Template(Tokenizer(qwen_scaffold), {})
    with pytest.raises(DataError) as caught:
        template.prove()
    assert "Tokenizer" in str(caught.value)
    assert "does not begin the answered text" in str(caught.value)
    assert caught.value.code is ExitCode.DATA


def qwen_scaffold(messages, *, add_generation_prompt):
    return chatml(messages, add_generation_prompt=add_generation_prompt) + ("<think>" if add_generation_prompt else "")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (lambda messages, **_: "".join(turn["content"] for turn in messages), "special token"),
        (lambda *_, **__: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_case_18_a_template_whose_mask_cannot_be_proved_stops_the_run(shape, words):
    with pytest.raises(DataError, match=words):
        Template(Tokenizer(shape)).prove()


def test_a_tokenizer_without_a_template_is_named():
    tokenizer = Tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(DataError, match="no chat template"):
        Template(tokenizer).prove()


def test_case_45_one_bos_is_kept_and_two_are_refused():
    once = Template(Tokenizer(llama3, bos="[BOS]"))
    once.prove()
    ids = once.render(talk("a", "b")).input_ids
    assert ids.count(once.tokenizer.bos_token_id) == 1
    assert ids[0] == once.tokenizer.bos_token_id
    twice = Template(Tokenizer(lambda *a, **k: "[BOS]" + llama3(*a, **k), bos="[BOS]"))
    with pytest.raises(DataError, match="BOS"):
        twice.prove()


def test_case_45_a_tokenizer_without_bos_gets_none():
    ids = Template(Tokenizer()).render(talk("a", "b")).input_ids
    assert Template(Tokenizer()).tokenizer.decode(ids[:1]) == "<|im_start|>"


class Marking(Tokenizer):
    """A fast tokenizer whose template marks the answer's words only, as `{% generation %}` blocks often do."""

    is_fast = True
    chat_template = "{% generation %}"
    through_newline = False

    def apply_chat_template(self, messages, *, return_assistant_tokens_mask=False, **options):
        output = super().apply_chat_template(messages, **options)
        if not return_assistant_tokens_mask:
            return output
        ids, mask, inside = output["input_ids"], [], False
        for place, number in enumerate(ids):
            opens = self.decode(ids[max(0, place - 2) : place]) == "assistant\n"
            inside = (inside or opens) and number != self.pieces["<|im_end|>"]
            mask.append(int(inside))
        if self.through_newline:
            for place, number in enumerate(ids):
                if place and mask[place - 1] and number == self.pieces["<|im_end|>"]:
                    mask[place] = mask[place + 1] = 1
        return output | {"assistant_masks": mask}


@pytest.mark.parametrize("through_newline", [False, True])
def test_case_18_markers_of_the_template_are_used_and_end_with_the_end_of_turn(through_newline):
    tokenizer = Marking()
    tokenizer.through_newline = through_newline
    template = Template(tokenizer)
    assert template.prove().method == "generation markers"
    assert trained(template, talk("One?", "First.", "Two?", "Second.")) == ["First.<|im_end|>", "Second.<|im_end|>"]


def test_markers_that_reach_into_the_prompt_refuse_the_row():
    tokenizer = Marking()

    def shifted(messages, *, return_assistant_tokens_mask=False, **options):
        output = Tokenizer.apply_chat_template(tokenizer, messages, **options)
        if return_assistant_tokens_mask:
            output["assistant_masks"] = [0, *[1] * (len(output["input_ids"]) - 1)]
        return output

    tokenizer.apply_chat_template = shifted
    with pytest.raises(RefusedRowError, match="marks token 1 of a prompt of"):
        Template(tokenizer).render(talk("One?", "First."))


def test_markers_that_come_back_all_zero_are_not_believed():
    tokenizer = Marking()

    def unmarked(messages, *, return_assistant_tokens_mask=False, **options):
        output = Tokenizer.apply_chat_template(tokenizer, messages, **options)
        return output | {"assistant_masks": [0] * 999} if return_assistant_tokens_mask else output

    tokenizer.apply_chat_template = unmarked
    assert trained(Template(tokenizer), talk("One?", "First.")) == ["First.<|im_end|>"]


def test_an_error_of_the_template_refuses_the_row_only():
    def picky(messages, *, add_generation_prompt):
        if any("bad" in turn["content"] for turn in messages):
            raise KeyError("bad")
        return chatml(messages, add_generation_prompt=add_generation_prompt)

    template = Template(Tokenizer(picky))
    template.prove()
    with pytest.raises(RefusedRowError, match="the template raised: KeyError"):
        template.render(talk("a", "bad"))
