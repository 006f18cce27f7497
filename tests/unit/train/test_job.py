import os
import subprocess
import sys
from pathlib import Path

from draftkiln.train.job import FILE, Job, StopFile
from draftkiln.train.schedule import Plan
from draftkiln.train.settings import deciding


def test_other_processes_read_what_was_written(tmp_path: Path) -> None:
    plan = Plan(512, 3, 1, None, devices=8)
    job = Job(str(tmp_path), {"lr": 1e-3, "target_layer_ids": [2, 4, 5]}, {"lr": 1e-3}, plan, 10.0, None, None)
    job.write()
    assert Job.read(tmp_path / FILE) == job
    assert job.begin is None


def test_the_end_is_asked_for_by_a_file_or_by_the_death_of_the_parent(tmp_path: Path) -> None:
    alive = StopFile(tmp_path / "stop", os.getpid())
    assert not alive.asked()
    (tmp_path / "stop").touch()
    assert alive.asked()
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert StopFile(tmp_path / "none", child.pid).asked()


def test_what_loggers_and_folders_are_named_decides_nothing(tmp_path: Path) -> None:
    values = {"lr": 1e-3, "logger": "wandb", "run_name": "r", "save_path": str(tmp_path / "checkpoints")}
    assert deciding(values, tmp_path) == {"lr": 1e-3}
