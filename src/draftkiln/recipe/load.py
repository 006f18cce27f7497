"""Read a recipe and report all that is wrong with it at once, each as `file:line: key.path: what, why, what to do`."""

from __future__ import annotations

import difflib
import json
from typing import TYPE_CHECKING, Any

import pydantic
import yaml

from draftkiln.errors import ProblemsError, RecipeError
from draftkiln.recipe.contradictions import contradictions
from draftkiln.recipe.document import Document, Location, Problem, parse
from draftkiln.recipe.model import FORM, Recipe
from draftkiln.recipe.places import FORMS, Values, fields, section_at

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails

LARGEST_FILE = 1 << 20
"""Bytes; a recipe is a few kilobytes, and a weights file given by mistake is told before it is read."""
HELP = "run `draftkiln recipes ls` for those that are shipped, or `draftkiln recipes cp NAME FILE` to start from one"


def load(path: Path) -> Recipe:
    """Read the recipe file `path`.

    Raises:
        RecipeError: the file is missing, unreadable, not YAML, or not a mapping.
        ProblemsError: unknown keys, wrong types, doubled keys and contradictions, all of them.
    """
    return loads(_text(path), str(path))


def loads(text: str, name: str) -> Recipe:
    """`load` for the text of a recipe; `name` stands for the file in messages."""
    try:
        document = parse(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        why = getattr(error, "problem", None) or str(error)
        raise RecipeError(f"{place}: not YAML", why=why, fix="mend the line named, or the one before it") from error
    if not isinstance(document.value, dict):
        found = "is empty" if document.value is None else f"is a {_yaml_type(document.value)}"
        raise RecipeError(
            f"{name}:{document.line(())}: not a recipe: the file {found}",
            why="a recipe is a mapping of keys to values",
            fix=HELP,
        )
    recipe, problems = _validated(document)
    problems += _contradictions(document, problems)
    if problems or recipe is None:
        ordered = sorted(problems, key=lambda problem: (problem.line, [str(part) for part in problem.where]))
        raise ProblemsError([_error(name, problem) for problem in ordered])
    return recipe


def _text(path: Path) -> str:
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise RecipeError(f"{path}: not a recipe", why="it is a pipe or a device", fix="name a file")
    try:
        size = path.stat().st_size
        if path.is_file() and size > LARGEST_FILE:
            raise RecipeError(
                f"{path}: not a recipe", why=f"it has {size} bytes, a recipe at most {LARGEST_FILE}", fix=HELP
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RecipeError(f"{path}: no such recipe", why="the file does not exist", fix=HELP) from error
    except IsADirectoryError as error:
        raise RecipeError(f"{path}: not a recipe", why="it is a directory", fix=HELP) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise RecipeError(
            f"{path}:{line}: not YAML", why=f"byte {error.start} is not UTF-8", fix="save the file as UTF-8"
        ) from error
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read", why=str(error.strerror), fix="make it readable") from error


def _validated(document: Document) -> tuple[Recipe | None, list[Problem]]:
    problems = list(document.problems)
    try:
        return Recipe.model_validate_json(json.dumps(document.value), strict=True), problems
    except pydantic.ValidationError as error:
        told = {problem.where for problem in problems}
        found = (_problem(document, details) for details in error.errors(include_url=False))
        problems.extend(problem for problem in found if problem.where not in told)
    return None, problems


def _problem(document: Document, details: ErrorDetails) -> Problem:
    where: Location = tuple(part for part in details["loc"] if not (isinstance(part, str) and part.startswith(FORM)))
    line = document.line(where)
    kind = details["type"]
    if kind == "missing":
        return Problem(where, line, "is missing", _meaning(where, document.value), "add it")
    if kind == "extra_forbidden":
        return Problem(where, line, "unknown key", *_unknown(where, document.value))
    if kind == "union_tag_not_found":
        return Problem(where, line, *_form_problem(where, details["input"]))
    given = details["input"]
    meaning = _meaning(where, document.value)
    fix = f"give what belongs here: {meaning[:1].lower() + meaning[1:]}" if meaning else ""
    return Problem(
        where, line, f"{_shown(given)} is not accepted", details["msg"].replace("Input should", "it should"), fix
    )


def _unknown(where: Location, plain: Any) -> tuple[str, str]:
    section = section_at(where[:-1], plain)
    known = sorted(fields(section)) if section else []
    close = difflib.get_close_matches(str(where[-1]), known, n=1, cutoff=0.6)
    parent = ".".join(map(str, where[:-1])) or "a recipe"
    why = f"{parent} takes {', '.join(known)}"
    return why, f"did you mean `{close[0]}`?" if close else "remove it"


def _form_problem(where: Location, given: Any) -> tuple[str, str, str]:
    forms = FORMS[where]
    described = "; ".join(f"`{key}: …` ({_first_line(form.__doc__)})" for key, form in forms.items())
    if not isinstance(given, dict):
        return f"{_shown(given)} is not a source", "it is a mapping with one of these keys", described
    named = [key for key in forms if key in given]
    if named:
        return f"{' and '.join(named)} exclude each other", "a source has one form", f"keep one of {', '.join(named)}"
    close = [match for key in given for match in difflib.get_close_matches(str(key), list(forms), n=1)]
    hint = f"did you mean `{close[0]}`? " if close else ""
    return (
        f"no known form (keys: {', '.join(map(str, given)) or 'none'})",
        "a source has exactly one of these keys",
        hint + described,
    )


def _meaning(where: Location, plain: Any) -> str:
    """What the field at `where`, or the nearest one around it, is for."""
    for depth in range(len(where), 0, -1):
        section = section_at(where[: depth - 1], plain)
        info = fields(section).get(str(where[depth - 1])) if section else None
        if info is not None:
            return _first_line(info.description)
    return ""


def _contradictions(document: Document, problems: list[Problem]) -> list[Problem]:
    values = Values(document.value, frozenset(problem.where for problem in problems))
    return [
        Problem(found.where, document.line(found.where), found.what, found.why, found.fix)
        for found in contradictions(values)
    ]


def _error(name: str, problem: Problem) -> RecipeError:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem.where).removeprefix(".")
    return RecipeError(
        f"{name}:{problem.line}: {path + ': ' if path else ''}{problem.what}", why=problem.why, fix=problem.fix
    )


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"a {_yaml_type(value)}"
    return json.dumps(value, ensure_ascii=False)


def _yaml_type(value: Any) -> str:
    return {dict: "mapping", list: "list", str: "text", bool: "true/false value"}.get(type(value), "number")


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n", 1)[0]
