"""What a stage refuses to read."""

import pytest

from draftkiln import stage
from draftkiln.errors import RunDirectoryError
from draftkiln.rundir import RunDirectory

RECIPE = {
    "target": {"dtype": "bfloat16"},
    "data": {"max_tokens": 512},
    "layers": {"aux": [2, 4, 5]},
    "train": {"lr": 1.0},
}


def test_every_stage_that_reaches_another_counts_as_earlier():
    assert stage.before("evaluate") == ["prepare", "extract", "validate", "train", "export"]


@pytest.mark.parametrize("name", ["prepare", "extract", "validate", "train", "export", "evaluate"])
def test_results_of_another_recipe_are_not_read(tmp_path, name):
    run = RunDirectory.open(tmp_path / "run", "tiny")
    recipe = {**RECIPE, "validate": {}, "evaluate": {}}
    for earlier in stage._SECTIONS:
        run.begin(earlier, {})
        run.finish(earlier, {f"recipe.{section}": recipe[section] for section in stage._SECTIONS[earlier]}, {})
    before = stage.before(name)
    stage.refuse_another_recipe(run, recipe, {}, before)
    newer = {**recipe, "data": {**recipe["data"], "too_long": "cut"}}
    stage.refuse_another_recipe(run, newer, {"target": {"dtype": "bfloat16"}, "data": {"too_long": "cut"}}, before)
    changed = {**recipe, "data": {"max_tokens": 256}}
    if "prepare" not in before:
        stage.refuse_another_recipe(run, changed, {}, before)
        return
    with pytest.raises(RunDirectoryError, match="stage prepare was made from another recipe") as caught:
        stage.refuse_another_recipe(run, changed, {}, before)
    assert caught.value.why == "recipe.data.max_tokens: 512 before, 256 now"


def test_a_key_that_is_newer_than_the_run_and_not_named_changes_nothing(tmp_path):
    run = RunDirectory.open(tmp_path / "run", "tiny")
    recorded = {"recipe.train": {"lr": 1.0, "draft": {"layers": 1}}}
    run.begin("train", recorded)
    run.finish("train", recorded, {"steps": 3})
    content = {"train": {"lr": 1.0, "warmup": 0, "draft": {"layers": 1, "bias": False}, "logger": {"kind": "none"}}}
    named = {"train": {"lr": 1.0, "draft": {"layers": 1}}}
    defaults = stage._defaults(content, named)
    assert defaults == {"train": {"warmup": 0, "draft": {"bias": False}, "logger": {"kind": "none"}}}
    now = {"recipe.train": content["train"]}
    assert run.finished("train", now, {"recipe.train": defaults["train"]}) == {"steps": 3}
    named["train"]["warmup"] = content["train"]["warmup"] = 5
    defaults = stage._defaults(content, named)
    with pytest.raises(RunDirectoryError) as caught:
        run.finished("train", now, {"recipe.train": defaults["train"]})
    assert caught.value.why == "recipe.train.warmup: nothing before, 5 now"
