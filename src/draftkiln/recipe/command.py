"""`draftkiln recipes`: list, copy and validate recipes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import DraftkilnError, ProblemsError, RecipeError, UsageError
from draftkiln.recipe import check, shipped
from draftkiln.recipe.document import parse
from draftkiln.recipe.load import load, loads
from draftkiln.recipe.model import STAGES

if TYPE_CHECKING:
    import argparse

STACKS = shipped.FOLDER.parent / "containers" / "stacks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `ls`, `cp` and `validate`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("ls", help="list the shipped recipes")
    copy = actions.add_parser("cp", help="copy a shipped recipe to a file of your own")
    copy.add_argument("recipe", help="name of a shipped recipe")
    copy.add_argument("file", type=Path, help="the new file; never overwritten")
    validate = actions.add_parser("validate", help="report everything that is wrong with recipes, at once")
    validate.add_argument("files", type=Path, nargs="+", metavar="FILE")
    for action in (listing, copy, validate):
        action.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """Run one action."""
    if arguments.action == "ls":
        return _list(as_json=arguments.json)
    if arguments.action == "cp":
        return _copy(arguments.recipe, arguments.file, as_json=arguments.json)
    return _validate(arguments.files, as_json=arguments.json)


def _list(*, as_json: bool) -> int:
    names = shipped.names()
    if as_json:
        print(json.dumps([_facts(shipped.find(name)) for name in names], indent=2))
        return 0
    width = max((len(name) for name in names), default=0)
    for name in names:
        print(f"{name:<{width}}  {shipped.summary(shipped.find(name))}")
    return 0


def _facts(file: Path) -> dict[str, Any]:
    """What a program wants to know of a recipe before it takes it."""
    recipe = load(file)
    return {
        "name": recipe.name,
        "file": str(file),
        "summary": shipped.summary(file),
        "target": recipe.target.source.model_dump(mode="json"),
        "tensor_parallel_size": recipe.target.tensor_parallel_size,
        "stacks": {stage: recipe.stacks.of(stage) for stage in STAGES},
    }


def _copy(name: str, file: Path, *, as_json: bool) -> int:
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
    if as_json:
        print(json.dumps({"file": str(file), "name": recipe_name, "copy_of": source.stem}))
    else:
        print(f"{file}: a copy of {source.name}, named {recipe_name}; start it with the line on its top")
    return 0


def _validate(files: list[Path], *, as_json: bool) -> int:
    found = {file: _problems(file) for file in files}
    if as_json:
        print(json.dumps([_verdict(file, problems) for file, problems in found.items()], indent=2))
    else:
        for file, problems in found.items():
            if not problems:
                print(f"{file}: right ({load(file).name})")
    wrong = [problem for problems in found.values() for problem in problems]
    if wrong:
        raise ProblemsError(wrong)
    return 0


def _problems(file: Path) -> list[DraftkilnError]:
    try:
        recipe = load(file)
    except ProblemsError as error:
        return list(error.problems)
    except RecipeError as error:
        return [error]
    if not STACKS.is_dir():
        return []
    known = sorted(folder.parent.name for folder in STACKS.glob("*/stack.yaml"))
    document = parse(file.read_text(encoding="utf-8"))
    return [
        RecipeError(
            f"{file}:{document.line(('stacks', key))}: stacks.{key}: there is no stack {name!r}",
            why=f"it has no folder in {STACKS}",
            fix=f"choose one of: {', '.join(known) or 'none there'}",
        )
        for key, name in check.unknown_stacks(recipe, known).items()
    ]


def _verdict(file: Path, problems: list[DraftkilnError]) -> dict[str, Any]:
    told = [{"what": one.what, "why": one.why, "fix": one.fix} for one in problems]
    return {"file": str(file), "right": not problems, "problems": told}
