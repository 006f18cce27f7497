"""How a file is split into what is learnt and what is held out, and what the report says."""

import json
import os
import sys

import pytest

from draftkiln.errors import DataError, TargetError
from draftkiln.prepare import command, output, split, tokenizer
from draftkiln.prepare.outcome import Outcome, Refusal, Sample
from draftkiln.prepare.samples import Limits
from draftkiln.prepare.template import Template
from draftkiln.recipe.model import Data, PathData

from .stubs import Tokenizer


def data_file(tmp_path, questions):
    file = tmp_path / "d.jsonl"
    turns = ([{"role": "user", "content": text}, {"role": "assistant", "content": "Yes."}] for text in questions)
    file.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in turns), encoding="utf-8")
    return file


def divided(file, held_out, **options):
    outcome = Outcome()
    found = split.of(Data(source=PathData(path=str(file)), held_out=held_out, **options))
    taught = command.conversations(found.taught(outcome), outcome)
    return (
        [row.messages[0]["content"] for row in taught],
        [row.messages[0]["content"] for row in found.held_out],
        outcome,
    )


def test_the_last_rows_are_held_out_and_their_prompts_are_not_learnt(tmp_path):
    taught, apart, outcome = divided(data_file(tmp_path, ["a", "b", "c", "d", "b"]), 2)
    assert (taught, apart) == (["a", "c"], ["d", "b"])
    assert [(row.source[-1], row.reason) for row in outcome.refusals] == [
        ("2", "its prompt is held out for evaluation")
    ]


def test_held_out_prompts_carry_the_ids_that_ask_for_an_answer(tmp_path):
    template = Template(Tokenizer())
    data = Data(source=PathData(path=str(data_file(tmp_path, ["a", "b"]))), held_out=1)
    ((prompt, ids),) = command.prompts(split.of(data).held_out, template, Limits(64), Outcome())
    assert [turn["role"] for turn in prompt.messages] == ["user"]
    assert template.tokenizer.decode(ids) == "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"


def test_too_few_conversations_are_told_with_both_numbers(tmp_path):
    with pytest.raises(DataError, match="2 conversations are too few"):
        divided(data_file(tmp_path, ["a", "b"]), 2)


def test_the_report_counts_every_row_and_names_the_refused_ones():
    outcome = Outcome()
    outcome.add(Sample("d.jsonl:1", [1, 2, 3], [0, 1, 1]))
    outcome.add(Sample("d.jsonl:2", [1, 2], [0, 1], cut_tokens=5))
    outcome.note(Refusal("d.jsonl:3", "empty turn", "turn 0"))
    report = output.report(outcome, 1, {"mask_proved_by": "incremental rendering"})
    assert (report["rows"], report["samples"], report["refused"], report["held_out"]) == (4, 2, 1, 1)
    assert (report["tokens"], report["trained_tokens"], report["counts"]) == (5, 3, {"cut": 1})
    assert report["refused_rows"] == [{"source": "d.jsonl:3", "reason": "empty turn", "detail": "turn 0"}]
    assert "1 refused: empty turn" in output.table(report)


def test_case_20_special_tokens_must_be_whole_and_have_their_ids():
    whole = Tokenizer()
    number = whole.pieces["<|im_end|>"]
    tokenizer.check_single_tokens(whole, {"<|im_end|>": number, "<think>": None})
    with pytest.raises(TargetError) as caught:
        tokenizer.check_single_tokens(
            Tokenizer(split=["<think>"]), {"<|im_end|>": number + 1, "<think>": None, "</think>": None}
        )
    assert "<think> splits into ['<', 't', 'h', 'i', 'n', 'k', '>']" in str(caught.value)
    assert f"<|im_end|> is id {number}, the recipe says {number + 1}" in str(caught.value)
    assert "</think>" not in str(caught.value).replace("<think>", "")


def test_case_21_reading_stdin_ends_at_once():
    code = "from draftkiln.prepare import tokenizer; tokenizer.close_stdin(); print(repr(input()))"
    import subprocess

    read, written = os.pipe()
    try:
        done = subprocess.run([sys.executable, "-c", code], stdin=read, capture_output=True, timeout=20, check=False)
    finally:
        os.close(read)
        os.close(written)
    assert b"EOFError" in done.stderr


def test_a_target_directory_that_is_missing_is_named(tmp_path):
    with pytest.raises(TargetError, match="no such target"):
        tokenizer.load(tmp_path / "none", trust_remote_code=False)


def test_hashes_cover_the_template_and_remote_code(tmp_path):
    for name in ("tokenizer.json", "chat_template.jinja", "tokenization_x.py", "model.safetensors"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    before = tokenizer.hashes(tmp_path)
    assert sorted(before) == ["chat_template.jinja", "tokenization_x.py", "tokenizer.json"]
    (tmp_path / "chat_template.jinja").write_text("other", encoding="utf-8")
    assert tokenizer.hashes(tmp_path) != before
