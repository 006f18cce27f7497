import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from draftkiln.errors import EngineError
from draftkiln.evaluate.command import _evaluate
from draftkiln.evaluate.evaluation import evaluate_draft
from draftkiln.stagelog import Terminal

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def evaluated(small: Any, exported: dict[str, Any]) -> dict[str, Any]:
    assert exported
    results: dict[str, Any] = small.stage("evaluate", _evaluate)
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
