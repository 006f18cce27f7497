"""Training on several devices, here two CPU processes that torchrun starts."""

import io
from pathlib import Path
from typing import Any

import pytest

from draftkiln.errors import SystemMissingError
from draftkiln.stagelog import Terminal
from draftkiln.train import curve, schedule, several
from draftkiln.train.command import _train

pytestmark = pytest.mark.engine


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in curve.read(folder / "train" / "curve.jsonl")]


def test_two_processes_learn_what_one_learns(small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As many held-out samples as the two processes need.
    monkeypatch.setattr(schedule, "_VALIDATION_SHARE", 0.1)
    runs = {}
    # Samples are 128 tokens long: two processes with a sample each see what one sees with two.
    for devices, tokens in ((1, 256), (2, 128)):
        folder = tmp_path / str(devices)
        folder.mkdir()
        for stage in ("prepare", "extract", "validate"):
            (folder / stage).symlink_to(small.path / stage, target_is_directory=True)
        run = type(small)(folder, small.target)
        changes = {"train__devices": devices, "train__tokens_per_step": tokens, "train__max_steps": 4}
        results = _train(run.context(**changes), Terminal(io.StringIO()))
        assert results["steps"] == 4
        runs[devices] = folder
    alone, together = losses(runs[1]), losses(runs[2])
    # The last line is the loss of the two held-out samples.
    assert together == pytest.approx(alone, rel=1e-3)
    assert together[3] < together[0]
    assert len(together) == 5


def test_more_devices_than_there_are_are_refused() -> None:
    with pytest.raises(SystemMissingError, match=r"train.devices is 4000"):
        several.refuse_missing(4000)


def test_processes_are_started_by_torchrun() -> None:
    assert several.command(Path("job.json"), 8)[1:] == [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "8",
        "-m",
        "draftkiln.train.job",
        "job.json",
    ]
