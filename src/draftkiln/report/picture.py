"""The picture of the pipeline: the stages of a run, how far each is, and what it handed on."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from draftkiln.report import show, stages
from draftkiln.report.elements import element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftkiln.report.elements import Element
    from draftkiln.report.records import Records, Value
    from draftkiln.report.stages import StageView

_WIDTH, _BOX, _STEP = 360, 56, 82
_LETTERS = 46
_HASH = 16


def pipeline(records: Records, views: Sequence[StageView]) -> Element:
    """The stages from top to bottom; arrows carry the hash of what one hands to the next."""
    drawn: list[Element] = []
    for number, view in enumerate(views):
        top = 4 + number * _STEP
        drawn.extend(_stage(records, view, top))
        if number + 1 < len(views):
            drawn.extend(_arrow(records, view, top + _BOX, reached=views[number + 1].state != stages.MISSING))
    picture = element("svg", drawn, class_="pipeline", role="img", aria_label="the stages of this run")
    picture.set("viewBox", f"0 0 {_WIDTH} {4 + len(views) * _STEP - (_STEP - _BOX) + 4}")
    return picture


def _stage(records: Records, view: StageView, top: float) -> Iterator[Element]:
    state = view.state.replace(" ", "-")
    yield element("rect", class_=f"box {state}", x=1, y=top, width=_WIDTH - 2, height=_BOX, rx=8)
    link = element("a", element("text", view.name, class_="name", x=14, y=top + 23), href=f"#stage-{view.name}")
    yield link
    seconds = stages.result(records, view, "stage_seconds")
    mark = {stages.DONE: "✓ done", stages.BEGUN: "… begun"}.get(view.state, view.state)
    took = f" in {show.duration(seconds.value)}" if seconds and show.finite(seconds.value) else ""
    yield _text(f"{mark}{took}", _WIDTH - 14, top + 23, "end", seconds, f"state {state}")
    stack = stages.entry(records, view, "stack")
    nothing = "its record is damaged" if view.state == stages.UNREADABLE else "nothing of it lies in the run directory"
    below = show.as_text(stack.value) if stack else nothing
    yield _text(below, 14, top + 43, "start", stack, "small")


def _arrow(records: Records, view: StageView, top: float, *, reached: bool) -> Iterator[Element]:
    middle, end = 26, top + _STEP - _BOX
    yield element("path", class_="arrow" if reached else "arrow open", d=f"M{middle} {top + 2}V{end - 7}")
    yield element("path", class_="head", d=f"M{middle - 4} {end - 8}h8l-4 7z")
    what, made = _handed_on(records, view)
    if what:
        short = f" {show.as_text(made.value)[:_HASH]}" if made else ""
        yield _text(what + short, middle + 12, top + 17, "start", made, "small")


def _handed_on(records: Records, view: StageView) -> tuple[str, Value | None]:
    """What a stage that is done hands on, and the hash of it."""
    if view.state != stages.DONE:
        return "", None
    if view.name in stages.MADE:
        what, keys = stages.MADE[view.name]
        return what, stages.result(records, view, *keys)
    if view.name == "extract":
        ids = stages.result(records, view, "layer_ids")
        return (f"states of layers {show.as_text(ids.value)}" if ids else "states"), None
    return "the same states, checked", None


def _short(text: str) -> str:
    """As much of a text as fits; letters of East Asian scripts are twice as wide."""
    width = 0
    for place, letter in enumerate(text):
        width += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if width > _LETTERS:
            return text[: max(place - 1, 0)] + "…"
    return text


def _text(text: str, x: float, y: float, anchor: str, source: Value | None, class_: str) -> Element:
    short = _short(text)
    whole = element("title", text) if short != text else None
    origin = source.source if source else None
    return element("text", short, whole, x=x, y=y, text_anchor=anchor, class_=class_, data_from=origin)
