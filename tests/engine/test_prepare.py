"""Preparation with real tokenizers, on the transformers of both stacks.

A stack's environment is made where it is missing, unless `$DRAFTKILN_PREPARE_PYTHONS` (`stack=python,…`) names an
interpreter that has its packages.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from draftkiln.stack import environment

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
NAMED = dict(part.split("=", 1) for part in os.environ.get("DRAFTKILN_PREPARE_PYTHONS", "").split(",") if part)


@pytest.fixture(scope="module", params=["spec0.3.0-vllm0.16.0-cpu", "spec0.9.0-vllm0.32.0-cpu"])
def outcomes(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepare")
    python = NAMED.get(request.param) or environment.python_of(request.param)
    read, written = os.pipe()
    try:
        done = subprocess.run(
            [python, ROOT / "tests" / "engine" / "programs" / "prepare.py", folder],
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
