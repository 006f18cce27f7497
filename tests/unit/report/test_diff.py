import json

import made_run
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.cli import main
from draftkiln.errors import ExitCode
from draftkiln.report import diff
from draftkiln.report.records import Records


@pytest.fixture
def runs(tmp_path):
    return made_run.write(tmp_path / "a"), made_run.write(tmp_path / "b")


def edit(run, file, change):
    content = json.loads((run / file).read_text())
    change(content)
    made_run.put(run / file, content)


def found(runs):
    return list(diff.compare(*(Records.open(run) for run in runs)))


def test_the_same_run_twice_is_no_difference(runs, capsys):
    assert main(["diff", *map(str, runs)]) == ExitCode.OK
    assert capsys.readouterr().out == "no difference\n"


def test_times_are_told_and_do_not_count(runs, capsys):
    edit(runs[1], "train/stage.json", lambda record: record["results"].update(stage_seconds=99.5, seconds_per_step=7))
    edit(runs[1], "evaluate/stage.json", lambda record: record["results"]["sets"][1].update(tokens_per_second=5))
    assert main(["diff", *map(str, runs)]) == ExitCode.OK
    out = capsys.readouterr().out
    assert out.startswith("no difference but times\n")
    assert "stage_seconds: 61.5 | 99.5" in out
    assert "sets.1.tokens_per_second: 19.2 | 5" in out


def test_inputs_come_first_and_what_follows_from_them_is_told_apart(runs, capsys):
    def change(record):
        record["inputs"]["recipe.data"]["source"]["path"] = "other"
        record["results"]["dataset_sha256"] = made_run.sha("other")

    edit(runs[1], "prepare/stage.json", change)
    edit(runs[1], "extract/stage.json", lambda record: record["inputs"].update(
        {"prepare.record": made_run.sha(1), "dataset_sha256": made_run.sha(2)}))  # fmt: skip
    edit(runs[1], "evaluate/stage.json", lambda record: record["results"].update(acceptance_length=1.5))
    assert main(["diff", *map(str, runs)]) == ExitCode.DIFFERENT
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["inputs", "  prepare", '    recipe.data.source.path: "plain" | "other"']
    follows = lines.index("inputs that differ because an earlier stage does")
    assert lines[follows + 1] == "  extract: dataset_sha256, prepare.record"
    assert lines.index("results") > follows
    assert "    acceptance_length: 2.4567 | 1.5" in lines


def test_one_cause_that_several_stages_recorded_is_told_once(runs, capsys):
    for stage in ("prepare", "train", "export"):
        edit(runs[1], f"{stage}/stage.json", lambda record: record["inputs"].update(stack="newer"))
    assert main(["diff", *map(str, runs)]) == ExitCode.DIFFERENT
    out = capsys.readouterr().out
    assert out.count("newer") == 1
    assert 'stack (also train, export): "spec0.9.0-vllm0.32.0-cpu" | "newer"' in out


def test_samples_of_other_bytes_are_counted(runs):
    manifest = runs[1] / "extract" / "manifest.jsonl"
    lines = manifest.read_text().splitlines(keepends=True)
    receipt = json.loads(lines[6])
    lines[6] = json.dumps({**receipt, "checksum": "0" * 32}) + "\n"
    manifest.write_text("".join(lines[:-1]))
    texts = [f"{one.path}: {one.left} {one.right}" for one in found(runs)]
    assert any(text.startswith("1 of 59 samples have other bytes, the first is 5") for text in texts)
    assert "samples that only this run has: 1 0" in texts


@pytest.mark.parametrize("line", ['{"withdrawn": [[1]]}', '{"withdrawn": 5}', '{"index": [], "checksum": "x"}'])
def test_a_line_of_the_manifest_that_is_no_receipt_counts_as_none(runs, line):
    with (runs[0] / "extract" / "manifest.jsonl").open("a") as file:
        file.write(line + "\n")
    assert found(runs) == []


def test_a_stage_that_one_run_has_not_is_told(tmp_path):
    runs = made_run.write(tmp_path / "a"), made_run.write(tmp_path / "b", until="train")
    differences = [(one.stage, one.path, one.left, one.right) for one in found(runs)]
    assert differences == [("export", "state", "done", "not begun"), ("evaluate", "state", "done", "not begun")]


def test_a_stage_that_is_begun_is_compared_by_its_inputs(tmp_path):
    runs = made_run.write(tmp_path / "a"), made_run.write(tmp_path / "b", until="train")
    record = json.loads((runs[0] / "export" / "stage.json").read_text())
    made_run.put(runs[1] / "export" / "begun.json", {"inputs": {**record["inputs"], "stack": "x"}})
    differences = [(one.part, one.stage, one.path) for one in found(runs)]
    assert (diff.INPUTS, "export", "stack") in differences
    assert (diff.RESULTS, "export", "state") in differences
    assert not [one for one in differences if one[1] == "export" and one[2].startswith("weights")]


def test_a_record_that_cannot_be_read_is_a_difference(runs):
    (runs[1] / "train" / "stage.json").write_text("{")
    told = [one for one in found(runs) if one.stage == "train"]
    assert told[0].path == "state"
    assert str(told[0].right).startswith("unreadable")


@pytest.mark.parametrize("file", ["run.json", "evaluate/stage.json"])
@pytest.mark.parametrize("text", ["{", "[]", "null"])
def test_two_damaged_records_are_never_called_the_same(runs, file, text):
    for run in runs:
        (run / file).write_text(text)
    assert main(["diff", *map(str, runs)]) != ExitCode.OK


def test_json_holds_whole_values_and_leaves_out_what_is_absent(runs, capsys):
    edit(runs[1], "train/stage.json", lambda record: record["results"].update(checkpoint_sha256="f" * 64, more=None))
    assert main(["diff", *map(str, runs), "--json"]) == ExitCode.DIFFERENT
    content = json.loads(capsys.readouterr().out)
    assert (content["schema_version"], content["same"]) == (1, False)
    by_path = {one["path"]: one for one in content["differences"]}
    assert by_path["checkpoint_sha256"]["right"] == "f" * 64
    assert by_path["more"] == {"part": "results", "stage": "train", "path": "more", "right": None}


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    made_run.write(tmp_path / "a")
    assert main(["diff", str(tmp_path / "a"), str(tmp_path)]) == ExitCode.RUN_DIRECTORY
    assert "no run directory" in capsys.readouterr().err


def test_the_exit_code_is_documented(capsys):
    with pytest.raises(SystemExit):
        main(["diff", "--help"])
    assert f"{ExitCode.DIFFERENT.value}: different" in " ".join(capsys.readouterr().out.split())


@given(left=st.text(max_size=20), right=st.text(max_size=20))
def test_text_of_files_cannot_steer_the_terminal(tmp_path_factory, left, right):
    folder = tmp_path_factory.mktemp("runs")
    runs = [folder / "a", folder / "b"]
    for run, text in zip(runs, (left, right), strict=True):
        made_run.put(run / "run.json", {"recipe": text, "schema_version": 1})
    lines = list(diff.text(found(runs)))
    assert all(line.isprintable() for line in lines)
    assert (lines == ["no difference"]) == (left == right)
