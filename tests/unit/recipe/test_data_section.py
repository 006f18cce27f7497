"""The data section: its forms, its contradictions, and what of it is recorded."""

import pytest
from least_recipe import FROM_FILE as GOOD

from draftkiln.errors import ProblemsError
from draftkiln.recipe.load import loads
from draftkiln.recipe.model import Data, PathData


def told(data):
    with pytest.raises(ProblemsError) as caught:
        loads(GOOD.replace("  source: {path: d.jsonl}\n", data), "r.yaml")
    (problem,) = caught.value.problems
    return str(problem)


def test_keys_added_later_are_recorded_only_where_a_recipe_names_them_so_that_earlier_runs_stay_good():
    before = {"source", "max_tokens", "too_long", "limit", "reasoning", "max_refused", "answers", "held_out"}
    content = loads(GOOD, "r.yaml").model_dump(mode="json", by_alias=True)["data"]
    assert set(content) == before
    assert content["source"] == {"path": "d.jsonl"}
    data = Data(source=PathData(path="d.jsonl", weight=0.5), roles={"x": "tool"}, duplicates="count")
    content = data.model_dump(mode="json")
    assert set(content) == before | {"roles", "duplicates"}
    assert content["source"] == {"path": "d.jsonl", "weight": 0.5}


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
