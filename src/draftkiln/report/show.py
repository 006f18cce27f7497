"""How values are shown. Each number carries its exact value and where it stands, so that a page can be checked."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from draftkiln.report.elements import element

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from draftkiln.report.elements import Content, Element
    from draftkiln.report.records import Records, Value

Form: TypeAlias = "Callable[[float], str]"
Row: TypeAlias = "tuple[str, Content]"
Keys: TypeAlias = "tuple[str | int, ...]"
_LARGEST = 1e300
ABSENT = "-"


def count(number: float) -> str:
    """A whole number with its thousands apart."""
    return f"{number:,.0f}"


def plain(number: float) -> str:
    """A number with four significant digits, or all of them before the point."""
    return count(number) if abs(number) >= 1e3 else f"{number:.4g}"  # noqa: PLR2004 - from where decimals say nothing


def exact(number: float) -> str:
    """A number with all digits that its file has."""
    return repr(number)


def fine(number: float) -> str:
    """A number near 1 with the digits that tell it from 1."""
    return f"{number:.6f}"


def percent(share: float) -> str:
    """A share as a percentage."""
    return f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"


FORMS: dict[str, Form] = {
    form.__name__: form for form in (count, plain, exact, fine, percent, duration)
}  # fmt: skip


def number(found: Value | None, form: Form = plain) -> Content:
    """A number of a file."""
    if found is None:
        return ABSENT
    if isinstance(found.value, bool) or not isinstance(found.value, int | float):
        return text(found)
    shown = form(found.value) if finite(found.value) else str(found.value)
    return element("data", shown, value=repr(found.value), data_from=found.source, data_form=form.__name__)


def finite(value: Any) -> bool:
    """Whether a value is a number that can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def facts(records: Records, file: str, keys: Keys, wanted: Mapping[str, Form | None]) -> list[Row]:
    """Rows of those values below `keys` of a file that are there, each with how its number is shown; None: a text."""
    rows: list[Row] = []
    for key, form in wanted.items():
        found = records.value(file, *keys, key) if form is None else records.number(file, *keys, key)
        if found is not None:
            rows.append((key.replace("_", " "), text(found) if form is None else number(found, form)))
    return rows


def derived(value: float, how: str, form: Form = count) -> Element:
    """A number that was computed out of a run's files; `how` says from what."""
    return element("data", form(value), value=repr(value), data_how=how, data_form=form.__name__)


def text(found: Value | None) -> Content:
    """A text of a file; anything else as JSON."""
    return ABSENT if found is None else element("span", as_text(found.value), class_="v", data_from=found.source)


def digest(found: Value | None, length: int | None = None) -> Content:
    """A hash of a file, or its beginning."""
    if found is None:
        return ABSENT
    whole = as_text(found.value)
    short = whole if length is None else whole[:length]
    return element("code", short, class_="hash", title=whole if short != whole else None, data_from=found.source)


def as_text(value: Any) -> str:
    """A JSON value as one line; the outermost of nested objects without braces."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_within(value[key])}" for key in sorted(value)) or "nothing"
    return value if isinstance(value, str) else _within(value)


def _within(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def table(head: Sequence[Content], rows: Iterable[Sequence[Content]], class_: str = "") -> Element:
    """A table that scrolls by itself where it is wider than the page."""
    top = element("thead", element("tr", [element("th", cell, scope="col") for cell in head])) if head else None
    body = element("tbody", [element("tr", [element("td", cell) for cell in row]) for row in rows])
    return element("div", element("table", top, body, class_=class_ or None), class_="scroll")


def pairs(rows: Iterable[Row]) -> Element:
    """Names and what they are."""
    return element(
        "dl", [element("div", element("dt", _breakable(name)), element("dd", content)) for name, content in rows]
    )


def _breakable(name: str) -> list[Content]:
    """A name that lines may end in behind its marks, not in the middle of a word."""
    first, *more = re.split(r"(?<=[_./-])(?=\w)", name)
    return [first, *((element("wbr"), part) for part in more)]


def details(summary: str, *content: Content) -> Element:
    """Content that is folded away."""
    return element("details", element("summary", summary), *content)


def figure(picture: Element, caption: str, *more: Content) -> Element:
    """A picture and what it shows."""
    return element("figure", picture, element("figcaption", caption), *more)


def flat(content: Any, keys: tuple[str | int, ...] = ()) -> Iterable[tuple[tuple[str | int, ...], Any]]:
    """Every value of nested objects with its path; lists and empty objects are values."""
    if isinstance(content, dict) and content:
        for key, value in content.items():
            yield from flat(value, (*keys, key))
    else:
        yield keys, content
