from pathlib import Path

import pytest

from draftkiln.errors import ExitCode, ProblemsError
from draftkiln.train import loggers


def test_a_logger_that_the_stack_lacks_is_refused_with_the_file_to_change() -> None:
    loggers.refuse_missing([], "s")
    loggers.refuse_missing(["json"], "s")
    with pytest.raises(ProblemsError) as caught:
        loggers.refuse_missing(["no_such_logger", "json", "nor_this"], "s")
    assert caught.value.code == ExitCode.SYSTEM
    assert [problem.what for problem in caught.value.problems] == [
        "train.loggers: no_such_logger cannot be imported in stack s",
        "train.loggers: nor_this cannot be imported in stack s",
    ]
    assert "containers/stacks/s/stack.yaml" in str(caught.value)


def test_loggers_stay_on_this_host_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    variables = {"WANDB_MODE": "online"}
    loggers.keep_local(["wandb", "mlflow", "trackio", "tensorboard"], tmp_path, variables)
    assert variables["WANDB_MODE"] == "online"
    assert variables["MLFLOW_TRACKING_URI"] == f"file:{tmp_path}/mlruns"
    assert variables["TRACKIO_DIR"] == f"{tmp_path}/trackio"
    fresh: dict[str, str] = {}
    loggers.keep_local(["wandb"], tmp_path, fresh)
    assert fresh["WANDB_MODE"] == "offline"
