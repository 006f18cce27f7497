"""What paths of a recipe mean."""

from pathlib import Path

import pytest

from draftkiln.errors import RecipeError
from draftkiln.evaluate import prompts
from draftkiln.preflight import samples
from draftkiln.prepare import split
from draftkiln.recipe import model
from draftkiln.recipe.files import path_of
from draftkiln.target import resolve
from draftkiln.train import warmstart

SET = {"name": "a", "form": "messages"}
WAYS = {
    model.PathTarget: lambda path: resolve.location(model.PathTarget(path=path)),
    model.PathData: lambda path: split.sources(model.Data(source={"path": path}))[0].path,
    model.SeveralData: lambda path: split.sources(model.Data(source={"several": [{"path": path}]}))[0].path,
    model.PathDraft: lambda path: warmstart.folder(model.PathDraft(path=path), Path.cwd(), Path.cwd(), None),
    model.PromptSet: lambda path: prompts.from_file(model.PromptSet(path=path, **SET)),
}
"""How the path of each section is read."""


@pytest.mark.parametrize(
    ("name", "means"),
    [("~/a/b", "HOME/a/b"), ("~", "HOME"), ("a/~", "a/~"), ("./~b", "~b"), ("/a/b", "/a/b"), ("a", "a")],
)
def test_a_home_is_that_of_who_runs_it_and_all_else_stays(monkeypatch, tmp_path, name, means):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert path_of(name) == Path(means.replace("HOME", str(tmp_path)))


def test_a_home_that_nobody_knows_is_a_recipe_error():
    with pytest.raises(RecipeError, match="~nobody-of-that-name/x: no such home directory") as caught:
        path_of("~nobody-of-that-name/x")
    assert "`./`" in caught.value.fix


def test_every_path_of_a_recipe_is_looked_at_here():
    sections = {section for section in vars(model).values() if isinstance(section, type)}
    named = {one for one in sections if "path" in getattr(one, "model_fields", {})}
    assert named | {model.SeveralData} == set(WAYS)


@pytest.mark.parametrize("section", list(WAYS), ids=lambda section: section.__name__)
def test_a_home_is_known_wherever_a_recipe_has_a_path(monkeypatch, tmp_path, section):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file.jsonl").write_text('{"messages": [{"role": "user", "content": "Hello"}]}\n')
    found = WAYS[section]("~/file.jsonl")
    assert section is model.PromptSet or found == tmp_path / "file.jsonl"
    with pytest.raises(RecipeError):
        WAYS[section]("~nobody-of-that-name/file.jsonl")


def test_lines_of_a_file_in_a_home_are_counted(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "d.jsonl").write_text("{}\n" * 10)
    assert samples.count(model.Data(source={"path": "~/d.jsonl"}, held_out=3)) == 7
