import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln import checkout
from draftkiln.errors import DataError, EvaluationError, ExitCode, ProblemsError
from draftkiln.evaluate import forms, prompts, url
from draftkiln.evaluate.job import Question
from draftkiln.recipe.model import PromptSet

LINES = {
    "messages": {"messages": [{"role": "user", "content": "Why?"}]},
    "mt-bench": {"question_id": 81, "category": "writing", "turns": ["Why?", "Say it shorter."]},
    "gsm8k": {"question": "Why?", "answer": "So. #### 4"},
    "humaneval": {
        "task_id": "HumanEval/0",
        "prompt": "Why?",
        "entry_point": "why",
        "test": "",
        "canonical_solution": "",
    },
}


def ids(rows: list[forms.Prompt]) -> list[list[int]]:
    return [one.ids for one in prompts.questions(rows, lambda: pytest.fail("no tokenizer is needed"), {})]


def test_token_ids_and_messages_are_prompts(tmp_path: Path) -> None:
    file = tmp_path / prompts.HELD_OUT
    file.write_text('{"prompt_token_ids": [1, 2]}\n\n{"messages": [{"role": "user", "content": "x"}]}\n')
    assert len(prompts.read(file, 5)) == 2
    assert ids(prompts.read(file, 1)) == [[1, 2]]


def test_messages_are_written_out_with_the_recipes_template_arguments() -> None:
    def render(messages: list[dict[str, str]], **asked: object) -> list[int]:
        assert (asked["add_generation_prompt"], asked["thinking"]) == (True, False)
        return [len(messages[0]["content"])]

    tokenizer = SimpleNamespace(apply_chat_template=render)
    row = {"messages": [{"role": "user", "content": "abc"}]}
    assert prompts.questions([row], lambda: tokenizer, {"thinking": False}) == [Question([3])]


def words(messages: list[dict[str, str]], **_asked: object) -> list[int]:
    """A template of one token a role and one a word."""
    return [0] * len(messages) + [1 for message in messages for _ in message["content"].split()]


def test_further_turns_come_with_the_room_that_they_take_beside_the_answers_before_them() -> None:
    row = {"messages": [{"role": "user", "content": "one two"}], "then": ["three", "four five"]}
    (asked,) = prompts.questions([row], lambda: SimpleNamespace(apply_chat_template=words), {})
    assert asked == Question([0, 1, 1], row["messages"], row["then"], least=10)  # five messages, five words
    assert asked.longest(100) == 10 + 2 * 2 * 100
    problem = "set mt, prompt 0: 210 tokens with the answers to its 2 earlier turns, at most 209 fit"
    with pytest.raises(ProblemsError, match=problem):
        prompts.refuse_unfit("mt", [asked], vocab_size=9, longest=209, answer=100)
    prompts.refuse_unfit("mt", [asked], vocab_size=9, longest=210, answer=100)


def test_a_conversation_goes_on_after_its_own_answers() -> None:
    first = [{"role": "user", "content": "Why?"}]
    found = prompts.with_answers(first, ["So."], ["How?", "When?"])
    assert [(one["role"], one["content"]) for one in found] == [
        ("user", "Why?"),
        ("assistant", "So."),
        ("user", "How?"),
    ]
    assert first == [{"role": "user", "content": "Why?"}]


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>So.<|return|>", "So."),
        ("<|channel|>final<|message|>One.<|end|><|start|>assistant<|channel|>final<|message|>Two", "Two"),
        ("<|channel|>final <|constrain|>json<|message|>{}\n<|return|>", "{}\n"),
        ("<|channel|>analysis<|message|>It says final, and was cut", ""),
    ],
)
def test_of_an_answer_in_channels_only_the_final_one_is_sent_back(written: str, wanted: str) -> None:
    tokenizer = SimpleNamespace(
        chat_template="{{ '<|start|>assistant<|channel|>final<|message|>' + message.content }}",
        decode=lambda _, skip_special_tokens: "" if skip_special_tokens else written,
    )
    assert prompts.said([1, 2], "analysisHm.assistantfinalSo.", tokenizer) == wanted


@pytest.mark.parametrize("template", [None, "{{ message.content.split('</think>')[-1] }}", {"default": "x"}])
def test_an_answer_without_channels_is_sent_back_as_the_engine_wrote_it(template: object) -> None:
    assert (
        prompts.said([1], "<think>Hm.</think>So.", SimpleNamespace(chat_template=template)) == "<think>Hm.</think>So."
    )


@pytest.mark.parametrize("form", forms.FORMS)
def test_each_form_is_read_as_a_question_of_the_user_mt_bench_with_its_second_turn(form: str) -> None:
    found = forms.parse(json.dumps(LINES[form]), form)
    assert found.pop("then", []) == (["Say it shorter."] if form == "mt-bench" else [])
    assert found == {"messages": [{"role": "user", "content": "Why?"}]}


@pytest.mark.parametrize("declared", forms.FORMS)
@pytest.mark.parametrize("given_form", forms.FORMS)
def test_a_file_of_another_form_is_refused_by_naming_the_form_that_it_has(declared: str, given_form: str) -> None:
    if declared == given_form:
        return
    with pytest.raises(forms.NoPromptError, match=f"looks like form `{given_form}`"):
        forms.parse(json.dumps(LINES[given_form]), declared)


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_prompt_set_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / prompts.HELD_OUT
    file.write_text(text)
    with pytest.raises(EvaluationError, match="no prompts"):
        prompts.read(file, 5)


def test_a_missing_prompt_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="is not there"):
        prompts.read(tmp_path / prompts.HELD_OUT, 5)
    with pytest.raises(EvaluationError, match="cannot be read"):
        prompts.read(tmp_path, 5)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[1]",
        "{}",
        '{"prompt_token_ids": []}',
        '{"prompt_token_ids": [-1]}',
        '{"prompt_token_ids": [true]}',
        '{"messages": ["x"]}',
        '{"messages": [{"role": "user"}]}',
        "[" * 100_000,
    ],
    ids=range(9),
)
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / prompts.HELD_OUT
    file.write_text('{"prompt_token_ids": [1]}\n' + line + "\n")
    with pytest.raises(ProblemsError, match=r"held_out\.jsonl:2") as caught:
        prompts.read(file, 5)
    assert caught.value.code is ExitCode.DATA


def test_all_bad_lines_are_named_at_once_and_thousands_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text("\n".join(["{}", '{"turns": ["x"]}', '{"turns": [" "]}', *["{}"] * 3000]))
    with pytest.raises(ProblemsError) as caught:
        prompts.read(file, None, "mt-bench")
    told = [str(problem).splitlines()[0] for problem in caught.value.problems]
    assert told[:2] == [f"{file}:1: no prompt of form mt-bench", f"{file}:3: no prompt of form mt-bench"]
    assert told[-1].endswith("2982 more lines like these")


def test_bytes_that_are_no_text_are_named_by_their_line(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_bytes(b'{"prompt_token_ids": [1]}\n\xff\n')
    with pytest.raises(DataError, match=r"q\.jsonl:2: not UTF-8"):
        prompts.read(file, 5)
    file.write_bytes(b'{"messages": [{"role": "user", "content": "\\udc00"}]}\n')
    with pytest.raises(ProblemsError, match=r"q\.jsonl:1: no prompt(.|\n)*half a character"):
        prompts.read(file, 5)


def test_a_line_separator_of_unicode_inside_a_text_ends_no_line(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps({"turns": ["a\u2028b\x85c"]}, ensure_ascii=False) + "\n", encoding="utf-8")
    (found,) = prompts.read(file, None, "mt-bench")
    assert found["messages"][0]["content"] == "a\u2028b\x85c"


def test_a_set_of_the_recipe_keeps_its_name_its_limit_and_the_hash_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text((json.dumps(LINES["gsm8k"]) + "\n") * 3)
    found = prompts.from_file(PromptSet(name="gsm", path=str(file), form="gsm8k", limit=2))
    assert (found.name, len(found.prompts), len(found.file_sha256)) == ("gsm", 2, 64)


def test_prompts_that_the_target_cannot_read_are_refused_before_an_engine_starts() -> None:
    asked = [Question([1, 2]), Question([1] * 9), Question([1, 300])]
    with pytest.raises(ProblemsError) as caught:
        prompts.refuse_unfit("gsm", asked, vocab_size=256, longest=8, answer=1)
    told = [str(problem).splitlines()[0] for problem in caught.value.problems]
    assert told == ["set gsm, prompt 1: 9 tokens, at most 8 fit", "set gsm, prompt 2: id 300 is beyond 256 tokens"]
    prompts.refuse_unfit("gsm", [Question([1, 255])], vocab_size=256, longest=8, answer=1)


def test_the_shipped_set_is_read_and_trained_on_by_no_recipe() -> None:
    shipped = prompts.read(checkout.root() / url.SHIPPED.path, None, url.SHIPPED.form)
    texts = {row["messages"][0]["content"] for row in shipped}
    assert len(texts) == len(shipped) >= 20
    trained = prompts.read(checkout.root() / "data" / "prompts-en.jsonl", None)
    assert not texts & {row["messages"][0]["content"] for row in trained}


def test_the_hash_depends_on_ids_order_and_further_turns() -> None:
    one, two = Question([1]), Question([2])
    hashes = {prompts.sha256(asked) for asked in ([one, two], [two, one], [one, Question([2], then=["x"])])}
    assert len(hashes) == 3


@given(st.sampled_from(forms.FORMS), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_no_line_raises_anything_but_what_names_it(form: str, value: object) -> None:
    for line in (
        json.dumps(value),
        json.dumps({"turns": value, "question": value, "answer": value, "messages": value}),
    ):
        try:
            found = forms.parse(line, form)
        except forms.NoPromptError:
            continue
        assert found["messages"]
