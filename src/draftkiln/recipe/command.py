"""`draftkiln recipes`: list, copy and validate recipes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln import durable
from draftkiln.errors import DraftkilnError, ProblemsError, RecipeError, UsageError
from draftkiln.recipe import check, shipped
from draftkiln.recipe.load import load, loads

if TYPE_CHECKING:
    import argparse

STACKS = shipped.FOLDER.parent / "containers" / "stacks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `ls`, `cp` and `validate`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("ls", help="list the shipped recipes")
    copy = actions.add_parser("cp", help="copy a shipped recipe to a file of your own")
    copy.add_argument("recipe", help="name of a shipped recipe")
    copy.add_argument("file", type=Path, help="the new file; never overwritten")
    validate = actions.add_parser("validate", help="report everything that is wrong with recipes, at once")
    validate.add_argument("files", type=Path, nargs="+", metavar="FILE")


def main(arguments: argparse.Namespace) -> int:
    """Run one action."""
    if arguments.action == "ls":
        return _list()
    if arguments.action == "cp":
        return _copy(arguments.recipe, arguments.file)
    return _validate(arguments.files)


def _list() -> int:
    names = shipped.names()
    width = max((len(name) for name in names), default=0)
    for name in names:
        print(f"{name:<{width}}  {shipped.summary(shipped.find(name))}")
    return 0


def _copy(name: str, file: Path) -> int:
    source = shipped.find(name)
    if file.is_dir():
        raise UsageError(f"{file} is a directory", fix=f"name a file, such as {file / source.name}")
    if file.exists():
        raise UsageError(f"{file} exists already", why="a copy never overwrites", fix="name another file")
    recipe_name = re.sub(r"[^a-z0-9.-]+", "-", file.stem.lower()).strip("-.") or "copy"
    text = re.sub(r"(?m)^name: .*$", f"name: {recipe_name}", source.read_text(encoding="utf-8"), count=1)
    text = re.sub(r"--recipe \S+ --run \S+", f"--recipe {file} --run runs/{recipe_name}", text)
    loads(text, str(file))
    durable.write_text(file, text)
    print(f"{file}: a copy of {source.name}, named {recipe_name}; start it with the line on its top")
    return 0


def _validate(files: list[Path]) -> int:
    problems: list[DraftkilnError] = []
    for file in files:
        try:
            recipe = load(file)
        except ProblemsError as error:
            problems.extend(error.problems)
        except RecipeError as error:
            problems.append(error)
        else:
            found = check.problems_on_stacks(recipe, STACKS) if STACKS.is_dir() else []
            problems.extend(RecipeError(f"{file}: {problem}") for problem in found)
            if not found:
                print(f"{file}: right ({recipe.name})")
    if problems:
        raise ProblemsError(problems)
    return 0
