import re
from pathlib import Path

from draftkiln.errors import ExitCode, ProblemsError, RecipeError

DOC = Path(__file__).parents[2] / "docs" / "errors.md"


def test_every_exit_code_is_in_the_documented_table():
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", DOC.read_text(), re.MULTILINE)
    assert [(int(number), name) for number, name in rows] == [(code.value, code.name) for code in ExitCode]


def test_an_error_says_what_why_and_what_to_do():
    text = str(RecipeError("r.yaml:3: data.limit: not a number", why="it is 'many'", fix="write a number"))
    assert text.splitlines() == ["r.yaml:3: data.limit: not a number", "  why: it is 'many'", "  do:  write a number"]


def test_all_problems_are_told_at_once():
    error = ProblemsError([RecipeError("one"), RecipeError("two")])
    assert str(error) == "one\ntwo"
    assert error.code == ExitCode.RECIPE


def test_what_to_do_is_said_once_for_problems_in_a_row_that_want_the_same():
    problems = [
        RecipeError("one", why="a", fix="mend it"),
        RecipeError("two", fix="mend it"),
        RecipeError("three", fix="leave it out"),
        RecipeError("four"),
    ]
    assert str(ProblemsError(problems)).splitlines() == [
        "one", "  why: a", "two", "  do:  mend it", "three", "  do:  leave it out", "four"
    ]  # fmt: skip
