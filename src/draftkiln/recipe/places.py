"""Key paths of a recipe: which section stands where, and which value holds there, whatever else is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

from draftkiln.recipe.model import DATA_FORMS, DRAFT_FORMS, TARGET_FORMS, Recipe, Section, form_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo

    from draftkiln.recipe.document import Location

FORMS: Mapping[Location, Mapping[str, type[Section]]] = {
    ("target", "source"): TARGET_FORMS,
    ("data", "source"): DATA_FORMS,
    ("train", "init_from"): DRAFT_FORMS,
}
"""Where a source stands, and which key tells which form."""


def fields(section: type[Section]) -> dict[str, FieldInfo]:
    """Fields of a section under the names that a recipe uses."""
    return {info.alias or name: info for name, info in section.model_fields.items()}


def section_at(where: Location, plain: Any) -> type[Section] | None:
    """Section that stands at `where` in the recipe `plain`; None where none does or its form is not clear."""
    section: type[Section] | None = Recipe
    for depth, key in enumerate(where, 1):
        if isinstance(key, int):
            plain = plain[key] if isinstance(plain, list) and key < len(plain) else None
            continue
        plain = plain.get(key) if isinstance(plain, dict) else None
        if where[:depth] in FORMS:
            forms = FORMS[where[:depth]]
            form = form_of(plain, tuple(forms))
            section = forms[form.removeprefix("form:")] if form else None
        else:
            info = fields(section).get(str(key)) if section else None
            section = _section_in(info.annotation) if info else None
    return section


def _section_in(annotation: Any) -> type[Section] | None:
    choices = [annotation, *(get_args(annotation) if get_origin(annotation) else ())]
    return next((choice for choice in choices if isinstance(choice, type) and issubclass(choice, Section)), None)


@dataclass(frozen=True)
class Values:
    """Valid values of a recipe that may have invalid ones beside them."""

    plain: Any
    """The recipe as plain values."""
    invalid: frozenset[Location]
    """Places that hold something wrong."""

    def __call__(self, path: str) -> Any:
        """Value at a dotted key path, or its default where the recipe names none.

        Raises:
            LookupError: what stands there is wrong, or nothing stands there and it has no default.
        """
        where: Location = tuple(path.split("."))
        if any(where[:depth] in self.invalid for depth in range(1, len(where) + 1)):
            raise LookupError(path)
        if not self.named(path):
            return self._default(where)
        value = self.plain
        for key in where:
            value = value[key]
        if isinstance(value, list) and any(place[: len(where)] == where for place in self.invalid):
            raise LookupError(path)
        return value

    def named(self, path: str) -> bool:
        """Whether the recipe itself names a value at `path`."""
        value = self.plain
        for key in path.split("."):
            if not isinstance(value, dict) or key not in value:
                return False
            value = value[key]
        return True

    def first_named(self, *paths: str) -> Location:
        """The first of `paths` that the recipe itself names, so that a message points at a line that is there."""
        chosen = next((path for path in paths if self.named(path)), paths[0])
        return tuple(chosen.split("."))

    def _default(self, where: Location) -> Any:
        *parent, key = where
        section = section_at(tuple(parent), self.plain)
        info = fields(section).get(str(key)) if section else None
        if info is None or info.is_required():
            raise LookupError(".".join(map(str, where)))
        return info.get_default(call_default_factory=True)
