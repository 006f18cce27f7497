import math

import page_reader
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.report import charts
from draftkiln.report.elements import clean, element, serialize

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False)


def svg(made):
    return next(page_reader.parse(serialize(made)).all("svg"))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_what_is_drawn_are_the_points(points):
    points = sorted(points)
    chart = svg(charts.lines([charts.Series("s", points)], "t", "x", "y", y_low=None))
    drawn = page_reader.drawn_points(chart, next(chart.all("path")))
    width, height = (
        math.dist(*([float(end)] for end in chart.attributes[key].split())) for key in ("data-x", "data-y")
    )
    assert len(drawn) == len(points)
    for (x, y), (at, value) in zip(drawn, points, strict=True):
        assert x == pytest.approx(at, abs=width / 1000)
        assert y == pytest.approx(value, abs=height / 1000)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=10))
def test_nothing_is_drawn_outside_of_the_picture(points):
    chart = svg(charts.lines([charts.Series("s", points)], "t", "x", "y"))
    for path in chart.all("path"):
        for x, y in page_reader.drawn_points(chart, path):
            assert math.isfinite(x)
            assert math.isfinite(y)
    for text in chart.all("text"):
        if "transform" not in text.attributes:
            assert 0 <= float(text.attributes["x"]) <= charts.WIDTH
            assert 0 <= float(text.attributes["y"]) <= charts.HEIGHT


def test_thinning_keeps_ends_and_extremes():
    points = [(float(at), float(at % 7)) for at in range(10_000)]
    points[4321] = (4321.0, 99.0)
    points[777] = (777.0, -99.0)
    kept = charts.thin(points)
    assert len(kept) <= 402
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    assert {(4321.0, 99.0), (777.0, -99.0)} <= set(kept)
    assert set(kept) <= set(points)


def test_few_points_stay_as_they_are():
    points = [(1.0, 2.0), (2.0, 3.0)]
    assert charts.thin(points) == points


@given(NUMBERS, st.floats(1e-6, 1e9))
def test_ticks_are_few_and_inside(low, size):
    high = low + size
    if high - low < 1e-9 * max(abs(low), abs(high)):
        return
    found = charts.ticks(low, high)
    assert len(found) <= 6
    assert all(low - size * 1e-6 <= tick <= high + size * 1e-6 for tick in found)


def test_values_that_are_no_numbers_are_left_out():
    points = [(1.0, 2.0), (2.0, math.nan), (3.0, math.inf), (4.0, 5.0)]
    chart = svg(charts.lines([charts.Series("s", points)], "t", "x", "y"))
    assert len(page_reader.drawn_points(chart, next(chart.all("path")))) == 2


def test_a_series_without_points_is_not_in_the_legend():
    made = charts.lines([charts.Series("one", [(1, 1), (2, 2)]), charts.Series("none", [])], "t", "x", "y")
    assert "none" not in svg(made).text


def test_bars_are_as_high_as_their_values():
    chart = svg(charts.bars(["a", "b", "c"], [("g", [1.0, 4.0, None])], "t", "x", "y"))
    heights = [float(bar.attributes["height"]) for bar in chart.all("rect")]
    assert len(heights) == 2
    assert heights[1] == pytest.approx(4 * heights[0], abs=0.05)
    assert [bar.text for bar in chart.all("rect")] == ["g a: 1", "g b: 4"]


def test_a_grid_writes_every_value():
    chart = svg(charts.grid(["2", "5"], [[1.0, -0.25], [-0.25, 1.0]], "t"))
    assert [text.text for text in chart.all("text") if text.attributes.get("class") == "cell"] == [
        "1.00",
        "-0.25",
        "-0.25",
        "1.00",
    ]


@given(st.text())
def test_text_comes_back_as_it_was_but_for_what_a_page_cannot_hold(text):
    root = page_reader.parse(serialize(element("p", text, title=text)))
    node = next(root.all("p"))
    wanted = clean(text).replace("\r\n", "\n").replace("\r", "\n")
    assert node.text.replace("\r", "\n") == wanted.replace("\r", "\n") or node.text == clean(text)
    assert node.attributes["title"] == clean(text)
    assert not list(node.all("b"))


def test_content_stands_in_the_order_it_was_given():
    made = element("p", "a", element("b", "c"), "d", [None, "e", element("i")], "f")
    assert serialize(made) == "<p>a<b>c</b>de<i></i>f</p>"
