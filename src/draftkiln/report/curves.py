"""Curves of a run: how fast states came, how the loss fell, how often draft tokens were right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftkiln.report import charts, show
from draftkiln.report.charts import Series
from draftkiln.report.elements import element

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftkiln.report.elements import Content
    from draftkiln.report.records import Records

CURVE = "train/curve.jsonl"
LOG = "logs/extract.jsonl"
_ROWS = 9


def extraction_rate(records: Records) -> Iterator[Content]:
    """Tokens a second over the time since extraction began; a new start is a line of its own."""
    began, starts = _starts(records)
    if not starts:
        why = "is damaged" if LOG in records.damaged else "holds no rates over time"
        yield element("p", f"The log of this run {why}.", class_="absent")
        return
    longest = starts[-1][-1][1]["at"] - began
    unit, size = ("hours", 3600) if longest > 7200 else ("minutes", 60) if longest > 120 else ("seconds", 1)  # noqa: PLR2004 - readable numbers
    series = [
        Series(
            f"start {place}",
            [((event["at"] - began) / size, event["tokens_per_second"]) for _, event in start],
            len(start) == 1,
            LOG,
        )
        for place, start in enumerate(starts, start=1)
    ]
    rows = [
        [
            show.number(records.number(LOG, number, "samples"), show.count),
            show.number(records.number(LOG, number, "tokens"), show.count),
            show.number(records.number(LOG, number, "tokens_per_second")),
        ]
        for number, _ in _some([pair for start in starts for pair in start])
    ]
    yield show.figure(
        charts.lines(series, "extraction rate over time", f"{unit} since extraction began", "tokens a second"),
        "Tokens a second while extracting, over the half minute before each point.",
        show.details("Numbers", show.table(["samples", "tokens", "tokens a second"], rows)),
    )


def _starts(records: Records) -> tuple[float, list[list[tuple[int, dict[str, Any]]]]]:
    """When extraction first began, and the numbered progress events of each start."""
    timed = [(number, event) for number, event in records.numbered(LOG) if show.finite(event.get("at"))]
    starts: list[list[tuple[int, dict[str, Any]]]] = [[]]
    for number, event in timed:
        if event.get("event") == "begin":
            starts.append([])
        elif event.get("event") == "progress" and show.finite(event.get("tokens_per_second")):
            starts[-1].append((number, event))
    return (timed[0][1]["at"] if timed else 0.0), [start for start in starts if start]


def learning(records: Records) -> Iterator[Content]:
    """Loss, accuracy by draft token, and rate over the steps."""
    lines = list(records.numbered(CURVE))
    for number, _ in lines:
        for key in ("step", "loss", "tokens_per_second"):
            records.number(CURVE, number, key)
    steps = {
        line["step"]: (number, line)
        for number, line in lines
        if show.finite(line.get("step")) and not line.get("validation")
    }
    held = {
        line["step"]: (number, line)
        for number, line in lines
        if show.finite(line.get("step")) and line.get("validation")
    }
    if not steps:
        return
    trained, checked = [pair for _, pair in sorted(steps.items())], [pair for _, pair in sorted(held.items())]
    yield show.figure(
        charts.lines(
            [
                Series("training", _points(trained, "loss"), source=CURVE),
                Series("not trained on", _points(checked, "loss"), dots=True, source=CURVE),
            ],
            "loss over the steps", "step", "loss",
        ),
        "Loss of each step, and of the samples set apart.",
        show.details(
            "Numbers", _numbers(records, _some(trained), "training"), _numbers(records, checked, "not trained on")
        ),
    )  # fmt: skip
    positions = max((len(line["accuracy"]) for _, line in trained if isinstance(line.get("accuracy"), list)), default=0)
    series = [
        Series(f"draft token {place + 1}", _shares(trained, place), source=CURVE) for place in range(positions)
    ] + [
        Series("", _shares(checked, place), dots=True, source=CURVE, colour=place) for place in range(positions)
    ]  # fmt: skip
    if series:
        yield show.figure(
            charts.lines(series, "accuracy over the steps", "step", "share right"),
            "Share of positions where draft tokens 1 to k are all right; dots: on the samples set apart.",
        )
    rate = Series("rate", _points(trained, "tokens_per_second"), source=CURVE)
    yield show.figure(
        charts.lines([rate], "training rate", "step", "tokens a second"), "Tokens a second while training."
    )


def _numbers(records: Records, lines: Sequence[tuple[int, dict[str, Any]]], what: str) -> Content:
    if not lines:
        return None
    rows = []
    for number, line in lines:
        shares = line.get("accuracy") if isinstance(line.get("accuracy"), list) else []
        row = [show.number(records.number(CURVE, number, "step"), show.count)]
        row.append(show.number(records.number(CURVE, number, "loss")))
        row += [
            show.number(records.number(CURVE, number, "accuracy", place), show.percent)
            for place in range(len(shares or []))
        ]
        rows.append(row)
    width = max(map(len, rows))
    head = ["step", "loss", *(f"token {place}" for place in range(1, width - 1))]
    return [element("h4", what), show.table(head, rows)]


def _points(lines: Sequence[tuple[int, dict[str, Any]]], key: str) -> list[charts.Point]:
    return [(line["step"], line[key]) for _, line in lines if show.finite(line.get(key))]


def _shares(lines: Sequence[tuple[int, dict[str, Any]]], place: int) -> list[charts.Point]:
    columns = ((line["step"], line["accuracy"]) for _, line in lines if isinstance(line.get("accuracy"), list))
    return [(step, shares[place]) for step, shares in columns if len(shares) > place and show.finite(shares[place])]


def _some(lines: Sequence[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    """The first, the last and some between."""
    count = min(_ROWS, len(lines))
    return [lines[round(place * (len(lines) - 1) / max(count - 1, 1))] for place in range(count)]
