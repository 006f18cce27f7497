"""What a start does with its run directory before it does anything else."""

import json

import pytest

from draftkiln import cli, pipeline, stage
from draftkiln.errors import ExitCode
from draftkiln.prepare import tokenizer
from draftkiln.stack import environment

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
    assert "its log is" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["extract", "train", "evaluate", "show 1", "bench-train"])
def test_a_stage_whose_earlier_one_is_missing_leaves_no_run_directory(here, command):
    assert started(*command.split()) == ExitCode.RUN_DIRECTORY
    assert not (here / "runs").exists()


def test_a_stage_that_is_refused_leaves_a_run_directory_as_it_was(here, capsys):
    assert stage.run("prepare", arguments(), lambda *_: {"samples": 1}) == ExitCode.OK
    for file in (here / "runs" / "small" / "logs").iterdir():
        file.unlink()
    (here / "runs" / "small" / "logs").rmdir()
    there = sorted((here / "runs").rglob("*"))
    change(here, "max_tokens: 512", "max_tokens: 256")
    capsys.readouterr()
    assert started("run") == ExitCode.RUN_DIRECTORY
    assert "recipe.data.max_tokens: 512 before, 256 now" in capsys.readouterr().err
    assert sorted((here / "runs").rglob("*")) == there


def arguments():
    parser = cli.argparse.ArgumentParser()
    stage.add_arguments(parser)
    return parser.parse_args(["--recipe", "recipe.yaml", "--run", "runs/small"])
