from pathlib import Path

import pytest

from draftkiln.errors import TrainingError
from draftkiln.train.state import Position, Saves, latest

SETTINGS = {"lr": 1e-3, "target_layer_ids": [2, 4, 5]}


class Never:
    def asked(self) -> bool:
        return False


def saves(folder: Path, **changes: float) -> Saves:
    return Saves(folder, None, SETTINGS, Never(), **{"every_seconds": 600.0, **changes})  # type: ignore[arg-type]


def save(folder: Path, step: int) -> Position:
    kept = saves(folder)
    (folder / kept.temporary(step)).mkdir(parents=True)
    (folder / kept.temporary(step) / "weights").write_text(str(step))
    position = Position(step, 0, step, 1.5)
    kept.publish(position)
    return position


def test_the_newest_state_is_kept_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert latest(folder, SETTINGS) is None
    save(folder, 9)
    position = save(folder, 10)
    assert latest(folder, SETTINGS) == position
    assert [entry.name for entry in folder.iterdir()] == ["10"]


def test_a_state_that_was_being_written_is_not_taken(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    position = save(folder, 9)
    (folder / saves(folder).temporary(12)).mkdir()
    assert latest(folder, SETTINGS) == position
    assert [entry.name for entry in folder.iterdir()] == ["9"]


def test_a_kill_between_two_states_leaves_the_newer(tmp_path: Path) -> None:
    position = save(tmp_path / "other", 10)
    folder = tmp_path / "state"
    save(folder, 9)
    (tmp_path / "other" / "10").rename(folder / "10")
    assert latest(folder, SETTINGS) == position


def test_a_state_of_other_settings_is_refused_by_their_names(tmp_path: Path) -> None:
    save(tmp_path / "state", 9)
    with pytest.raises(TrainingError, match="saved by another training") as caught:
        latest(tmp_path / "state", {**SETTINGS, "lr": 1e-4})
    assert caught.value.why == "lr: 0.001 before, 0.0001 now"


def test_states_are_due_by_steps_and_by_time(tmp_path: Path) -> None:
    assert [saves(tmp_path, every_steps=5).due(step) for step in (4, 5, 6, 10)] == [False, True, False, True]
    assert saves(tmp_path, every_seconds=0.0).due(1)
    assert not saves(tmp_path).due(1)
