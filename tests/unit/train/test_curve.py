import io
import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from draftkiln.errors import DataError, TrainingError
from draftkiln.stagelog import Terminal
from draftkiln.train.curve import METRICS, Curve, last_step, read
from draftkiln.train.schedule import Plan, Schedule, split
from draftkiln.train.state import Position

LENGTHS = (10, 20, 30, 40, 40, 40)
SCHEDULE = Schedule((((3, 4), (1,)), ((0,), (2, 5))), training=6, ratio=0.9, max_steps=3, lengths=LENGTHS)


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
    assert [line["tokens"] for line in lines] == [80, 80]
    assert (lines[1]["validation"], lines[1]["accuracy"]) == (True, [0.6, 0.3])
    assert (len(curve.training), len(curve.validation)) == (1, 1)


@pytest.mark.parametrize(
    ("saved", "told"), [(["3", "12"], "the state after step 12 is kept in"), ([], "no state was saved before it")]
)
def test_a_loss_that_is_no_number_is_told_with_its_batch_and_what_is_kept(
    tmp_path: Path, saved: list[str], told: str
) -> None:
    for step in saved:
        (tmp_path / "state" / step).mkdir(parents=True)
    _, logger = listening(tmp_path / "curve.jsonl")
    logger.info(report(0, 4.0))
    with pytest.raises(TrainingError, match="the loss of step 2 is nan") as caught:
        logger.info(report(1, math.nan))
    assert "its batch were samples 1: rows of prepare/dataset" in caught.value.why
    assert told in caught.value.fix


def test_a_resumed_curve_goes_on_after_the_saved_step(tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    _, logger = listening(path)
    logger.info(report(0, 4.0))
    logger.info(report(1, 3.0))
    logger.info({"val": {"loss_epoch": 3.5, "full_acc_0_epoch": 0.6, "full_acc_1_epoch": 0.3}, "epoch": 0})
    logger.info(report(2, 9.0))
    with path.open("a") as file:
        file.write('{"step": 4, "lo')
    begin = Position(step=2, epoch=0, epoch_steps=2, seconds=100.0)
    curve = Curve(path, SCHEDULE, 2, None, begin)
    # the held-out values after step 2 are computed again, for the state was saved before them
    assert [line["step"] for line in read(path)] == [1, 2]
    logger.handlers = [curve]
    logger.info(report(2, 2.0))
    last = last_step(path)
    assert last is not None
    assert (last["step"], last["loss"], last["tokens"]) == (3, 2.0, 110)
    assert last["seconds"] >= 100.5


def test_a_curve_that_begins_anew_is_empty(tmp_path: Path) -> None:
    _, logger = listening(tmp_path / "curve.jsonl")
    logger.info(report(0, 4.0))
    listening(tmp_path / "curve.jsonl")
    assert last_step(tmp_path / "curve.jsonl") is None
    assert last_step(tmp_path / "none.jsonl") is None


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
    assert SCHEDULE.tokens == 40 + 40 + 20 + 10
    assert [SCHEDULE.tokens_until(step) for step in (0, 1, 2)] == [0, 80, 100]


def test_each_device_gets_a_held_out_sample() -> None:
    assert [split(100, devices)[0] for devices in (1, 4, 8)] == [95, 95, 92]
    with pytest.raises(DataError, match="9 samples for 8 devices"):
        Plan(512, 0, 1, None, devices=8).schedule([10] * 9)


@pytest.mark.parametrize("samples", range(2, 200))
def test_the_trainer_splits_where_the_schedule_does(samples: int) -> None:
    training, ratio = split(samples)
    assert int(samples * ratio) == training
    assert 0 < training < samples
    assert 0 < ratio < 1
