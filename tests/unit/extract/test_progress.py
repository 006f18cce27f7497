"""Progress of an extraction and `draftkiln status`: true figures, an end told only when it can be."""

import dataclasses
import json
import os
import types

import pytest

from draftkiln import cli
from draftkiln.extract import manifest, progress
from draftkiln.extract.manifest import Receipt


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(value=1000.0)
    stub = types.SimpleNamespace(monotonic=lambda: now.value, time=lambda: now.value)
    monkeypatch.setattr(progress, "time", stub)
    return now


def receipts(*rows):
    return [Receipt(index, count, 10 * count, "c", "t") for index, count in enumerate(rows)]


def make(tmp_path, clock, shown, **more):
    show = lambda text, *, last, **_: shown.append((text, last))  # noqa: E731 - a stand-in of one line
    return progress.Progress(tmp_path, 100, 10_000, show, tmp_path / progress.FILE, _began=clock.value, **more)


def test_the_time_left_is_told_after_thirty_seconds_of_measuring(tmp_path, clock):
    shown = []
    found = make(tmp_path, clock, shown)
    clock.value += 29
    found.count(receipts(100), 3)
    assert "left" not in shown[-1][0]
    clock.value += 10
    found.count(receipts(1000), 3)
    assert "100 tok/s (28 on average)" in shown[-1][0]
    # 8900 tokens remain at the 100 tok/s of the last half minute
    assert "1 min 29 s left" in shown[-1][0]


def test_the_state_is_kept_whole_for_other_terminals_and_for_prometheus(tmp_path, clock):
    shown = []
    found = make(tmp_path, clock, shown, metrics=tmp_path / "draftkiln.prom")
    clock.value += 2
    found.count(receipts(*[100] * 99), 1)
    assert progress.read(tmp_path / progress.FILE).tokens == 9900
    clock.value += 0.1
    found.count(receipts(100), 0)
    assert shown[-1][1] is True
    kept = progress.read(tmp_path / progress.FILE)
    assert (kept.samples, kept.tokens, kept.bytes, kept.in_flight) == (100, 10_000, 100_000, 0)
    text = (tmp_path / "draftkiln.prom").read_text()
    assert "# TYPE draftkiln_extract_tokens gauge\ndraftkiln_extract_tokens 10000\n" in text
    assert {path.name for path in tmp_path.iterdir()} == {progress.FILE, "draftkiln.prom"}


def run_directory(tmp_path):
    run = tmp_path / "run"
    (run / "extract").mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"schema_version": 1, "recipe": "tiny"}))
    (run / "extract" / "begun.json").write_text("{}")
    head = manifest.Head((1, 2), 8, "bfloat16", "float32", 40, "d", "s", "p")
    manifest.create(run / "extract" / manifest.FILE, head)
    manifest.append(run / "extract" / manifest.FILE, receipts(5, 5, 5))
    return run


def test_status_shows_a_running_extraction_and_changes_nothing(tmp_path, capsys):
    run = run_directory(tmp_path)
    state = progress.State(os.getpid(), 3, 40, 15, 200, 150, 1.0, 15.0, 15.0, 2, 10**9, 12.0, 0.0)
    (run / "extract" / progress.FILE).write_text(json.dumps(dataclasses.asdict(state)))
    path = run / "extract" / manifest.FILE
    path.write_bytes(path.read_bytes() + b'{"index": 4, "ro')
    before = path.read_bytes()
    assert cli.main(["status", str(run)]) == 0
    out = capsys.readouterr().out
    assert "recipe tiny" in out
    assert "extract: 3 of 40 samples durable; of this start: 3/40 samples, 15 tok/s" in out
    assert "train: not begun" in out
    assert path.read_bytes() == before


def test_status_tells_when_nothing_was_written_for_long(tmp_path, capsys):
    run = run_directory(tmp_path)
    state = progress.State(2**22 + 5, 3, 40, 15, 200, 150, 1.0, 15.0, 15.0, 2, 10**9, 12.0, 0.0)
    (run / "extract" / progress.FILE).write_text(json.dumps(dataclasses.asdict(state)))
    assert cli.main(["status", str(run)]) == 0
    assert "nothing was written for" in capsys.readouterr().out


def test_status_of_something_else_is_refused(tmp_path, capsys):
    assert cli.main(["status", str(tmp_path)]) == 9
    assert "no run directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ['{"inputs": {}}', '{"inputs": {}, "results": []}', "[" * 100_000, '{"inputs": {"a": "\\ud800"}, "results": {}}'],
)
def test_a_damaged_record_is_told_by_its_file(tmp_path, capsys, text):
    (tmp_path / "prepare").mkdir()
    (tmp_path / "run.json").write_text('{"recipe": "r"}')
    (tmp_path / "prepare" / "stage.json").write_text(text)
    assert cli.main(["status", str(tmp_path)]) == 9
    assert f"cannot read {tmp_path / 'prepare' / 'stage.json'}" in capsys.readouterr().err
