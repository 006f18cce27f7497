from pathlib import Path

import pytest

from draftkiln.train import bench
from draftkiln.train.bench import Measured, summary, table


def test_the_pace_leaves_the_first_steps_out_and_losses_are_compared_step_by_step() -> None:
    ours = [Measured(20.0, [4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 1.0, 90.0])]
    theirs = [Measured(17.5, [4.0, 3.5, 2.0, 1.0], [1.0, 1.0, 1.0, 100.0])]
    found = summary(ours, theirs)
    assert (found["ratio"], found["start_overhead_seconds"], found["largest_loss_difference"]) == (0.9, 2.5, 0.5)
    assert any("ratio of tokens/s: 0.9; overhead at start: 2.5 s" in line for line in table(found))


def test_the_two_take_turns_on_the_same_settings_and_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []

    def ran(side: str, place: Path) -> Measured:
        order.append((side, str(place.relative_to(tmp_path))))
        return Measured(1.0, [1.0], [1.0])

    monkeypatch.setattr(bench, "by_stage", lambda _recipe, _run, folder, _steps: ran("stage", folder))
    monkeypatch.setattr(bench, "by_hand", lambda train, _folder: ran("hand", train))
    bench._alternated(None, tmp_path, tmp_path, 5, 3)  # type: ignore[arg-type]
    first, second = ("stage-0", "stage-0/run/train"), ("stage-1", "stage-0/run/train")
    assert order[:2] == [("stage", first[0]), ("hand", first[1])]
    assert order[2:4] == [("hand", second[1]), ("stage", second[0])]
    assert order[4:] == [("stage", "stage-2"), ("hand", "stage-2/run/train")]
