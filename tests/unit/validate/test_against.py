"""Comparing with a reference alone: what the command line takes, and which stack it goes on in."""

import argparse
import types
from pathlib import Path

import pytest
import yaml

from draftkiln import cli
from draftkiln.errors import ExitCode
from draftkiln.recipe.load import load
from draftkiln.stack import environment
from draftkiln.validate import command

RECIPE = "recipes/tiny-cpu.yaml"


class EnteredError(Exception):
    """Where the command would go on."""


@pytest.fixture
def entered(monkeypatch):
    def enter(name, _arguments):
        raise EnteredError(name)

    monkeypatch.setattr(environment, "enter", enter)


@pytest.mark.parametrize(
    ("words", "stack"),
    [
        (["--against", "vllm"], "extract"),
        (["--against", "transformers"], "train"),
        (["--against", "vllm", "--stack", "mine"], "mine"),
    ],
)
@pytest.mark.usefixtures("entered")
def test_each_reference_runs_where_it_can_load_the_target(tmp_path, words, stack):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    arguments = parser.parse_args(["--recipe", RECIPE, "--run", str(tmp_path), *words])
    with pytest.raises(EnteredError) as caught:
        command.main(arguments)
    stacks = load(arguments.recipe).stacks
    assert str(caught.value) == getattr(stacks, stack, stack)


def test_a_stack_without_a_reference_is_refused(tmp_path, capsys):
    assert cli.main(["validate", "--recipe", RECIPE, "--run", str(tmp_path), "--stack", "x"]) == ExitCode.USAGE
    assert "--stack goes with --against" in capsys.readouterr().err


@pytest.mark.usefixtures("entered")
def test_made_up_weights_are_compared_with_no_reference(tmp_path, capsys):
    recipe = tmp_path / "recipe.yaml"
    content = yaml.safe_load(Path(RECIPE).read_text(encoding="utf-8"))
    content["target"]["load_format"] = "dummy"
    content["validate"] = {"against": None}
    recipe.write_text(yaml.safe_dump(content), encoding="utf-8")
    assert cli.main(["validate", "--recipe", str(recipe), "--run", str(tmp_path), "--against", "vllm"]) == 2
    assert "--against vllm: the weights were made up" in capsys.readouterr().err


def test_what_agreed_is_told_with_the_worst():
    found = [
        types.SimpleNamespace(index=index, layer=layer, min_cosine=cosine, median_cosine=0.99991, nearest=nearest)
        for index, layer, cosine, nearest in [(0, 2, 0.9999, 1.0), (0, 8, 0.9971, 0.98), (3, 2, 0.9998, 1.0)]
    ]
    text = command._agreed("vllm", found)
    assert (
        "2 samples agree with vllm: least cosine 0.99710 (layer 8), median 0.99991 or more, at least 98.0% of" in text
    )
