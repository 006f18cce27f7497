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
    assert stage._before("evaluate") == ["prepare", "extract", "validate", "train", "export"]


@pytest.mark.parametrize("name", ["prepare", "extract", "validate", "train", "export", "evaluate"])
def test_results_of_another_recipe_are_not_read(tmp_path, name):
    run = RunDirectory.open(tmp_path / "run", "tiny")
    recipe = {**RECIPE, "validate": {}, "evaluate": {}}
    for earlier in stage._SECTIONS:
        run.begin(earlier, {})
        run.finish(earlier, {f"recipe.{section}": recipe[section] for section in stage._SECTIONS[earlier]}, {})
    before = stage._before(name)
    stage._refuse_another_recipe(run, recipe, before)
    changed = {**recipe, "data": {"max_tokens": 256}}
    if "prepare" not in before:
        stage._refuse_another_recipe(run, changed, before)
        return
    with pytest.raises(RunDirectoryError, match="stage prepare was made from another recipe") as caught:
        stage._refuse_another_recipe(run, changed, before)
    assert caught.value.why == "recipe.data.max_tokens: 512 before, 256 now"
