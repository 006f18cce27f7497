import dataclasses
import json
import os
from types import SimpleNamespace

import pytest

from draftkiln import checkout, cli
from draftkiln.errors import EngineError, ExitCode, StorageError, UsageError
from draftkiln.matrix import command, environments, pairs, prove, record
from draftkiln.recipe.load import loads
from draftkiln.stack import environment, model

PAGE = f"# Pairs\n\n{record.BEGIN}\nold\n{record.END}\n\nmore\n"


def row(pair, **changes):
    values = {
        "identity": pair.identity,
        "target": "small",
        "date": "2026-11-29",
        "seconds": 1.0,
        "seams": 0,
        "probe": 0,
        "min_cosine": 0.99991,
        "shifted_cosine": 0.71,
    }
    return record.Row(pair.stack, pair.speculators, pair.vllm, pair.patches, **{**values, **changes})


@pytest.fixture(scope="module")
def every():
    return pairs.every_pair()


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A record that is not there yet and its page."""
    (tmp_path / "matrix.md").write_text(PAGE)
    monkeypatch.setattr(record, "json_file", lambda: tmp_path / "matrix.json")
    monkeypatch.setattr(record, "table_file", lambda: tmp_path / "matrix.md")
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def proved(files, monkeypatch):
    """Pairs that were proved, in order; the proof of one named in `fails` fails."""
    done = SimpleNamespace(stacks=[], fails=set())

    def stub(pair, target, work, tell):
        done.stacks.append(pair.stack)
        return row(pair, failed="extract: exit code 11" if pair.stack in done.fails else "")

    monkeypatch.setattr(prove, "prove", stub)
    return done


def test_two_releases_on_four_engines_are_pairs(every):
    # A refresh adds others.
    assert {(pair.speculators, pair.vllm) for pair in every} >= {
        (release, engine) for release in ("0.3.0", "0.4.0.1") for engine in ("0.16.0", "0.18.1", "0.20.2", "0.32.0")
    }


def test_the_page_shows_the_record():
    rows = record.load(record.json_file())
    text = record.table_file().read_text()
    assert record.page(text, rows.values()) == text


def test_a_pair_that_is_not_there_is_a_usage_error(every):
    with pytest.raises(UsageError, match="no pair named spec9"):
        pairs.chosen(["spec9"], every)


def test_a_proof_stands_until_its_lock_changes_and_only_if_it_held(every):
    pair = every[0]
    assert command.why_due(pair, {}) == "never proved"
    assert command.why_due(pair, {pair.stack: row(pair)}) == ""
    assert command.why_due(pair, {pair.stack: row(pair, failed="probe")}) == "failed on 2026-11-29"
    assert command.why_due(dataclasses.replace(pair, identity="other"), {pair.stack: row(pair)})


def test_a_second_run_goes_on_where_the_first_stopped(proved, every, files):
    stacks = [pair.stack for pair in every]
    assert cli.main(["matrix", "--only", stacks[2]]) == ExitCode.OK
    assert cli.main(["matrix"]) == ExitCode.OK
    assert proved.stacks == [stacks[2], *stacks[:2], *stacks[3:]]
    assert list(record.load(files / "matrix.json")) == stacks
    assert cli.main(["matrix", "--only", stacks[0], "--again"]) == ExitCode.OK
    assert proved.stacks[-1] == stacks[0]


def test_a_pair_that_fails_is_in_the_table_and_stops_no_other(proved, every, files, capsys):
    proved.fails.add(every[1].stack)
    assert cli.main(["matrix"]) == ExitCode.PATCHES
    assert len(proved.stacks) == 8
    assert f"{every[1].stack} does not hold" in capsys.readouterr().err
    text = (files / "matrix.md").read_text()
    assert text.count("| holds |") == 7
    assert "**fails**: extract: exit code 11" in text
    assert text.startswith("# Pairs\n")
    assert text.endswith("\n\nmore\n")


def test_a_dry_run_says_what_is_due_and_changes_nothing(proved, every, files, capsys):
    record.save(files / "matrix.json", {every[0].stack: row(every[0])}, [every[0].stack])
    assert cli.main(["matrix", "--dry-run"]) == ExitCode.OK
    assert proved.stacks == []
    assert (files / "matrix.md").read_text() == PAGE
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{every[0].stack}: holds since 2026-11-29"
    assert out[1:] == [f"{pair.stack}: to do, never proved" for pair in every[1:]]


def test_only_an_environment_made_for_the_matrix_goes(files, every):
    stack = model.read(every[0].stack)
    folder = environment.folder_of(stack)
    with environments.borrowed(stack, keep=False):
        folder.mkdir(parents=True)
        (folder / "complete").touch()
    assert not folder.exists()
    folder.mkdir()
    (folder / "complete").touch()
    with environments.borrowed(stack, keep=False) as own:
        assert not own
    assert folder.exists()


def test_an_environment_left_by_a_killed_run_goes_after_the_next(files, every):
    stack = model.read(every[0].stack)
    folder = environment.folder_of(stack)
    abandoned = environments.borrowed(stack, keep=False)
    abandoned.__enter__()
    folder.mkdir(parents=True)
    (folder / "complete").touch()
    with environments.borrowed(stack, keep=False) as own:
        assert own
    assert not folder.exists()


def test_the_recipe_of_a_pair_is_valid_and_runs_on_its_stack_alone():
    for target in command.TARGETS:
        recipe = loads(json.dumps(prove.recipe_of("spec0.3.0-vllm0.16.0-cpu", target)), "pair")
        assert {recipe.stacks.of(stage) for stage in ("prepare", "extract", "validate")} == {"spec0.3.0-vllm0.16.0-cpu"}
        assert recipe.target.source.make == target


def test_a_step_that_fails_is_the_result_and_its_log_stays(every, tmp_path, monkeypatch):
    def steps(pair, target, work, results, tell):
        (work / "run").mkdir(parents=True)
        results |= {"seams": 0, "probe": 0}
        raise EngineError("extract: exit code 11: a | b", why="see the log")

    monkeypatch.setattr(prove, "_steps", steps)
    found = prove.prove(every[0], "small", tmp_path / "work", print)
    assert (found.failed, found.probe, found.min_cosine) == ("extract: exit code 11: a / b: see the log", 0, None)
    assert (tmp_path / "work" / "run").is_dir()
    monkeypatch.setattr(prove, "_steps", lambda *_: "")
    assert prove.prove(every[0], "small", tmp_path / "work", print).failed == ""
    assert not (tmp_path / "work").exists()


def test_a_page_without_its_marks_and_a_spoilt_record_are_told(tmp_path):
    with pytest.raises(StorageError, match="no generated part"):
        record.page("# Pairs\n", [])
    (tmp_path / "matrix.json").write_text('[{"stack": 1}]')
    with pytest.raises(StorageError, match="not a record of pairs"):
        record.load(tmp_path / "matrix.json")


def test_the_project_is_where_the_record_lies():
    assert record.json_file().parent == checkout.root() / "docs"


def test_stages_of_a_proof_run_uncompiled(monkeypatch, tmp_path):
    seen = {}

    def logged(what, _command, _log, variables):
        seen[what] = variables
        if what == "extract":
            raise EngineError("far enough")

    monkeypatch.setattr(prove, "run_logged", logged)
    with pytest.raises(EngineError, match="far enough"):
        prove.numbers("spec0.3.0-vllm0.16.0-cpu", "small", None, tmp_path, {}, print)
    assert {variables["TORCHDYNAMO_DISABLE"] for variables in seen.values()} == {"1"}
    assert {variables["PATH"] for variables in seen.values()} == {os.environ["PATH"]}
