import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from draftkiln import arithmetic
from draftkiln.cli import main
from draftkiln.errors import EngineError, ExitCode
from draftkiln.evaluate.command import _evaluate
from draftkiln.evaluate.evaluation import evaluate_draft
from draftkiln.prepare import server
from draftkiln.stagelog import Terminal

pytestmark = pytest.mark.engine


SAMPLED = [{"temperature": 0.5, "seed": 7}]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two questions for the target's chat template, in the form of MT-Bench."""
    file = tmp_path_factory.mktemp("sets") / "question.jsonl"
    rows = [{"question_id": place, "turns": ["bara base bati", "bavo"]} for place in range(2)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def evaluated(small: Any, exported: dict[str, Any], asked: Path) -> dict[str, Any]:
    assert exported
    sets = [{"name": "asked", "path": str(asked), "form": "mt-bench"}]
    results: dict[str, Any] = small.stage("evaluate", _evaluate, evaluate__sets=sets, evaluate__sampled=SAMPLED)
    return results


def test_the_draft_is_accepted_and_changes_nothing(evaluated: dict[str, Any]) -> None:
    assert evaluated["acceptance_length"] >= 2.5
    assert evaluated["lossless"]
    assert (evaluated["prompts"], evaluated["num_draft_tokens"]) == (6, 3)
    assert evaluated["tokens"] == 6 * 24
    first, second, third = evaluated["acceptance_per_position"]
    assert 1 >= first >= second >= third > 0
    assert evaluated["acceptance_length"] == pytest.approx(1 + first + second + third, abs=1e-3)


def test_the_result_says_what_was_measured(small: Any, evaluated: dict[str, Any]) -> None:
    report = json.loads((small.path / "evaluate" / "result.json").read_text())
    assert report["acceptance_length"] == evaluated["acceptance_length"]
    assert len(report["draft_sha256"]) == len(report["prompts_sha256"]) == 64
    assert report["vllm"]
    assert report["divergences"] == []


def test_sets_and_sampling_are_measured_apart_on_the_same_engine(evaluated: dict[str, Any]) -> None:
    held_out, asked, drawn, asked_drawn = evaluated["sets"]
    assert [one["set"] for one in evaluated["sets"]] == ["held-out", "asked"] * 2
    assert (held_out["lossless"], asked["lossless"], drawn["lossless"], asked_drawn["lossless"]) == (
        True,
        True,
        None,
        None,
    )
    assert [one["prompts"] for one in evaluated["sets"]] == [6, 2, 6, 2]
    assert sum(one["tokens"] for one in evaluated["sets"]) == 16 * 24
    # The made target is sure of its next token: drawn answers are nearly the greedy ones.
    assert drawn["acceptance_length"] == pytest.approx(held_out["acceptance_length"], abs=0.4)
    assert held_out["acceptance_length"] > held_out["unigram_length"] + 0.5
    assert all(one["tokens_per_second"] > 0 and one["tokens_per_second_alone"] > 0 for one in evaluated["sets"])


def test_a_running_server_gives_the_same_acceptance_through_its_counters(
    small: Any, evaluated: dict[str, Any], asked: Path, tmp_path: Path
) -> None:
    draft = {"model": str(small.path / "export" / "vllm"), "method": "eagle3", "num_speculative_tokens": 3}
    options = ("--dtype", arithmetic.engine_dtype("bfloat16", "cpu"), "--trust-remote-code", "--enforce-eager")
    options += ("--no-enable-prefix-caching", "--speculative-config", json.dumps(draft))
    out, held_out = tmp_path / "result.json", small.path / "prepare" / "held_out.jsonl"
    with server.running(small.target, tmp_path / "log", max_model_len=256, max_num_seqs=16, options=options) as port:
        words = ["evaluate", "--url", f"http://{server.HOST}:{port}", "--set", f"ids=messages:{held_out}"]
        words += ["--set", f"asked=mt-bench:{asked}", "--max-tokens", "24", "--ignore-eos", "--out", str(out)]
        assert main([*words, "--fail-under", "1.0"]) == ExitCode.OK
        assert main([*words, "--fail-under", "4.0"]) == ExitCode.EVALUATION
    report = json.loads(out.read_text())
    ids, questions = report["sets"]
    # Requests arrive one by one, so the engine's last drafts of an answer may be cut elsewhere.
    assert ids["acceptance_length"] == pytest.approx(evaluated["acceptance_length"], abs=0.05)
    assert questions["acceptance_length"] == pytest.approx(evaluated["sets"][1]["acceptance_length"], abs=0.2)
    assert (ids["prompts"], ids["tokens"], ids["tokens_for_others"], ids["num_draft_tokens"]) == (6, 6 * 24, 0, 3)
    assert ids["unigram_length"] == pytest.approx(evaluated["unigram_length"], abs=0.01)  # the ids came back
    assert report["vllm"].startswith("0.")


def test_a_draft_that_does_not_load_is_one_line_of_cause(
    small: Any, evaluated: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert evaluated
    shutil.copytree(small.path / "export" / "vllm", tmp_path / "draft")
    file = tmp_path / "draft" / "config.json"
    config = json.loads(file.read_text())
    config["transformer_layer_config"]["intermediate_size"] += 64
    file.write_text(json.dumps(config))
    with pytest.raises(EngineError) as caught:
        evaluate_draft(small.context(), Terminal(io.StringIO()), tmp_path / "draft", tmp_path / "out")
    assert "with the draft failed: " in caught.value.what
    assert "Error" in caught.value.what
    assert "Traceback" in capfd.readouterr().err
