"""The data section: its forms, its contradictions, and what of it is recorded."""

import pytest
from least_recipe import FROM_FILE as GOOD

from draftkiln import stage
from draftkiln.errors import ProblemsError, RunDirectoryError
from draftkiln.recipe.load import loads
from draftkiln.rundir import RunDirectory


def told(data):
    with pytest.raises(ProblemsError) as caught:
        loads(GOOD.replace("  source: {path: d.jsonl}\n", data), "r.yaml")
    (problem,) = caught.value.problems
    return str(problem)


def test_several_files_and_all_new_keys_are_read():
    text = GOOD.replace(
        "  source: {path: d.jsonl}\n",
        "  source: {several: [{path: a.jsonl}, {path: b.parquet, weight: 2}]}\n"
        "  roles: {observation: tool}\n  raw_text: {answer_begins: 'A:'}\n  duplicates: refuse\n  too_long: split\n",
    )
    data = loads(text, "r.yaml").data
    assert [(part.path, part.weight) for part in data.source.several] == [("a.jsonl", 1.0), ("b.parquet", 2.0)]
    assert data.raw_text.answer_begins == "A:"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("  source: {several: [{path: a, wight: 2}]}\n", "data.source.several[0].wight: unknown key"),
        ("  source: {several: []}\n", "data.source.several: no file is named"),
        (
            f"  source: {{hub: a/b, revision: {'a' * 40}, files: [x.jsonl]}}\n",
            "a data set on the Hub without a network",
        ),
        ("  source: {path: d}\n  roles: {x: robot}\n", 'data.roles.x: "robot" is not accepted'),
        ("  source: {path: d}\n  raw_text: {answer_ends: x}\n", "an end of answers without a beginning"),
        ("  source: {path: d}\n  raw_text: {}\n  answers: {}\n", "raw text cannot be answered anew"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(data, words):
    found = told(data)
    assert words in found
    assert found.startswith(("r.yaml:9: ", "r.yaml:10: "))


def test_a_misspelt_key_of_one_of_several_files_is_helped():
    assert "did you mean `weight`?" in told("  source: {several: [{path: a, wight: 2}]}\n")


def test_runs_of_recipes_that_named_a_part_less_in_a_list_of_sections_stay_good(tmp_path):
    """`weight` and `limit` are newer than these records: parts of a list are filled by their place."""
    recipe = loads(
        GOOD.replace("  source: {path: d.jsonl}\n", "  source: {several: [{path: a}, {path: b, weight: 2}]}\n")
        + "evaluate: {sets: [{name: one, path: p, form: gsm8k}]}\n",
        "r.yaml",
    )
    content = recipe.model_dump(mode="json", by_alias=True)
    defaults = stage._defaults(content, recipe.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    source = {"several": [{"path": "a"}, {"path": "b", "weight": 2.0}]}
    sets = [{"name": "one", "path": "p", "form": "gsm8k"}]
    older = {"recipe.data": {"source": source}, "recipe.evaluate": {"sets": sets}}
    run = RunDirectory.open(tmp_path / "run", "tiny")
    run.begin("prepare", older)
    (run.path / "prepare" / "answers.jsonl").touch()  # what holds a begun stage to its inputs
    now = {f"recipe.{key}": content[key] for key in ("data", "evaluate")}
    given = {f"recipe.{key}": defaults[key] for key in ("data", "evaluate")}
    assert run.finished("prepare", now, given) is None
    del source["several"][0]
    run.begin("prepare", older)
    with pytest.raises(RunDirectoryError, match="made from other inputs"):
        run.finished("prepare", now, given)
