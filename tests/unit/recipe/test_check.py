"""Checks against the target's facts, the stacks and what is shipped."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from draftkiln import cli
from draftkiln.errors import ExitCode
from draftkiln.recipe import check, shipped
from draftkiln.recipe.load import load, loads

GOOD = """\
schema_version: 1
name: good
stacks: {extract: a, train: b, evaluate: b}
target:
  source: {make: small}
  tensor_parallel_size: 1
layers:
  aux: [2, 4, 5]
data:
  source: {synthetic: 48}
train:
  draft: {num_attention_heads: 8, num_key_value_heads: 4, intermediate_size: 512}
"""


def facts(**changes):
    return SimpleNamespace(**{"num_layers": 8, "num_heads": 8, "vocab_size": 288, "max_positions": 8192} | changes)


def recipe(before="", after=""):
    return loads(GOOD.replace(before, after) if before else GOOD, "r.yaml")


def test_a_recipe_that_fits_its_target_has_no_problem():
    assert check.problems_on_target(recipe(), facts()) == []


def test_a_layer_id_that_is_the_last_or_beyond_is_named_with_the_bounds():
    found = check.problems_on_target(recipe("[2, 4, 5]", "[2, 8, 9]"), facts())
    assert "id 8 is the state after the last layer" in found[0]
    assert "outside 1..7" in found[1]
    assert "[2, 4, 5]" in found[0]


def test_on_a_shallow_target_even_the_default_is_told_to_collide():
    (found,) = check.problems_on_target(recipe(), facts(num_layers=5))
    assert "captured always" in found
    assert "the default [2, 2, 2] does not fit" in found


def test_case_24_layers_are_judged_by_the_text_part():
    target = pytest.importorskip("draftkiln.target.facts")
    raw = {"num_hidden_layers": 4, "text_config": {"num_hidden_layers": 8}}
    text = target.text_config(raw)
    assert check.problems_on_target(recipe(), facts(num_layers=text["num_hidden_layers"])) == []
    assert check.problems_on_target(recipe(), facts(num_layers=raw["num_hidden_layers"]))


def test_case_71_tensor_parallel_must_divide_the_heads():
    (found,) = check.problems_on_target(recipe("parallel_size: 1", "parallel_size: 3"), facts())
    assert "3 does not divide the target's 8 attention heads; use one of [1, 2, 4, 8]" in found


def test_samples_longer_than_the_positions_and_a_draft_vocabulary_above_the_targets_are_refused():
    found = check.problems_on_target(recipe("512}", "512, vocab_size: 300}"), facts(max_positions=256))
    assert [problem.split(":")[0] for problem in found] == ["data.max_tokens", "train.draft.vocab_size"]
    assert check.problems_on_target(recipe(), facts(max_positions=0)) == []


def test_stacks_without_a_folder_are_told_by_key_and_line(tmp_path: Path, capsys):
    text = shipped.find("tiny-cpu").read_text(encoding="utf-8")
    file = tmp_path / "r.yaml"
    text = text.replace("extract: spec", "extract: gone-spec").replace("evaluate: spec", "evaluate: lost-spec")
    file.write_text(text)
    assert cli.main(["recipes", "validate", str(file)]) == ExitCode.RECIPE
    said = capsys.readouterr().err
    line = 1 + next(number for number, line in enumerate(text.splitlines()) if "extract: gone" in line)
    assert f"{file}:{line}: stacks.extract: there is no stack 'gone-spec" in said
    assert "stacks.evaluate: there is no stack 'lost-spec" in said
    assert "choose one of: spec" in said


@pytest.mark.parametrize("name", shipped.names())
def test_every_shipped_recipe_is_right_and_starts_with_its_launch_line(name):
    file = shipped.find(name)
    found = load(file)
    text = file.read_text(encoding="utf-8")
    assert found.name == name
    assert f"#   draftkiln run --recipe recipes/{name}.yaml --run runs/" in text
    assert re.search(r"(?i)# (rough )?cost on ", text)
    assert cli.main(["recipes", "validate", str(file)]) == 0


def test_the_shipped_recipes_are_those_of_the_contract():
    assert {"tiny-cpu", "smollm2-135m-cpu", "kimi-k2.5-int4-tp8"} <= set(shipped.names())
    kimi = load(shipped.find("kimi-k2.5-int4-tp8"))
    assert kimi.layers.captured(61) == (2, 30, 58, 61)
    assert (kimi.target.tensor_parallel_size, kimi.data.max_tokens) == (8, 512)


def test_ls_names_every_recipe_and_validate_reports_all_files(tmp_path: Path, capsys):
    from draftkiln.cli import main

    assert main(["recipes", "ls"]) == ExitCode.OK
    listed = capsys.readouterr().out
    assert [line.split()[0] for line in listed.splitlines()] == shipped.names()
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: X\n", encoding="utf-8")
    assert main(["recipes", "validate", str(bad), str(tmp_path / "none.yaml")]) == ExitCode.RECIPE
    text = capsys.readouterr().err
    assert "bad.yaml:1: name" in text
    assert "none.yaml: no such recipe" in text


def test_cp_makes_a_recipe_of_another_name_and_never_overwrites(tmp_path: Path, capsys):
    from draftkiln.cli import main

    file = tmp_path / "My Own.yaml"
    assert main(["recipes", "cp", "tiny-cpu", str(file)]) == ExitCode.OK
    assert load(file).name == "my-own"
    assert f"--recipe {file}" in file.read_text(encoding="utf-8")
    assert main(["recipes", "cp", "tiny-cpu", str(file)]) == ExitCode.USAGE
    assert main(["recipes", "cp", "nothing", str(tmp_path / "x.yaml")]) == ExitCode.RECIPE
    assert "smollm2-135m-cpu" in capsys.readouterr().err


def test_every_action_speaks_json(tmp_path: Path, capsys):
    from draftkiln.cli import main

    assert main(["recipes", "ls", "--json"]) == ExitCode.OK
    listed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in listed] == shipped.names()
    kimi = next(one for one in listed if one["name"].startswith("kimi"))
    assert (kimi["target"]["hub"], kimi["tensor_parallel_size"]) == ("moonshotai/Kimi-K2.5", 8)
    assert set(kimi["stacks"]) == {"prepare", "extract", "validate", "train", "export", "evaluate"}
    file = tmp_path / "own.yaml"
    assert main(["recipes", "cp", "tiny-cpu", str(file), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"file": str(file), "name": "own", "copy_of": "tiny-cpu"}
    bad = tmp_path / "bad.yaml"
    bad.write_text(re.sub(r"\blr: \S+", "lr: -1", file.read_text()), encoding="utf-8")
    assert main(["recipes", "validate", "--json", str(file), str(bad)]) == ExitCode.RECIPE
    shown = capsys.readouterr()
    right, wrong = json.loads(shown.out)
    assert right == {"file": str(file), "right": True, "problems": []}
    assert [problem["what"].split(": ")[1] for problem in wrong["problems"]] == ["train.lr"]
    assert "train.lr" in shown.err


def test_cp_into_a_folder_or_to_a_place_that_cannot_be_used_is_refused(tmp_path: Path, capsys):
    from draftkiln.cli import main

    assert main(["recipes", "cp", "tiny-cpu", str(tmp_path)]) == ExitCode.USAGE
    (tmp_path / "file").touch()
    assert main(["recipes", "cp", "tiny-cpu", str(tmp_path / "file" / "x.yaml")]) == ExitCode.STORAGE
    assert "Traceback" not in capsys.readouterr().err
