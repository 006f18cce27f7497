"""What a start does with its run directory before it does anything else."""

import argparse
import functools
import json
import os
import shutil
from pathlib import Path

import pytest

from draftkiln import cli, pipeline, stage
from draftkiln.ahead import outlooks
from draftkiln.errors import ExitCode, RunDirectoryError
from draftkiln.evaluate import command as evaluate
from draftkiln.extract import manifest, samples
from draftkiln.prepare import command as prepare
from draftkiln.prepare import tokenizer
from draftkiln.recipe.load import load
from draftkiln.recipe.model import STAGES, MakeTarget
from draftkiln.stack import environment
from draftkiln.target import record, resolve
from draftkiln.train import command as train

STACK = "spec0.9.0-vllm0.32.0-cpu"
RECIPE = f"""\
schema_version: 1
name: small
stacks: {{extract: spec0.3.0-vllm0.16.0-cpu, train: {STACK}, evaluate: {STACK}}}
target: {{source: {{path: target}}, load_format: dummy}}
layers: {{aux: [2, 4, 5]}}
data: {{source: {{path: data.jsonl}}, max_tokens: 512}}
validate: {{against: null}}
train: {{draft: {{num_attention_heads: 8, num_key_value_heads: 8, intermediate_size: 64}}}}
"""
READ = {"prepare": prepare.read, "train": train.read, "evaluate": evaluate.read}
TARGET = {"num_hidden_layers": 8, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 128}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a recipe, its data and its target; stages do nothing, in this process."""
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environment, "enter", lambda *_: None)
    monkeypatch.setattr(environment, "ensure", lambda _: None)
    monkeypatch.setattr(pipeline, "_run", cli.main)
    monkeypatch.setattr(tokenizer, "close_stdin", lambda: None)
    folder = tmp_path / "here"
    (folder / "target").mkdir(parents=True)
    (folder / "target" / "config.json").write_text(json.dumps(TARGET))
    (folder / "target" / "tokenizer.json").write_text("{}")
    (folder / "data.jsonl").write_text("{}\n")
    (folder / "recipe.yaml").write_text(RECIPE)
    monkeypatch.chdir(folder)
    return folder


def started(*words, run="runs/small"):
    return cli.main([*words, "--recipe", "recipe.yaml", "--run", run])


def change(folder, before, after):
    file = folder / "recipe.yaml"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))


@pytest.mark.parametrize("command", ["run", "prepare"])
@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("path: target", "path: nowhere", ExitCode.TARGET),
        ("path: data.jsonl", "path: nowhere.jsonl", ExitCode.DATA),
        ("aux: [2, 4, 5]", "aux: [2, 4, 9]", ExitCode.RECIPE),
        (f"evaluate: {STACK}", "evaluate: no-such-stack", ExitCode.STACK),
        (f"evaluate: {STACK}", f"prepare: no-such-stack, evaluate: {STACK}", ExitCode.STACK),
    ],
)
def test_a_start_that_is_refused_leaves_no_run_directory(here, capsys, command, before, after, code):
    change(here, before, after)
    assert started(command) == code
    assert not (here / "runs").exists()
    told = capsys.readouterr().err
    assert "its log is" not in told
    if command == "run":
        assert started(command, "--dry-run") == code
        assert capsys.readouterr().err.partition(": ")[2] in told
        assert not (here / "runs").exists()


def test_the_log_of_another_start_is_not_named_for_one_that_is_refused(here, capsys):
    finish(here, "prepare")
    assert (here / "runs" / "small" / "logs" / "prepare.log").is_file()
    change(here, "max_tokens: 512", "max_tokens: 256")
    capsys.readouterr()
    assert started("run") == ExitCode.RUN_DIRECTORY
    assert capsys.readouterr().err.endswith("stopped at stage prepare\n")


def test_what_one_stage_would_do_is_refused_where_an_earlier_one_is_of_another_recipe(here):
    finish(here, "prepare", "extract")
    change(here, "max_tokens: 512", "max_tokens: 256")
    with pytest.raises(RunDirectoryError, match="stage prepare was made from another recipe"):
        list(outlooks(load(Path("recipe.yaml")), Path("runs/small"), ["train"]))


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
@pytest.mark.parametrize("run", ["link", "link/small"])
def test_a_link_to_nothing_is_refused(here, capsys, more, run):
    (here / "link").symlink_to("nowhere")
    assert started("run", *more, run=run) == ExitCode.STORAGE
    assert "link is a link to nothing" in capsys.readouterr().err


def test_a_record_without_what_the_next_stage_reads_is_told(here, capsys):
    finish(here, "prepare")
    record = here / "runs" / "small" / "prepare" / "stage.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"results": {}}))
    for more in (["--dry-run"], []):
        assert started("run", *more) == ExitCode.RUN_DIRECTORY
        assert "the record of stage prepare names no dataset" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["extract", "train", "evaluate", "show 1", "bench-train"])
def test_a_stage_whose_earlier_one_is_missing_leaves_no_run_directory(here, command):
    assert started(*command.split()) == ExitCode.RUN_DIRECTORY
    assert not (here / "runs").exists()


def test_a_stage_that_is_refused_leaves_a_run_directory_as_it_was(here, capsys):
    finish(here, "prepare")
    for file in (here / "runs" / "small" / "logs").iterdir():
        file.unlink()
    (here / "runs" / "small" / "logs").rmdir()
    there = sorted((here / "runs").rglob("*"))
    change(here, "max_tokens: 512", "max_tokens: 256")
    capsys.readouterr()
    assert started("run") == ExitCode.RUN_DIRECTORY
    assert "recipe.data.max_tokens: 512 before, 256 now" in capsys.readouterr().err
    assert sorted((here / "runs").rglob("*")) == there


def finish(here, *stages):
    """Finish stages of the run as the real commands do, with bodies that make next to nothing."""
    for name in stages:
        assert stage.run(name, arguments(), functools.partial(body, name), read=READ.get(name)) == ExitCode.OK


def arguments():
    parser = argparse.ArgumentParser()
    stage.add_arguments(parser)
    return parser.parse_args(["--recipe", "recipe.yaml", "--run", "runs/small"])


def body(name, context, _terminal):
    folder = context.run.folder(name)
    if name == "prepare":
        (folder / "held_out.jsonl").write_text("{}\n")
        return {"dataset_sha256": "0" * 64}
    if name == "extract":
        head = manifest.Head((2, 4, 5, 8), 64, "bfloat16", "bfloat16", 2, "0" * 64, "stack", "wheel")
        manifest.create(folder / "manifest.jsonl", head, [manifest.Receipt(n, 1, 3, "sum", "ids") for n in range(2)])
        (folder / samples.FOLDER).mkdir()
        for number in range(2):
            (folder / samples.FOLDER / samples.name(number)).write_bytes(b"123")
    if name == "train":
        (folder / "checkpoints" / "0").mkdir(parents=True)
        (folder / "checkpoints" / "0" / "model.safetensors").write_bytes(b"weights")
    return {}


def ahead(capsys):
    """What each stage would do, by a dry run that changes nothing."""
    there = everything()
    capsys.readouterr()
    assert started("run", "--dry-run") == ExitCode.OK
    assert everything() == there
    lines = [line.split(": ", 1) for line in capsys.readouterr().out.splitlines()]
    return {words.split()[0]: told for words, told in lines}


def everything():
    return {path: path.stat().st_mtime_ns for path in sorted(Path().rglob("*"))}


NOTHING = dict.fromkeys(STAGES, "would run")
ALL = dict.fromkeys(STAGES, "done already")


def test_a_dry_run_says_which_stages_are_good_and_which_would_run(here, capsys):
    assert ahead(capsys) == NOTHING
    finish(here, "prepare", "extract")
    assert ahead(capsys) == NOTHING | {"prepare": "done already", "extract": "done already"}
    finish(here, "validate", "train", "export", "evaluate")
    assert ahead(capsys) == ALL


def test_a_dry_run_says_what_would_go_on_and_what_depends_on_it(here, capsys):
    finish(here, "prepare", "extract")
    (here / "runs/small/extract/stage.json").rename(here / "runs/small/extract/begun.json")
    record = here / "runs/small/extract/begun.json"
    record.write_text(json.dumps({"inputs": json.loads(record.read_text())["inputs"]}))
    assert ahead(capsys)["extract"] == "would go on where it stopped"


def test_a_dry_run_sees_files_that_are_gone_or_cut(here, capsys):
    finish(here, *STAGES)
    (here / "runs/small/train/checkpoints/0/model.safetensors").write_bytes(b"weig")
    told = "done; kept if the same comes out of train"
    gone = "would run again: train/checkpoints/0/model.safetensors is gone or was cut"
    assert ahead(capsys) == ALL | {"train": gone, "export": told, "evaluate": told}


def test_a_dry_run_sees_samples_that_would_be_made_anew_and_validated_again(here, capsys):
    finish(here, *STAGES)
    (here / "runs/small/extract/hidden_states" / samples.name(1)).write_bytes(b"")
    told = "done; kept if the same comes out of extract and validate"
    assert ahead(capsys) == {
        "prepare": "done already",
        "extract": "would make 1 samples that are not as they were recorded",
        "validate": "would run again: samples are made anew",
        **dict.fromkeys(("train", "export", "evaluate"), told),
    }


def test_a_dry_run_makes_no_target_and_takes_a_record_for_what_it_cannot_know(here, capsys):
    """As with a run directory that was copied to a machine that has the target not yet."""
    change(here, "{path: target}", "{make: small}")
    found = here.parent / "cache" / "targets"
    made = resolve.location(MakeTarget(make="small"))
    made.mkdir(parents=True)
    (made / "config.json").write_text(json.dumps(TARGET))
    (made / "tokenizer.json").write_text("{}")
    record.write_record(made, {})
    finish(here, "prepare")
    shutil.rmtree(found)
    assert ahead(capsys) == NOTHING | {"prepare": "done already"}
    assert not found.exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda here: change(here, "name: small", "name: large"), "recipe: 'small' there, 'large' now"),
        (lambda here: change(here, "max_tokens: 512", "max_tokens: 256"), "data.max_tokens: 512 before, 256 now"),
        (lambda here: change(here, "aux: [2, 4, 5]", "aux: [2, 4, 6]"), "recipe.layers.aux: [2, 4, 5] before"),
        (lambda here: (here / "data.jsonl").write_text("{}\n{}\n"), "data_sha256"),
        (lambda here: (here / "data.jsonl").unlink(), "data.jsonl: cannot be read"),
        (lambda here: (here / "target" / "tokenizer.json").write_text("[]"), "tokenizer.tokenizer.json"),
        (lambda here: (here / "runs/small/prepare/stage.json").write_text('{"inp'), "cannot read"),
        (lambda here: (here / "runs/small/run.json").unlink(), "is not empty and has no run.json"),
    ],
)
def test_a_dry_run_refuses_what_the_run_itself_refuses(here, capsys, spoil, words):
    finish(here, *STAGES)
    spoil(here)
    there, told = everything(), []
    for more in (["--dry-run"], []):
        capsys.readouterr()
        code = started("run", *more)
        told.append((code, words in capsys.readouterr().err))
        assert code in {ExitCode.RUN_DIRECTORY, ExitCode.DATA}
        if more:
            assert everything() == there
    assert told[0] == told[1]
    assert told[0][1]


@pytest.mark.parametrize(
    ("run", "code"), [("data.jsonl", ExitCode.RUN_DIRECTORY), ("data.jsonl/a/run", ExitCode.STORAGE)]
)
def test_a_place_that_cannot_be_a_run_directory_is_refused_by_a_dry_run_too(here, capsys, run, code):
    for more in (["--dry-run"], []):
        assert started("run", *more, run=run) == code
        assert "data.jsonl is a file" in capsys.readouterr().err


def test_a_read_only_place_is_refused_by_a_dry_run(here, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, _: str(place) != str(here))
    assert started("run", "--dry-run") == ExitCode.STORAGE
    assert "cannot write runs/small" in capsys.readouterr().err
