"""Sections of the page about what came out: the draft, and how much of it the target accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftkiln.report import charts, published, show, stages
from draftkiln.report.elements import element

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftkiln.report.elements import Content
    from draftkiln.report.records import Records
    from draftkiln.report.stages import StageView

RESULT = "evaluate/result.json"
CONFIG = "export/vllm/config.json"
_MOST_SHOWN = 20
_FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


_SIZES = {"hidden_size": show.count, "intermediate_size": show.count, "num_attention_heads": show.count,
          "num_key_value_heads": show.count, "head_dim": show.count, "vocab_size": show.count}  # fmt: skip
_MEASURED = {"acceptance_length": show.exact, "num_draft_tokens": show.count, "prompts": show.count,
             "answers": show.count, "drafts": show.count, "accepted": show.count, "tokens": show.count,
             "tokens_per_second": show.plain, "tokens_per_second_alone": show.plain, "lossless": None,
             "unigram_length": show.plain, "vllm": None, "dtype": None, "sampling": None,
             "trained_on": None}  # fmt: skip
_NAMES = {
    "lossless": "output equal to the target alone",
    "unigram length": "always the most frequent token would reach",
}


def draft(records: Records, view: StageView) -> Iterator[Content]:
    """What was exported."""
    rows = show.facts(records, view.file, ("results",), {"parameters": show.count, "layer_ids": None})
    rows += show.facts(records, CONFIG, (), dict.fromkeys(_FLAGS))
    rows += show.facts(records, CONFIG, ("transformer_layer_config",), _SIZES)
    rows += show.facts(records, CONFIG, (), {"draft_vocab_size": show.count})
    for layout in records.mapping(view.file, "results", "weights_sha256"):
        found = stages.result(records, view, "weights_sha256", layout)
        rows.append((f"weights for {layout}, sha256", show.digest(found)))
    rows += show.facts(records, view.file, ("results",), {"sglang_refused": None})
    if rows:
        yield show.pairs(rows)


def acceptance(records: Records) -> Iterator[Content]:
    """What the target accepts of the draft, and what it gains."""
    rows = show.facts(records, RESULT, (), _MEASURED)
    yield show.pairs((_NAMES.get(name, name), content) for name, content in rows)
    differ = records.sequence(RESULT, "divergences")
    if differ:
        yield element("p", "Answers changed when the draft was used:", class_="bad")
        keys = ("prompt", "turn", "position")
        yield show.table(list(keys), [
            [show.number(records.number(RESULT, "divergences", place, key), show.count) for key in keys]
            for place in range(min(len(differ), _MOST_SHOWN))
        ])  # fmt: skip
    yield from _positions(records)
    yield from _sets(records)
    yield from _others(records)


def _positions(records: Records) -> Iterator[Content]:
    shares = records.sequence(RESULT, "acceptance_per_position")
    for place in range(len(shares)):
        records.number(RESULT, "acceptance_per_position", place)
    if not shares or not all(show.finite(share) for share in shares):
        return
    beside = published.beside(target_repository(records), records.at(RESULT, "num_draft_tokens"))
    labels = [f"token {place + 1}" for place in range(len(shares))]
    groups: list[tuple[str, list[float | None]]] = [("this draft", list(shares))]
    groups += [(one.draft, list(one.per_position)) for one in beside if one.per_position]
    picture = charts.bars(
        labels, groups, "acceptance by position", "draft tokens 1 to k all accepted", "share", y_high=1.0
    )
    table = show.table(["draft token", "share of drafts"], [
        [str(place + 1), show.number(records.number(RESULT, "acceptance_per_position", place), show.percent)]
        for place in range(len(shares))
    ])  # fmt: skip
    yield show.figure(picture, "Share of drafts whose tokens 1 to k were all accepted.", table)
    if not beside:
        yield element("p", "No published draft of this target with a stated source is known here.", class_="absent")
        return
    own: list[Content] = [
        "this draft",
        "held-out prompts of this run",
        show.number(records.number(RESULT, "acceptance_length"), show.exact),
    ]
    rows: list[list[Content]] = [[*own, ""]]
    rows += [
        [element("a", one.draft, href=one.url, rel="noreferrer"), one.prompts,
         element("data", show.plain(one.length), value=repr(one.length), data_published=one.url), one.note]
        for one in beside
    ]  # fmt: skip
    yield element("h3", "Beside published drafts of this target")
    yield element("p", "As their authors state them, on other prompts and engines: neighbours, no ranking.")
    yield show.table(["draft", "prompts", "acceptance length", "how"], rows)


def _sets(records: Records) -> Iterator[Content]:
    """Every prompt set and way of sampling, where more than the held-out prompts were measured."""
    if len(records.sequence(RESULT, "sets")) < 2:  # noqa: PLR2004 - the first is told above
        return
    columns = {"prompts": show.count, "answers": show.count, "acceptance_length": show.exact,
               "tokens_per_second": show.plain, "tokens_per_second_alone": show.plain,
               "unigram_length": show.plain}  # fmt: skip
    rows = []
    for place in range(len(records.sequence(RESULT, "sets"))):
        row = [show.text(records.value(RESULT, "sets", place, "set"))]
        row.append(show.number(records.number(RESULT, "sets", place, "sampling", "temperature")))
        row += [show.number(records.number(RESULT, "sets", place, key), form) for key, form in columns.items()]
        row.append(show.text(records.value(RESULT, "sets", place, "lossless")))
        shares = records.sequence(RESULT, "sets", place, "acceptance_per_position")
        each = (records.number(RESULT, "sets", place, "acceptance_per_position", at) for at in range(len(shares)))
        rows.append([*row, [[show.number(share, show.percent), " "] for share in each]])
    head = [
        "set",
        "temperature",
        "prompts",
        "answers",
        "acceptance length",
        "tok/s",
        "alone",
        "most frequent token",
        "same output",
    ]
    table = show.table([*head, "by position"], rows)
    yield element("div", element("h3", "Every prompt set"), table, class_="wide")


def target_repository(records: Records) -> str | None:
    """Repository of the target, where it comes from one."""
    for stage in ("extract", "prepare"):
        for name in ("stage.json", "begun.json"):
            found = records.at(f"{stage}/{name}", "inputs", "recipe.target", "source", "hub")
            if isinstance(found, str):
                return found
    return None


def _others(records: Records) -> Iterator[Content]:
    """Other drafts that were measured on the same prompts with `draftkiln evaluate --draft`."""
    rows: list[list[Content]] = []
    for folder in sorted((records.path / "evaluate").glob("other-*")):
        file = f"evaluate/{folder.name}/result.json"
        found: Any = records.number(file, "acceptance_length")
        if found:
            rows.append([show.digest(records.value(file, "draft_sha256"), 12), show.number(found, show.exact),
                         show.number(records.number(file, "prompts"), show.count)])  # fmt: skip
    if rows:
        yield element("h3", "Other drafts on this target")
        yield show.table(["weights, sha256", "acceptance length", "prompts"], rows)
