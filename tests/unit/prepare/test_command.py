"""How a file is split into what is learnt and what is held out, and what the report says."""

import json
import os
import sys

import pytest

from draftkiln.errors import DataError, NetworkError, TargetError
from draftkiln.prepare import command, hubdata, output, split, tokenizer
from draftkiln.prepare.outcome import Outcome, Refusal, Sample
from draftkiln.prepare.samples import Limits, Renderer
from draftkiln.prepare.template import Template
from draftkiln.recipe.model import Data, HubData, PathData

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


@pytest.mark.parametrize(("policy", "kept", "counted"), [("ignore", 4, 0), ("count", 4, 1), ("refuse", 3, 0)])
def test_rows_of_the_same_content_are_found_on_request(tmp_path, policy, kept, counted):
    taught, _, outcome = divided(data_file(tmp_path, ["a", "b", "a", "c", "d"]), 1, duplicates=policy)
    assert (len(taught), outcome.counts["duplicates"]) == (kept, counted)
    assert [row.source[-1] for row in outcome.refusals] == (["3"] if policy == "refuse" else [])


def test_rows_that_a_weight_leaves_out_are_counted_and_neither_kept_nor_refused(tmp_path):
    file = data_file(tmp_path, [f"q{number}" for number in range(60)])
    outcome = Outcome()
    found = split.of(Data(source=PathData(path=str(file), weight=0.5), held_out=0))
    taught = command.conversations(found.taught(outcome), outcome)
    assert 10 < len(taught) < 50
    assert len(taught) + outcome.counts["left out by weight"] == 60
    assert not outcome.refused_rows


def test_a_data_set_of_the_hub_is_fetched_only_where_recipe_and_environment_allow_it(monkeypatch):
    source = {"hub": "some/data", "revision": "0" * 40, "files": ["a.jsonl"]}
    with pytest.raises(NetworkError, match=r"data\.source\.network is false"):
        hubdata.fetch(HubData(**source))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NetworkError, match="HF_HUB_OFFLINE is set"):
        hubdata.fetch(HubData(**source, network=True))


def test_files_of_the_hub_are_asked_for_by_commit_and_what_fails_is_told(monkeypatch, tmp_path):
    asked = []

    def download(repository, name, **options):
        asked.append((repository, name, options))
        if name == "b.jsonl":
            raise OSError("no route")
        return str(tmp_path / name)

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    source = {"hub": "some/data", "revision": "0" * 40, "network": True}
    assert hubdata.fetch(HubData(**source, files=["a.jsonl"])) == [tmp_path / "a.jsonl"]
    assert asked == [("some/data", "a.jsonl", {"repo_type": "dataset", "revision": "0" * 40})]
    with pytest.raises(NetworkError, match=f"cannot fetch b.jsonl of some/data@{'0' * 40}"):
        hubdata.fetch(HubData(**source, files=["b.jsonl"]))


def test_held_out_prompts_carry_the_ids_that_ask_for_an_answer(tmp_path):
    template = Template(Tokenizer())
    data = Data(source=PathData(path=str(data_file(tmp_path, ["a", "b"]))), held_out=1)
    ((prompt, ids),) = command.prompts(split.of(data).held_out, Renderer(template, Limits(64)), Outcome())
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
