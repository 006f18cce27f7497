import json

import pytest

from draftkiln.errors import RunDirectoryError
from draftkiln.rundir import RunDirectory, differences


def test_case_28_a_run_of_another_recipe_is_refused_by_name(tmp_path):
    RunDirectory.open(tmp_path / "run", "tiny").folder("prepare")
    with pytest.raises(RunDirectoryError) as caught:
        RunDirectory.open(tmp_path / "run", "kimi")
    assert "tiny" in caught.value.why
    assert "kimi" in caught.value.why


def test_case_30_a_run_three_folders_deep_is_made(tmp_path):
    RunDirectory.open(tmp_path / "a" / "b" / "run", "tiny").folder("prepare")
    assert (tmp_path / "a" / "b" / "run" / "run.json").exists()


@pytest.mark.parametrize(
    "write", [lambda run: run.log("prepare"), lambda run: run.folder("prepare"), lambda run: run.begin("prepare", {})]
)
def test_a_run_is_made_by_what_is_first_written_and_not_before(tmp_path, write):
    run = RunDirectory.open(tmp_path / "a" / "run", "tiny")
    assert run.finished("prepare", {}) is None
    assert list(tmp_path.iterdir()) == []
    write(run)
    assert json.loads((run.path / "run.json").read_text())["recipe"] == "tiny"
    with pytest.raises(RunDirectoryError, match="belongs to another run"):
        RunDirectory.open(run.path, "kimi")


def test_of_two_that_begin_at_once_in_one_folder_one_is_refused(tmp_path):
    first, second = RunDirectory.open(tmp_path, "tiny"), RunDirectory.open(tmp_path, "kimi")
    first.folder("prepare")
    with pytest.raises(RunDirectoryError, match="belongs to another run"):
        second.folder("prepare")


def test_a_folder_of_somebody_else_is_not_taken(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(RunDirectoryError, match=r"no run\.json"):
        RunDirectory.open(tmp_path, "tiny")


def test_a_finished_stage_is_not_done_again(tmp_path):
    run = RunDirectory.open(tmp_path / "run", "tiny")
    assert run.finished("prepare", {"data": "x"}) is None
    run.begin("prepare", {"data": "x"})
    run.finish("prepare", {"data": "x"}, {"rows": 3})
    assert run.finished("prepare", {"data": "x"}) == {"rows": 3}


@pytest.mark.parametrize("finish", [True, False])
def test_case_28_changed_inputs_are_refused_by_naming_each(tmp_path, finish):
    run = RunDirectory.open(tmp_path / "run", "tiny")
    before = {"data": "x", "layers": [2, 4, 5], "gone": 1}
    run.begin("extract", before)
    (run.path / "extract" / "manifest.jsonl").touch()
    if finish:
        run.finish("extract", before, {})
    with pytest.raises(RunDirectoryError) as caught:
        run.finished("extract", {"data": "y", "layers": [2, 4, 5], "new": 2})
    for word in ("data: 'x' before, 'y' now", "gone", "new"):
        assert word in caught.value.why
    assert "layers" not in caught.value.why


@pytest.mark.parametrize(
    ("stage", "kept"),
    [
        ("prepare", "answers.jsonl"),
        ("extract", "manifest.jsonl"),
        ("train", "state/12/position.json"),
        ("export", None),
    ],
)
def test_a_stage_that_was_begun_and_kept_nothing_is_bound_to_no_inputs(tmp_path, stage, kept):
    run = RunDirectory.open(tmp_path / "run", "tiny")
    run.begin(stage, {"init_from": "a broken one"})
    assert run.finished(stage, {"init_from": "a good one"}) is None
    if kept is not None:
        (run.path / stage / kept).parent.mkdir(parents=True, exist_ok=True)
        (run.path / stage / kept).touch()
        with pytest.raises(RunDirectoryError, match="was made from other inputs") as caught:
            run.finished(stage, {"init_from": "a good one"})
        assert f"or remove {run.path / stage} to do this stage anew" in caught.value.fix


def test_a_stage_that_needs_an_unfinished_one_says_which(tmp_path):
    run = RunDirectory.open(tmp_path / "run", "tiny")
    with pytest.raises(RunDirectoryError, match="stage extract is not finished"):
        run.require("extract")


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"inputs": {}}', '{"inputs": [], "results": {}}', '{"inputs": {}, "results": 7}',
     '{"inputs": {}, "results": {}, "files": []}'],
)  # fmt: skip
def test_a_damaged_record_is_named(tmp_path, text):
    run = RunDirectory.open(tmp_path / "run", "tiny")
    (run.folder("extract") / "stage.json").write_text(text)
    for read in (run.require, run.lost, lambda stage: run.finished(stage, {})):
        with pytest.raises(RunDirectoryError, match=r"stage\.json"):
            read("extract")


def test_a_file_that_a_later_stage_reads_is_missed_when_it_is_gone_or_cut(tmp_path):
    run = RunDirectory.open(tmp_path / "run", "tiny")
    weights = run.path / "export" / "vllm" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    run.begin("export", {})
    run.finish("export", {}, {})
    assert run.lost("export") == []
    run.require("export")
    for spoil in (lambda: weights.write_bytes(b"weig"), weights.unlink):
        spoil()
        assert run.lost("export") == ["export/vllm/model.safetensors"]
        with pytest.raises(RunDirectoryError, match=r"model\.safetensors is gone or was cut") as caught:
            run.require("export")
        assert "draftkiln export" in caught.value.fix


def test_changed_values_are_named_by_their_key_path():
    before = {"recipe.train": {"lr": 1e-3, "draft": {"head_dim": 64}, "epochs": 2}}
    now = {"recipe.train": {"lr": 5e-3, "draft": {"head_dim": 64}, "seed": 1, "epochs": 2}}
    assert list(differences(before, now)) == [
        "recipe.train.lr: 0.001 before, 0.005 now",
        "recipe.train.seed: nothing before, 1 now",
    ]


def test_a_run_json_in_the_making_is_no_foreign_file(tmp_path):
    (tmp_path / ".run.json.x1.tmp").touch()
    assert RunDirectory.open(tmp_path, "tiny").path == tmp_path
