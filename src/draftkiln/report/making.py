"""Sections of the page about how a draft was made: data, extraction, states, checks, training."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from draftkiln.report import charts, curves, show, stages
from draftkiln.report.elements import element
from draftkiln.report.records import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftkiln.report.elements import Content
    from draftkiln.report.records import Records
    from draftkiln.report.stages import StageView

REPORT = "validate/report.json"
_PREPARED = ("prepare/prepare-report.json", "prepare/report.json")
_BINS = 24
_RESULTS = ("results",)


_DATA = {"samples": show.count, "tokens": show.count, "trained_tokens": show.count,
         "distinct_trained_tokens": show.count, "held_out": show.count, "refused": show.count}  # fmt: skip
_STORED = {"layer_ids": None, "dtype": None, "computed_in": None, "hidden_size": show.count, "norm_state": None,
           "layout": None, "checksum": None}  # fmt: skip
_EXTRACTED = {"samples": show.count, "tokens": show.count, "tokens_per_second": show.plain,
              "engine_start_seconds": show.duration, "seconds": show.duration}  # fmt: skip
_AGREEMENT = {"layer": show.count, "index": show.count, "row": show.count, "min_cosine": show.fine,
              "median_cosine": show.fine, "nearest": show.fine, "argmax": show.fine}  # fmt: skip
_TRAINED = {"steps": show.count, "epochs": show.count, "tokens": show.count, "loss_first": show.plain,
            "loss_last": show.plain, "validation_loss": show.plain, "seconds_per_step": show.plain,
            "draft_vocab_size": show.count, "device": None, "devices": show.count}  # fmt: skip
_ANSWERED = ("index", "same", "rows")
_NORMS = ("norm_min", "norm_median", "norm_max")


def data(records: Records, view: StageView) -> Iterator[Content]:
    """What was prepared, and how long samples are."""
    report = next((file for file in _PREPARED if records.at(file)), _PREPARED[0])
    rows = show.facts(records, view.file, _RESULTS, _DATA)
    lengths = show.facts(records, report, ("length",), dict.fromkeys(("min", "median", "max"), show.count))
    rows += [(f"tokens of a sample, {name}", content) for name, content in lengths]
    rows += show.facts(records, report, (), dict.fromkeys(("mask_proved_by", "end_of_turn", "tokenizer")))
    for reason in records.mapping(report, "refused_by_reason"):
        refused = records.number(report, "refused_by_reason", reason)
        rows += [(f"refused: {reason}", show.number(refused, show.count))]
    if rows:
        yield show.pairs(rows)
    yield from _lengths(records)


def _lengths(records: Records) -> Iterator[Content]:
    lengths = {index: receipt["rows"] for index, receipt in records.receipts().items()}
    if not lengths:
        return
    labels, counts, edges = bins(list(lengths.values()))
    picture = charts.bars(labels, [("samples", counts)], "lengths of the samples", "tokens of a sample", "samples")
    how = f"count of rows in {MANIFEST}"
    rows = [
        (element("span", f"{low} to {high}", class_="range"), show.derived(count, f"{how} from {low} to {high}"))
        for (low, high), count in zip(edges, counts, strict=True) if count
    ]  # fmt: skip
    yield show.figure(
        picture, "How many samples have how many tokens.",
        show.details("Numbers", show.table(["tokens", "samples"], rows)),
    )  # fmt: skip


def bins(lengths: list[int]) -> tuple[list[str], list[int], list[tuple[int, int]]]:
    """Equal ranges over lengths: a label for each, how many fall in it, and its first and last length."""
    low, high = min(lengths), max(lengths)
    width = max(1, -(-(high - low + 1) // _BINS))
    places = Counter((length - low) // width for length in lengths)
    edges = [(low + at * width, low + (at + 1) * width - 1) for at in range((high - low) // width + 1)]
    return [str(first) for first, _ in edges], [places[at] for at in range(len(edges))], edges


def extraction(records: Records, view: StageView) -> Iterator[Content]:
    """What was captured, and how fast."""
    rows = show.facts(records, MANIFEST, (0,), _STORED)
    if view.state == stages.DONE:
        rows += show.facts(records, view.file, _RESULTS, _EXTRACTED)
    else:
        durable = len(records.receipts())
        if MANIFEST not in records.damaged:
            rows.append(("samples durable so far", show.derived(durable, f"count of receipts in {MANIFEST}")))
    yield show.pairs(rows)
    yield from curves.extraction_rate(records)


def states(records: Records) -> Iterator[Content]:
    """How large the rows of each layer are, and how alike the layers."""
    layers = records.sequence(REPORT, "states", "layers")
    cosines = records.sequence(REPORT, "states", "cosines")
    if layers and not _is_profile(layers, cosines):
        records.doubt(REPORT, "'states' holds something else than numbers, as many for each layer")
    if REPORT in records.damaged:
        yield element("p", "Not known: ", element("code", REPORT), " is damaged.", class_="absent")
        return
    if not layers or not _is_profile(layers, cosines):
        yield element("p", "Not recorded in this run: ", element("code", "draftkiln validate"), " writes them.",
                      class_="absent")  # fmt: skip
        return
    names = [str(layer["layer"]) for layer in layers]
    medians = [layer["norm_median"] for layer in layers]
    table = show.table(
        ["layer", "least", "median", "largest"],
        [
            [show.number(records.number(REPORT, "states", "layers", place, key)) for key in ("layer", *_NORMS)]
            for place in range(len(names))
        ],
    )
    picture = charts.bars(names, [("median", medians)], "median norm of each layer", "layer", "norm")
    yield show.figure(picture, "Median Euclidean norm of the rows of each captured layer.", table)
    yield show.figure(
        charts.grid(names, cosines, "cosine between layers"),
        "Mean cosine between two layers of a token. Captured layers that are almost the same say the same thing twice.",
    )
    looked = [show.number(records.number(REPORT, "states", key), show.count) for key in ("samples", "rows")]
    yield element("p", "Measured on ", looked[0], " samples, ", looked[1], " tokens.")


def _is_profile(layers: list[Any], cosines: list[Any]) -> bool:
    """Whether what is recorded can be drawn."""
    square = len(cosines) == len(layers) and all(isinstance(row, list) and len(row) == len(layers) for row in cosines)
    told = all(
        isinstance(layer, dict) and all(show.finite(layer.get(key)) for key in ("layer", *_NORMS)) for layer in layers
    )
    return square and told and all(show.finite(value) for row in cosines for value in row)


def validation(records: Records, view: StageView) -> Iterator[Content]:
    """What was checked, and how near the states are to an independent computation."""
    checks = records.sequence(REPORT, "checks") or records.sequence(view.file, "results", "checks")
    if checks:
        yield element("ul", [element("li", "✓ ", show.as_text(check)) for check in checks], class_="checks")
    rows = [
        [show.number(records.number(REPORT, "agreements", worst, key), form) for key, form in _AGREEMENT.items()]
        for worst in _worst(records)
    ]
    if rows:
        words = element("p", "The worst sample of each layer beside Hugging Face transformers on the same weights:")
        head = ["layer", "sample", "token", "least cosine", "median", "nearest", "same next token"]
        yield element("div", words, show.table(head, rows))
    answers = records.sequence(REPORT, "answers")
    if answers:
        rows = [
            [show.number(records.number(REPORT, "answers", place, key), show.count) for key in _ANSWERED]
            for place in range(len(answers))
        ]
        yield show.details("Beside what the engine itself said next", show.table(["sample", "same", "tokens"], rows))


def _worst(records: Records) -> list[int]:
    """Place of the comparison with the least cosine, for each layer."""
    agreements = records.sequence(REPORT, "agreements")
    places: dict[str, list[int]] = defaultdict(list)
    for place, agreement in enumerate(agreements):
        if isinstance(agreement, dict) and show.finite(agreement.get("min_cosine")):
            places[str(agreement.get("layer"))].append(place)
        else:
            records.doubt(REPORT, f"agreements.{place} has no number 'min_cosine'")
    return [min(several, key=lambda place: float(agreements[place]["min_cosine"])) for several in places.values()]


def training(records: Records, view: StageView) -> Iterator[Content]:
    """Loss and accuracy, and the settings."""
    rows = show.facts(records, view.file, _RESULTS, _TRAINED)
    for place in range(len(records.sequence(view.file, "results", "validation_accuracy"))):
        found = records.number(view.file, "results", "validation_accuracy", place)
        rows.append((f"validation accuracy, draft token {place + 1}", show.number(found, show.percent)))
    if rows:
        yield show.pairs(rows)
    yield from curves.learning(records)
    settings = records.mapping(view.file, "results", "settings")
    if settings:
        lines = [[key, show.text(records.value(view.file, "results", "settings", key))] for key in settings]
        yield show.details("All settings of the trainer", show.table(["setting", "value"], lines))
