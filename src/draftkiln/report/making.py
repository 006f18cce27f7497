"""Sections of the page about how a draft was made: data, extraction, states, checks, training."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from draftkiln.report import charts, curves, show, stages
from draftkiln.report.elements import element

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftkiln.report.elements import Content
    from draftkiln.report.records import Records
    from draftkiln.report.stages import StageView

MANIFEST = "extract/manifest.jsonl"
REPORT = "validate/report.json"
_PREPARED = ("prepare/prepare-report.json", "prepare/report.json")
_BINS = 24


def data(records: Records, view: StageView) -> Iterator[Content]:
    """What was prepared, and how long samples are."""
    report = next((file for file in _PREPARED if records.at(file)), _PREPARED[0])
    counts = ("samples", "tokens", "trained_tokens", "distinct_trained_tokens", "held_out", "refused")
    rows: list[tuple[str, Content]] = [
        (key.replace("_", " "), show.number(stages.result(records, view, key), show.count))
        for key in counts if stages.result(records, view, key)
    ]  # fmt: skip
    for key in ("min", "median", "max"):
        if found := records.value(report, "length", key):
            rows.append((f"tokens of a sample, {key}", show.number(found, show.count)))
    for key in ("mask_proved_by", "end_of_turn", "tokenizer"):
        if found := records.value(report, key):
            rows.append((key.replace("_", " "), show.text(found)))
    for reason in records.mapping(report, "refused_by_reason"):
        rows.append((f"refused: {reason}", show.number(records.value(report, "refused_by_reason", reason), show.count)))
    if rows:
        yield show.pairs(rows)
    yield from _lengths(records)


def _lengths(records: Records) -> Iterator[Content]:
    lengths = sample_lengths(records)
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


def sample_lengths(records: Records) -> dict[int, int]:
    """Tokens of each extracted sample, by index, as the manifest's receipts say."""
    found: dict[int, int] = {}
    for _, line in records.numbered(MANIFEST):
        for index in line.get("withdrawn", ()):
            found.pop(index, None)
        if isinstance(line.get("rows"), int) and isinstance(line.get("index"), int):
            found[line["index"]] = line["rows"]
    return found


def bins(lengths: list[int]) -> tuple[list[str], list[int], list[tuple[int, int]]]:
    """Equal ranges over lengths: a label for each, how many fall in it, and its first and last length."""
    low, high = min(lengths), max(lengths)
    width = max(1, -(-(high - low + 1) // _BINS))
    places = Counter((length - low) // width for length in lengths)
    edges = [(low + at * width, low + (at + 1) * width - 1) for at in range((high - low) // width + 1)]
    return [str(first) for first, _ in edges], [places[at] for at in range(len(edges))], edges


def extraction(records: Records, view: StageView) -> Iterator[Content]:
    """What was captured, and how fast."""
    head = (("layer_ids", show.text), ("dtype", show.text), ("computed_in", show.text), ("hidden_size", show.number),
            ("norm_state", show.text), ("layout", show.text), ("checksum", show.text))  # fmt: skip
    rows: list[tuple[str, Content]] = [
        (key.replace("_", " "), form(found)) for key, form in head if (found := records.value(MANIFEST, 0, key))
    ]
    numbers = (("samples", show.count), ("tokens", show.count), ("tokens_per_second", show.plain),
               ("engine_start_seconds", show.duration), ("seconds", show.duration))  # fmt: skip
    rows += [
        (key.replace("_", " "), show.number(found, form))
        for key, form in numbers if (found := stages.result(records, view, key))
    ]  # fmt: skip
    if view.state != stages.DONE:
        durable = len(sample_lengths(records))
        rows.append(("samples durable so far", show.derived(durable, f"count of receipts in {MANIFEST}")))
    yield show.pairs(rows)
    yield from curves.extraction_rate(records)


def states(records: Records) -> Iterator[Content]:
    """How large the rows of each layer are, and how alike the layers."""
    layers = records.sequence(REPORT, "states", "layers")
    cosines = records.sequence(REPORT, "states", "cosines")
    if not layers or len(cosines) != len(layers):
        yield element("p", "Not recorded in this run: `draftkiln validate` writes them.", class_="absent")
        return
    names = [str(layer["layer"]) for layer in layers]
    kinds = ("norm_min", "norm_median", "norm_max")
    points = {kind: [(place, layer[kind]) for place, layer in enumerate(layers)] for kind in kinds}
    groups = [("median", [value for _, value in points["norm_median"]])]
    yield show.figure(
        charts.bars(names, groups, "median norm of each layer", "layer", "norm"),
        "Median Euclidean norm of the rows of each captured layer.",
        show.table(["layer", "least", "median", "largest"], [
            [show.number(records.value(REPORT, "states", "layers", place, kind)) for kind in ("layer", *kinds)]
            for place in range(len(names))
        ]),
    )  # fmt: skip
    yield show.figure(
        charts.grid(names, cosines, "cosine between layers"),
        "Mean cosine between two layers of a token. Captured layers that are almost the same say the same thing twice.",
    )
    looked = [show.number(records.value(REPORT, "states", key), show.count) for key in ("samples", "rows")]
    yield element("p", "Measured on ", looked[0], " samples, ", looked[1], " tokens.")


def validation(records: Records, view: StageView) -> Iterator[Content]:
    """What was checked, and how near the states are to an independent computation."""
    checks = records.sequence(REPORT, "checks") or records.sequence(view.file, "results", "checks")
    if checks:
        yield element("ul", [element("li", "✓ ", show.as_text(check)) for check in checks], class_="checks")
    agreements = records.sequence(REPORT, "agreements")
    by_layer: dict[Any, list[int]] = defaultdict(list)
    for place, agreement in enumerate(agreements):
        by_layer[agreement["layer"]].append(place)
    rows: list[list[Content]] = []
    for places in by_layer.values():
        worst = min(places, key=lambda place: agreements[place]["min_cosine"])
        row = [show.number(records.value(REPORT, "agreements", worst, key), show.count) for key in ("layer", "index", "row")]
        row += [show.number(records.value(REPORT, "agreements", worst, key), show.fine)
                for key in ("min_cosine", "median_cosine", "nearest", "argmax")]  # fmt: skip
        rows.append(row)
    if rows:
        words = element("p", "The worst sample of each layer beside Hugging Face transformers on the same weights:")
        head = ["layer", "sample", "token", "least cosine", "median", "nearest", "same next token"]
        yield element("div", words, show.table(head, rows))
    answers = records.sequence(REPORT, "answers")
    if answers:
        rows = [[show.number(records.value(REPORT, "answers", place, key), show.count) for key in ("index", "same", "rows")]
                for place in range(len(answers))]  # fmt: skip
        yield show.details("Beside what the engine itself said next", show.table(["sample", "same", "tokens"], rows))


def training(records: Records, view: StageView) -> Iterator[Content]:
    """Loss and accuracy, and the settings."""
    numbers = (("steps", show.count), ("epochs", show.count), ("tokens", show.count), ("loss_first", show.plain),
               ("loss_last", show.plain), ("validation_loss", show.plain), ("seconds_per_step", show.plain),
               ("draft_vocab_size", show.count))  # fmt: skip
    rows: list[tuple[str, Content]] = [
        (key.replace("_", " "), show.number(found, form))
        for key, form in numbers if (found := stages.result(records, view, key))
    ]  # fmt: skip
    for place, _ in enumerate(records.sequence(view.file, "results", "validation_accuracy")):
        found = records.value(view.file, "results", "validation_accuracy", place)
        rows.append((f"validation accuracy, draft token {place + 1}", show.number(found, show.percent)))
    if found := stages.result(records, view, "device"):
        rows.append(("device", show.text(found)))
    if rows:
        yield show.pairs(rows)
    yield from curves.learning(records)
    settings = records.mapping(view.file, "results", "settings")
    if settings:
        lines = [[key, show.text(records.value(view.file, "results", "settings", key)) if settings[key] is not None else "null"]
                 for key in settings]  # fmt: skip
        yield show.details("All settings of the trainer", show.table(["setting", "value"], lines))
