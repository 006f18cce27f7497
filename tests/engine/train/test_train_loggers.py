"""Loggers that the trainer feeds."""

import io
from pathlib import Path
from typing import Any

import pytest

from draftkiln.stagelog import Terminal
from draftkiln.train import curve
from draftkiln.train.command import _train

pytestmark = pytest.mark.engine


def test_tensorboard_gets_what_the_curve_holds(small: Any, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for stage in ("prepare", "extract", "validate"):
        (tmp_path / stage).symlink_to(small.path / stage, target_is_directory=True)
    run = type(small)(tmp_path, small.target)
    _train(run.context(train__max_steps=3, train__loggers=["tensorboard"]), Terminal(io.StringIO()))
    lines = [line for line in curve.read(tmp_path / "train" / "curve.jsonl") if not line.get("validation")]
    (folder,) = {file.parent for file in (tmp_path / "train" / "logs").rglob("events.out.tfevents.*")}
    events = EventAccumulator(str(folder))
    events.Reload()
    written = events.Scalars("train/loss")
    assert [event.step for event in written] == [0, 1, 2]
    assert [event.value for event in written] == pytest.approx([line["loss"] for line in lines])
