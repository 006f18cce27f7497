"""The recipes that the repository ships: where they are, and what their header comments say."""

from __future__ import annotations

from pathlib import Path

from draftkiln.errors import RecipeError

FOLDER = Path(__file__).parents[3] / "recipes"


def names(folder: Path = FOLDER) -> list[str]:
    """Names of the shipped recipes, sorted."""
    return sorted(file.stem for file in folder.glob("*.yaml"))


def find(name: str, folder: Path = FOLDER) -> Path:
    """File of the shipped recipe `name` (with or without `.yaml`).

    Raises:
        RecipeError: there is none of that name.
    """
    file = folder / f"{name.removesuffix('.yaml')}.yaml"
    if not file.is_file():
        raise RecipeError(
            f"no shipped recipe {name}",
            why=f"there are: {', '.join(names(folder)) or 'none'}",
            fix="use one of these names",
        )
    return file


def summary(file: Path) -> str:
    """First line of the comment on top of a recipe."""
    first = file.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.removeprefix("#").strip()
