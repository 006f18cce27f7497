"""Small charts as inline SVG: pure functions from numbers to elements.

A chart is 360 units wide, a phone's width, so that its letters can be read there. Its root says which range of values
lies on which box (`data-x`, `data-y`, `data-box`), so that what is drawn can be read back and compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from draftkiln.report.elements import element

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.report.elements import Element

Point = tuple[float, float]
WIDTH, HEIGHT = 360.0, 210.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 10.0, 10.0, 36.0
_TICKS = 4
_HUGE = 1e300
_COLOURS = 6
_MOST_POINTS = 400
_LEGEND_LINE, _LEGEND_LETTERS = 15.0, 20


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
        name: in the legend; an empty one stays out of it.
        points: in the order of x.
        dots: whether points are drawn apart.
        source: where the points come from.
        colour: its number; default: its place among the series.
    """

    name: str
    points: Sequence[Point]
    dots: bool = False
    source: str = ""
    colour: int | None = None


@dataclass(frozen=True)
class Scale:
    """Where values lie: from `low` to `high` on `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Place of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def lines(series: Sequence[Series], title: str, x_label: str, y_label: str, *, y_low: float | None = 0.0) -> Element:
    """A chart of lines; y begins at `y_low`, or at the least value where that is None."""
    thinned = [replace(one, points=thin(_finite(one.points))) for one in series]
    shown = [one for one in thinned if one.points]
    points = [point for one in shown for point in one.points]
    ys = [y for _, y in points]
    names = [one.name for one in shown if one.name] if len(shown) > 1 else []
    box = _box(names)
    x = _scale([x for x, _ in points], (box[0], box[2]))
    y = _scale([*ys, y_low] if y_low is not None else ys, (box[3], box[1]), nice=True)
    drawn = [_line(one, number if one.colour is None else one.colour, x, y) for number, one in enumerate(shown)]
    return _chart(title, [*_axes(x, y, x_label, y_label), *drawn, *_legend(names)], x, y, box)


def thin(points: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """At most about `most` of the points: the first, the last, and the lowest and highest of each stretch between."""
    if len(points) <= most:
        return list(points)
    stretch = 2 * len(points) / most
    kept = {0, len(points) - 1}
    for number in range(most // 2):
        part = range(round(number * stretch), min(round((number + 1) * stretch), len(points)))
        if part:
            kept |= {min(part, key=lambda at: points[at][1]), max(part, key=lambda at: points[at][1])}
    return [points[at] for at in sorted(kept)]


def bars(
    labels: Sequence[str], groups: Sequence[tuple[str, Sequence[float | None]]], title: str, x_label: str, y_label: str,
    *, y_high: float | None = None,
) -> Element:  # fmt: skip
    """Bars: a place for each label, in it a bar for each group that has a value there."""
    legend = [name for name, _ in groups] if len(groups) > 1 else []
    box = _box(legend)
    values = [value for _, column in groups for value in column if value is not None]
    y = _scale([0.0, *values, *([y_high] if y_high is not None else [])], (box[3], box[1]), nice=y_high is None)
    x = Scale(0, len(labels), box[0], box[2])
    width = (x(1) - x(0)) * (0.8 if len(labels) < 20 else 0.96) / len(groups)  # noqa: PLR2004 - many bars need no gaps
    drawn = []
    for number, (name, column) in enumerate(groups):
        for place, value in enumerate(column):
            if value is not None:
                left = x(place + 0.5) + (number - len(groups) / 2) * width
                tip = element("title", f"{name} {labels[place]}: {_number(value)}".strip())
                bar = element("rect", tip, class_=f"f{number % _COLOURS}", x=left, width=width, y=y(value))
                bar.set("height", f"{y(0) - y(value):.2f}")
                drawn.append(bar)
    every = math.ceil(len(labels) / 6)
    names = [
        element("text", label, x=x(place + 0.5), y=box[3] + 14, text_anchor="middle")
        for place, label in enumerate(labels) if place % every == 0
    ]  # fmt: skip
    around = [*_y_axis(y, y_label, box), *names, _x_title(x_label, box), *_legend(legend)]
    return _chart(title, [*around, *drawn], x, y, box)


def grid(labels: Sequence[str], values: Sequence[Sequence[float]], title: str) -> Element:
    """A square of values from -1 to 1, darker for larger ones, each written in its cell."""
    size = min(58.0, (WIDTH - _LEFT - _RIGHT) / len(labels))
    left = (WIDTH - size * len(labels) + _LEFT) / 2 - _RIGHT / 2
    drawn: list[Element] = []
    for row, (name, cells) in enumerate(zip(labels, values, strict=True)):
        middle = _TOP + (row + 0.5) * size + 4
        drawn += [element("text", name, x=left - 6, y=middle, text_anchor="end")]
        drawn += [
            element("text", name, x=left + (row + 0.5) * size, y=_TOP + size * len(labels) + 15, text_anchor="middle")
        ]
        for column, value in enumerate(cells):
            shade = min(max(value, 0), 1)
            place = {"x": left + column * size, "y": _TOP + row * size}
            drawn.append(
                element(
                    "rect", class_="f0", fill_opacity=0.06 + 0.6 * shade**2, width=size - 2, height=size - 2, **place
                )
            )
            text = element(
                "text", f"{value:.2f}", x=place["x"] + size / 2 - 1, y=middle, text_anchor="middle", class_="cell"
            )
            drawn.append(text)
    height = _TOP + size * len(labels) + 24
    return _svg(title, height, drawn)


def ticks(low: float, high: float, wanted: int = _TICKS) -> list[float]:
    """Round numbers from about `low` to `high`, a step of 1, 2, 2.5 or 5 apart."""
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _finite(points: Sequence[Point]) -> list[Point]:
    """The points that can be drawn: differences of larger numbers are infinite."""
    return [(x, y) for x, y in points if abs(x) < _HUGE and abs(y) < _HUGE]


def _box(legend: Sequence[str]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of where values are drawn; the legend stands above."""
    return _LEFT, _TOP + _LEGEND_LINE * math.ceil(len(legend) / _beside(legend)), WIDTH - _RIGHT, HEIGHT - _BOTTOM


def _beside(legend: Sequence[str]) -> int:
    """How many names of a legend stand side by side."""
    return 1 if any(len(name) > _LEGEND_LETTERS for name in legend) else 2


def _scale(values: Sequence[float], ends: tuple[float, float], *, nice: bool = False) -> Scale:
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    low, high = max(low, -_HUGE), min(high, _HUGE)
    if high - low <= max(1e-12 * max(abs(high), abs(low)), 1 / _HUGE):
        low, high = low - 0.5, high + 0.5
    if nice:
        marks = ticks(low, high)
        step = (marks[1] - marks[0]) if len(marks) > 1 else high - low
        high = math.ceil(high / step - 1e-9) * step
        low = math.floor(low / step + 1e-9) * step
    return Scale(low, high, *ends)


def _line(series: Series, number: int, x: Scale, y: Scale) -> Element:
    places = [f"{x(at):.1f} {y(value):.1f}" for at, value in series.points]
    kind = "dots" if series.dots else "line"
    # A line of no length with round ends is a dot.
    path = "".join(f"M{place}h0" for place in places) if series.dots else "M" + "L".join(places)
    tip = element("title", series.name) if series.name else None
    return element("path", tip, class_=f"{kind} s{number % _COLOURS}", d=path, data_from=series.source or None)


def _axes(x: Scale, y: Scale, x_label: str, y_label: str) -> list[Element]:
    box = (x.start, y.end, x.end, y.start)
    marks = [
        element("text", _number(mark), x=x(mark), y=box[3] + 14, text_anchor="middle") for mark in ticks(x.low, x.high)
    ]
    return [*_y_axis(y, y_label, box), *marks, _x_title(x_label, box)]


def _y_axis(y: Scale, label: str, box: tuple[float, float, float, float]) -> list[Element]:
    drawn = []
    for mark in ticks(y.low, y.high):
        drawn.append(element("line", class_="rule", x1=box[0], x2=box[2], y1=y(mark), y2=y(mark)))
        drawn.append(element("text", _number(mark), x=box[0] - 5, y=y(mark) + 4, text_anchor="end"))
    middle = (box[1] + box[3]) / 2
    turned = element("text", label, x=0, y=0, text_anchor="middle", class_="axis")
    turned.set("transform", f"translate(10 {middle:.0f}) rotate(-90)")
    return [*drawn, turned]


def _x_title(label: str, box: tuple[float, float, float, float]) -> Element:
    return element("text", label, x=(box[0] + box[2]) / 2, y=HEIGHT - 5, text_anchor="middle", class_="axis")


def _legend(names: Sequence[str]) -> list[Element]:
    drawn, columns = [], _beside(names)
    for number, name in enumerate(names):
        left = _LEFT + (number % columns) * (WIDTH - _LEFT) / columns
        top = _TOP + _LEGEND_LINE * (number // columns)
        drawn.append(element("rect", class_=f"f{number % _COLOURS}", x=left, y=top - 3, width=14, height=5))
        drawn.append(element("text", name, x=left + 19, y=top + 4))
    return drawn


def _chart(title: str, drawn: Sequence[Element], x: Scale, y: Scale, box: tuple[float, float, float, float]) -> Element:
    made = _svg(title, HEIGHT, drawn)
    made.set("data-x", f"{x.low!r} {x.high!r}")
    made.set("data-y", f"{y.low!r} {y.high!r}")
    made.set("data-box", " ".join(f"{edge:g}" for edge in box))
    return made


def _svg(title: str, height: float, drawn: Sequence[Element]) -> Element:
    made = element("svg", drawn, class_="chart", role="img", aria_label=title)
    made.set("viewBox", f"0 0 {WIDTH:g} {height:g}")
    return made


def _number(value: float) -> str:
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-3:  # noqa: PLR2004 - where digits no longer fit beside an axis
        return f"{value:.3g}"
    return f"{round(value, 4):,g}" if size >= 1000 else f"{value:.4g}"  # noqa: PLR2004 - the same
