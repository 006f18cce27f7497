"""The log for programs, and logs that do not grow without end."""

import json
import os

import pytest

from draftkiln import events
from draftkiln.events import Events, rotate


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_line_says_run_stage_stack_and_rank(tmp_path):
    log = Events(tmp_path / "extract.jsonl", {"run": "runs/r", "stage": "extract", "stack": "s"})
    log.write("begin")
    log.write("rank ready", rank=1, process=7)
    first, second = lines(tmp_path / "extract.jsonl")
    assert {key: first[key] for key in ("run", "stage", "stack", "rank", "event")} == {
        "run": "runs/r", "stage": "extract", "stack": "s", "rank": None, "event": "begin",
    }  # fmt: skip
    assert (second["rank"], second["process"]) == (1, 7)
    assert second["at"] >= first["at"] > 1.7e9


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path):
    Events(tmp_path / "none" / "x.jsonl", {}).write("begin")


def test_old_logs_are_kept_by_number_and_the_oldest_goes(tmp_path):
    path = tmp_path / "a.log"
    for number in range(events.KEPT + 3):
        path.write_text(f"{number}" * 20)
        rotate(path, shared=False, largest=10)
    assert not path.exists()
    kept = {file.name: file.read_text()[0] for file in tmp_path.iterdir()}
    assert kept == {"a.log.1": "6", "a.log.2": "5", "a.log.3": "4", "a.log.4": "3"}


def test_a_log_within_bounds_stays(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("short")
    rotate(path, shared=True, largest=10)
    rotate(tmp_path / "none", shared=True, largest=10)
    assert [file.name for file in tmp_path.iterdir()] == ["a.log"]


def test_processes_that_hold_a_log_open_go_on_at_its_new_end(tmp_path):
    path = tmp_path / "a.log"
    held = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(held, b"x" * 100)
    rotate(path, shared=True, largest=10)
    os.write(held, b"new")
    os.close(held)
    assert path.read_bytes() == b"new"
    assert (tmp_path / "a.log.1").read_bytes() == b"x" * 100


def test_events_rotate_as_they_grow(tmp_path, monkeypatch):
    monkeypatch.setattr(rotate, "__kwdefaults__", {"largest": 2000})
    log = Events(tmp_path / "a.jsonl", {"run": "r"})
    for number in range(100):
        log.write("line", text="x" * 50, number=number)
    found = [line for file in sorted(tmp_path.iterdir(), reverse=True) for line in lines(file)]
    assert [line["number"] for line in found] == list(range(100))[-len(found) :]
    assert all(file.stat().st_size < 2200 for file in tmp_path.iterdir())


@pytest.mark.parametrize("largest", [10])
def test_rotation_on_a_full_disk_ends_nothing(tmp_path, monkeypatch, largest):
    def full(*_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "a.log"
    path.write_text("x" * 100)
    monkeypatch.setattr(events.shutil, "copyfile", full)
    rotate(path, shared=True, largest=largest)
    assert path.read_text() == "x" * 100
