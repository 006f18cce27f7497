"""Reads a page as a browser's parser would hand it over, and holds its numbers against the files of its run."""

import json
import math
import re
from html.parser import HTMLParser
from statistics import median

from draftkiln.report import show
from draftkiln.report.elements import clean

VOID = {"meta", "br", "img", "input", "link", "hr", "wbr"}
MANIFEST = "extract/manifest.jsonl"


class Node:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent, self.children = tag, dict(attributes), parent, []

    def all(self, tag):
        for child in self.children:
            if isinstance(child, Node):
                if child.tag == tag:
                    yield child
                yield from child.all(tag)

    @property
    def text(self):
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def without(self, *tags, classes=()):
        """Text without what stands in some elements."""
        parts = []
        for child in self.children:
            if isinstance(child, str):
                parts.append(child)
            elif (
                child.tag not in tags
                and not (set(child.attributes.get("class", "").split()) & set(classes))
                and ("data-from" not in child.attributes)
            ):
                parts.append(child.without(*tags, classes=classes))
        return " ".join(parts)


class _Parser(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = self.here = Node("root", [], None)

    def handle_starttag(self, tag, attrs):
        node = Node(tag, attrs, self.here)
        self.here.children.append(node)
        if tag not in VOID:
            self.here = node

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.here.tag == tag, f"</{tag}> closes <{self.here.tag}>"
        self.here = self.here.parent

    def handle_data(self, data):
        self.here.children.append(data)


def parse(html):
    parser = _Parser()
    parser.feed(html)
    parser.close()
    return parser.root


def look_up(run, source):
    """The value at `file#pointer`, read anew from the file."""
    name, _, pointer = source.partition("#")
    text = (run / name).read_text(encoding="utf-8")
    value = [json.loads(line) for line in text.splitlines()] if name.endswith(".jsonl") else json.loads(text)
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def computed(run, how):
    """What a derived number must be, computed anew from the run's files."""
    rows = {}
    if (run / MANIFEST).exists():
        for line in (run / MANIFEST).read_text(encoding="utf-8").splitlines()[1:]:
            receipt = json.loads(line)
            rows[receipt["index"]] = receipt["rows"]
    if found := re.fullmatch(rf"count of rows in {re.escape(MANIFEST)} from (\d+) to (\d+)", how):
        return sum(int(found[1]) <= length <= int(found[2]) for length in rows.values())
    if how == f"count of receipts in {MANIFEST}":
        return len(rows)
    if how == "sum of stage_seconds":
        records = (json.loads(file.read_text(encoding="utf-8")) for file in run.glob("*/stage.json"))
        return sum(record["results"]["stage_seconds"] for record in records)
    raise AssertionError(f"nobody knows how {how!r} is computed")


def check_numbers(run, root):
    """Every number of the page against the files; gives how many there were."""
    count = 0
    for data in root.all("data"):
        attributes = data.attributes
        value = float(attributes["value"]) if "data-published" not in attributes and "data-form" in attributes else None
        if "data-from" in attributes:
            wanted = look_up(run, attributes["data-from"])
            assert attributes["value"] == repr(wanted), attributes
        elif "data-how" in attributes and attributes["data-how"] != "version":
            assert math.isclose(value, computed(run, attributes["data-how"])), attributes
        if value is not None:
            assert data.text == show.FORMS[attributes["data-form"]](value), attributes
        count += 1
    for node in [*root.all("span"), *root.all("code")]:
        source = node.attributes.get("data-from")
        if source:
            wanted = clean(show.as_text(look_up(run, source)))
            assert node.text == wanted if node.tag == "span" else wanted.startswith(node.text)
    return count


def drawn_points(chart, path):
    """The points of a line in the chart's own values."""
    (x_low, x_high), (y_low, y_high) = (map(float, chart.attributes[key].split()) for key in ("data-x", "data-y"))
    left, top, right, bottom = map(float, chart.attributes["data-box"].split())
    places = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.attributes["d"])
    return [
        (
            x_low + (float(x) - left) / (right - left) * (x_high - x_low),
            y_low + (float(y) - bottom) / (top - bottom) * (y_high - y_low),
        )
        for x, y in places
    ]


def ids(root):
    found = []
    stack = [root]
    while stack:
        node = stack.pop()
        if "id" in node.attributes:
            found.append(node.attributes["id"])
        stack += [child for child in node.children if isinstance(child, Node)]
    return found


__all__ = ["check_numbers", "computed", "drawn_points", "ids", "look_up", "median", "parse"]
