import subprocess
import sys
from pathlib import Path

import pytest

from draftkiln.train import bench
from draftkiln.train.bench import Measured, summary, table


def test_the_pace_leaves_the_first_steps_out_and_losses_are_compared_step_by_step() -> None:
    ours = [Measured(20.0, [4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 1.0, 90.0], 31.0)]
    theirs = [Measured(17.5, [4.0, 3.5, 2.0, 1.0], [1.0, 1.0, 1.0, 100.0], 29.5)]
    found = summary(ours, theirs)
    assert (found["ratio"], found["start_overhead_seconds"], found["largest_loss_difference"]) == (0.9, 2.5, 0.5)
    assert found["processor_seconds"] == {"draftkiln": 31.0, "speculators": 29.5}
    lines = table(found)
    assert any("ratio of tokens/s: 0.9; overhead at start: 2.5 s" in line for line in lines)
    assert len({len(line) for line in lines[1:5]}) == 1, "columns stand under each other"


def test_the_time_of_all_cores_is_that_of_a_process_and_its_ended_children() -> None:
    work = "import subprocess, sys, time\nwhile time.process_time() < 0.3: pass\n"
    code = f"{work}subprocess.run([sys.executable, '-c', {work!r}])\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert bench._processor_seconds(process.pid) >= 0.55
        process.kill()
    assert bench._processor_seconds(process.pid) == 0


def test_the_two_take_turns_on_the_same_settings_and_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []

    def ran(side: str, place: Path) -> Measured:
        order.append((side, str(place.relative_to(tmp_path))))
        return Measured(1.0, [1.0], [1.0])

    monkeypatch.setattr(bench, "by_stage", lambda _recipe, _run, folder, steps: ran(f"stage of {steps}", folder))
    monkeypatch.setattr(bench, "by_hand", lambda train, _folder: ran("hand", train))
    ours, theirs = bench._alternated(None, tmp_path, tmp_path, 5, 3)  # type: ignore[arg-type]
    assert order[:2] == [("stage of 1", "warm"), ("hand", "warm/run/train")]
    assert order[2:4] == [("stage of 5", "stage-0"), ("hand", "stage-0/run/train")]
    assert order[4:6] == [("hand", "stage-0/run/train"), ("stage of 5", "stage-1")]
    assert order[6:] == [("stage of 5", "stage-2"), ("hand", "stage-2/run/train")]
    assert (len(ours), len(theirs)) == (3, 3), "the warm ones are not among them"
