import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from draftkiln.errors import TrainingError
from draftkiln.stagelog import Terminal
from draftkiln.train.curve import METRICS, Curve
from draftkiln.train.schedule import Schedule, split

SCHEDULE = Schedule((((3, 4), (1,)), ((0,), (2, 5))), training=6, ratio=0.9, max_steps=3)


def report(step: int, loss: float) -> dict[str, Any]:
    values = {"loss": loss, "full_acc_0": 0.5, "full_acc_1": 0.25}
    return {
        "train": values,
        "profile": {"tokens_per_s": 9.87, "step_ms": 500.0},
        "epoch": 0,
        "lr": 1e-3,
        "global_step": step,
    }


def listening(path: Path) -> tuple[Curve, logging.Logger]:
    curve = Curve(path, SCHEDULE, 2, Terminal(io.StringIO()))
    logger = logging.getLogger(METRICS)
    logger.handlers = [curve]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    return curve, logger


def test_each_step_is_a_line(tmp_path: Path) -> None:
    curve, logger = listening(tmp_path / "curve.jsonl")
    logger.info({"settings": 1})
    logger.info(report(0, 4.0))
    logger.info({"val": {"loss_epoch": 3.5, "full_acc_0_epoch": 0.6, "full_acc_1_epoch": 0.3}, "epoch": 0})
    lines = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 1]
    assert (lines[0]["loss"], lines[0]["accuracy"], lines[0]["tokens_per_second"]) == (4.0, [0.5, 0.25], 9.9)
    assert 0.5 <= lines[0]["seconds"] < 5
    assert (lines[1]["validation"], lines[1]["accuracy"]) == (True, [0.6, 0.3])
    assert (len(curve.training), len(curve.validation)) == (1, 1)


def test_lines_are_kept_when_logging_is_configured_anew(tmp_path: Path) -> None:
    curve, logger = listening(tmp_path / "curve.jsonl")
    logging.shutdown([lambda: curve])  # type: ignore[list-item] # what dictConfig does to every handler
    logger.info(report(0, 4.0))
    assert (tmp_path / "curve.jsonl").read_text()


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_with_step_and_batch(tmp_path: Path, loss: float) -> None:
    _, logger = listening(tmp_path / "curve.jsonl")
    logger.info(report(0, 4.0))
    with pytest.raises(TrainingError) as caught:
        logger.info(report(2, loss))
    assert "step 3" in caught.value.what
    assert "samples 0" in caught.value.why
    assert len((tmp_path / "curve.jsonl").read_text().splitlines()) == 2


def test_steps_and_batches_of_a_schedule() -> None:
    assert SCHEDULE.steps == 3
    assert [SCHEDULE.batch(step) for step in range(5)] == [(3, 4), (1,), (0,), (2, 5), ()]
    assert SCHEDULE.tokens([10, 20, 30, 40, 50, 60], most=40) == 40 + 40 + 20 + 10


@pytest.mark.parametrize("samples", range(2, 200))
def test_the_trainer_splits_where_the_schedule_does(samples: int) -> None:
    training, ratio = split(samples)
    assert int(samples * ratio) == training
    assert 0 < training < samples
    assert 0 < ratio < 1
