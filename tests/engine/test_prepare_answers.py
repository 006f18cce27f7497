"""Answers by the target itself, through the real server of the stack."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from draftkiln.stack import environment, model

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
STACK = "spec0.9.0-vllm0.32.0-cpu"
NAMED = dict(part.split("=", 1) for part in os.environ.get("DRAFTKILN_PREPARE_PYTHONS", "").split(",") if part)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    done = subprocess.run(
        [NAMED.get(STACK) or environment.python_of(STACK), ROOT / "tests/engine/programs/answers.py", folder],
        env={**os.environ, **model.read(STACK).file.environment, "PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "outcomes.json").read_text())


def test_an_answer_is_what_the_target_writes_after_exactly_the_ids_sent(outcomes):
    assert outcomes["samples"] == outcomes["expected"]


def test_only_the_answer_is_trained(outcomes):
    assert outcomes["masks"] == [[0] * 10 + [1] * 12] * 7


def test_what_a_crash_cut_off_is_asked_for_again_and_nothing_else(outcomes):
    assert outcomes["missing"] == 1
    assert outcomes["asked"] == [8, 2]
    assert outcomes["lines"] == 7


def test_a_row_that_the_server_refuses_is_counted_with_its_reason(outcomes):
    assert list(outcomes["failed"]) == ["made:7"]
    assert "the server answered 400" in outcomes["failed"]["made:7"]


def test_conversations_are_regenerated_through_an_endpoint_and_asked_for_once(outcomes):
    found = outcomes["regenerated"]
    assert found["model"] == "target"
    assert found["answers"] == found["expected"]
    assert found["asked"] == [3, 0]
    assert found["refused"] == {"no trained token": 1}
    assert found["sampling"] == {"max_tokens": 12, "temperature": 0.0, "top_p": 1.0, "seed": 0}
