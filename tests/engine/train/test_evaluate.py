import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftkiln import arithmetic
from draftkiln.cli import main
from draftkiln.errors import EngineError, ExitCode
from draftkiln.evaluate import engines
from draftkiln.evaluate.command import _evaluate
from draftkiln.evaluate.engines import Request
from draftkiln.evaluate.evaluation import evaluate_draft
from draftkiln.evaluate.job import Answers, Job, Sampling
from draftkiln.prepare import server
from draftkiln.stagelog import Terminal

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two questions of two turns for the target's chat template, in the form of MT-Bench."""
    file = tmp_path_factory.mktemp("sets") / "question.jsonl"
    rows = [{"question_id": place, "turns": ["bara base bati", "bavo"]} for place in range(2)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def evaluated(small: Any, exported: dict[str, Any], asked: Path) -> dict[str, Any]:
    assert exported
    results: dict[str, Any] = small.stage("evaluate", _evaluate, evaluate__sets=sets(asked))
    return results


def sets(asked: Path) -> list[dict[str, str]]:
    return [{"name": "asked", "path": str(asked), "form": "mt-bench"}]


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


def test_sets_are_measured_apart_on_the_same_engine_and_the_held_out_one_stands_for_the_whole(
    evaluated: dict[str, Any],
) -> None:
    held_out, asked = evaluated["sets"]  # in this order, though `asked` comes first by name
    assert (held_out["set"], asked["set"]) == ("held-out", "asked")
    assert (held_out["lossless"], asked["lossless"]) == (True, True)
    assert (held_out["prompts"], asked["prompts"]) == (6, 2)
    assert (held_out["answers"], asked["answers"]) == (6, 4)
    assert (held_out["tokens"], asked["tokens"]) == (6 * 24, 4 * 24)
    assert held_out["acceptance_length"] == evaluated["acceptance_length"]
    assert held_out["acceptance_length"] > held_out["unigram_length"] + 0.5
    assert all(one["tokens_per_second"] > 0 and one["tokens_per_second_alone"] > 0 for one in evaluated["sets"])


def test_second_turns_go_on_from_the_engines_own_first_answers_alone_and_with_the_draft(
    small: Any, evaluated: dict[str, Any]
) -> None:
    assert evaluated["sets"][1]["lossless"]
    files = (small.path / "evaluate" / f"{name}.json" for name in ("target", "drafted"))
    alone, drafted = (Answers.of_json(json.loads(file.read_text())).rounds[1].outputs for file in files)
    assert [len(turns) for turns in alone] == [2, 2]
    assert alone == drafted
    assert {len(answer) for turns in alone for answer in turns} == {24}


def test_sampled_answers_with_a_draft_are_refused_where_the_engine_garbles_their_temperature(
    small: Any, evaluated: dict[str, Any], tmp_path: Path
) -> None:
    """Measured on vLLM 0.32.0: a target that is sure of each token (0.99999) answered otherwise in 40 of 144 places."""
    assert evaluated
    asked = json.loads((small.path / "evaluate" / "drafted-job.json").read_text())
    job = replace(Job.of_json(asked), samplings=[Sampling(0.5)])
    with pytest.raises(EngineError, match="garbles the temperature of drafted tokens on a CPU"):
        engines.answer(Request("with the draft", job, tmp_path / "drafted.json"), Terminal(io.StringIO()))


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


def test_case_9_the_folder_for_sglang_is_accepted_like_the_one_for_vllm(
    small: Any, evaluated: dict[str, Any], asked: Path, tmp_path: Path
) -> None:
    folder = small.path / "export" / "sglang"
    written = json.loads((folder / "config.json").read_text())["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    context = small.context(evaluate__sets=sets(asked))
    found = evaluate_draft(context, Terminal(io.StringIO()), folder, tmp_path / "other")
    report = json.loads((tmp_path / "other" / "result.json").read_text())
    assert (written, report["draft_layer_ids"]) == ([1, 3, 4], [2, 4, 5])
    for key in ("acceptance_length", "acceptance_per_position", "drafts", "tokens", "lossless"):
        assert found[key] == evaluated[key]


def test_a_draft_that_does_not_load_is_one_line_of_cause(
    small: Any, evaluated: dict[str, Any], asked: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert evaluated
    shutil.copytree(small.path / "export" / "vllm", tmp_path / "draft")
    file = tmp_path / "draft" / "config.json"
    config = json.loads(file.read_text())
    config["transformer_layer_config"]["hidden_act"] = "unheard-of"  # what an engine computes is for the engine to say
    file.write_text(json.dumps(config))
    with pytest.raises(EngineError) as caught:
        evaluate_draft(
            small.context(evaluate__sets=sets(asked)), Terminal(io.StringIO()), tmp_path / "draft", tmp_path / "out"
        )
    assert "with the draft failed: " in caught.value.what
    assert "Error" in caught.value.what
    assert "Traceback" in capfd.readouterr().err
