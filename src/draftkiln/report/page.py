"""The page of a run: one HTML file that loads nothing, to be read on a phone or a desk, in the dark or the light."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from draftkiln import __version__
from draftkiln.report import making, outcome, picture, provenance, show, stages
from draftkiln.report.elements import clean, element, serialize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from draftkiln.report.elements import Content, Element
    from draftkiln.report.records import Records, Value
    from draftkiln.report.stages import StageView

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The browser itself refuses to load anything."""


def render(records: Records, linked: str | None = None) -> str:
    """HTML of the page.

    Args:
        records: of the run.
        linked: prefix of links to files of the run, such as an empty text for a page inside it; None for no links.
    """
    views = stages.views(records)
    parts = list(_parts(records, views, linked))
    name = clean(show.as_text(records.at("run.json", "recipe")))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{name}: a run of draftkiln"),
        element("style", resources.files("draftkiln.report").joinpath("page.css").read_text(encoding="utf-8")),
    )
    links = [element("a", title, href=f"#{anchor}") for anchor, title, _ in parts]
    top = element(
        "header",
        element("h1", show.text(records.value("run.json", "recipe"))),
        element("p", _state(views), class_="lead"),
        element("div", _damaged(records)) if records.damaged else None,
        element("nav", links),
    )
    sections = [element("section", element("h2", title), body, id=anchor) for anchor, title, body in parts]
    version = element("data", __version__, value=__version__, data_how="version")
    foot = element("footer", "Written by draftkiln ", version, " from the files of the run; nothing is loaded.")
    body = element("body", top, element("main", sections), foot)
    return "<!doctype html>\n" + serialize(element("html", head, body, lang="en")) + "\n"


def _parts(
    records: Records, views: Sequence[StageView], linked: str | None
) -> Iterator[tuple[str, str, list[Content]]]:
    """Anchor, title and content of each section."""
    prepare, extract, validate, train, export, evaluate = views
    yield "run", "The run", _overview(records, views)
    yield "data", "Data", _of(records, prepare, making.data(records, prepare))
    yield "states", "Hidden states", [
        *_of(records, extract, making.extraction(records, extract)),
        element("h3", "Layers"), element("div", list(making.states(records)), class_="flow"),
    ]  # fmt: skip
    yield "checks", "Checks", _of(records, validate, making.validation(records, validate))
    yield "training", "Training", _of(records, train, making.training(records, train))
    yield "draft", "Draft", _of(records, export, outcome.draft(records, export))
    yield "acceptance", "Acceptance", _of(records, evaluate, outcome.acceptance(records))
    yield "provenance", "Provenance", list(provenance.chain(records, views))
    details = [provenance.stage_details(records, view, linked) for view in views]
    yield "records", "All that is recorded", [*details, *_damaged(records)]


def _state(views: Sequence[StageView]) -> Content:
    open_ones = [view for view in views if view.state != stages.DONE]
    if not open_ones:
        return element("span", "All stages are done.", class_="good")
    words = [f"{view.name} is {view.state}" for view in open_ones]
    return [element("b", "Unfinished: "), "; ".join(words), "."]


def _overview(records: Records, views: Sequence[StageView]) -> list[Content]:
    tiles = [
        element("div", element("b", number), element("span", label), class_="tile")
        for label, number in _highlights(records, views)
    ]
    drawn = show.figure(
        picture.pipeline(records, views), "The stages, what each ran on, and the hash of what it handed on."
    )
    read = [[element("a", view.name, href=f"#stage-{view.name}"), _reads(records, view)] for view in views if view.file]
    inputs = element("div", element("h3", "What each stage read"), show.table(["stage", "inputs, first digits"], read))
    return [element("div", tiles, class_="tiles") if tiles else None, element("div", drawn, inputs, class_="columns")]


def _reads(records: Records, view: StageView) -> Content:
    """Hashes that a stage's inputs hold, shortened."""
    found: list[Content] = []
    for keys, value in show.flat(stages.inputs(records, view)):
        if isinstance(value, str) and len(value) == 64:  # noqa: PLR2004 - hex digits of a sha256
            name = " ".join(str(key) for key in keys)
            digest = show.digest(stages.entry(records, view, *(str(key) for key in keys)), 10)
            found.append(element("div", f"{name} ", digest))
    return found


def _highlights(records: Records, views: Sequence[StageView]) -> Iterator[tuple[str, Content]]:
    by_name = {view.name: view for view in views}
    wanted: tuple[tuple[str, Value | None, Callable[[float], str]], ...] = (
        ("acceptance length", records.number(outcome.RESULT, "acceptance_length"), show.exact),
        ("least cosine to transformers", stages.number(records, by_name["validate"], "min_cosine"), show.fine),
        ("loss after the last step", stages.number(records, by_name["train"], "loss_last"), show.plain),
        ("samples", stages.number(records, by_name["prepare"], "samples"), show.count),
        ("tokens", stages.number(records, by_name["prepare"], "tokens"), show.count),
        ("tokens a second, extraction", stages.number(records, by_name["extract"], "tokens_per_second"), show.plain),
    )
    yield from ((label, show.number(found, form)) for label, found, form in wanted if found is not None)
    taken = [stages.number(records, view, "stage_seconds") for view in views]
    seconds = sum(found.value for found in taken if found and show.finite(found.value))
    if seconds:
        yield "in stages that are done", show.derived(seconds, "sum of stage_seconds", show.duration)


def _of(records: Records, view: StageView, content: Iterable[Content]) -> list[Content]:
    """A section's content, with what is missing or damaged said first."""
    shown = element("div", list(content), class_="flow")  # first: it reads the files
    damaged = _damaged(records, f"{view.name}/", f"logs/{view.name}.")
    if view.state == stages.DONE:
        return [*damaged, shown]
    said: list[Content] = [element("p", f"Stage {view.name} is {view.state}.", class_="absent"), *damaged]
    if view.failure is not None:
        said += [element("p", "It stopped with:"), element("pre", show.text(view.failure), class_="bad")]
    return [*said, shown if view.state != stages.MISSING else None]


def _damaged(records: Records, *beginnings: str) -> list[Element]:
    """A line for each damaged file, or each whose name has one of these beginnings."""
    return [
        element("p", element("code", file), f" is damaged: {why}", class_="bad")
        for file, why in sorted(records.damaged.items())
        if not beginnings or file.startswith(beginnings)
    ]
