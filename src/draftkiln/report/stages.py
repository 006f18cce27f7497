"""The stages of a run: how far each is, and whether what each read is what the one before it made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.recipe.model import STAGES
from draftkiln.report.records import BEGUN_FILE, STAGE_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftkiln.report.records import Records, Value

DONE, BEGUN, MISSING, UNREADABLE = "done", "begun", "not begun", "unreadable"
MADE = {
    "prepare": ("dataset", ("dataset_sha256",)),
    "train": ("checkpoint", ("checkpoint_sha256",)),
    "export": ("draft", ("weights_sha256", "vllm")),
}
"""What a stage hands on, and where its results hold the hash of it."""
_RECORD = ".record"


@dataclass(frozen=True)
class StageView:
    """A stage of a run.

    Attributes:
        name: of the stage.
        state: DONE, BEGUN, MISSING or UNREADABLE.
        file: its record, relative to the run; an empty text where there is none.
        failure: the last error in its log, where it is not done.
    """

    name: str
    state: str
    file: str
    failure: Value | None = None


@dataclass(frozen=True)
class Check:
    """Whether two places that must say the same do."""

    what: str
    good: bool
    left: Value
    right: Value | str


def views(records: Records) -> list[StageView]:
    """The stages in their order."""
    return [_view(records, stage) for stage in STAGES]


def _view(records: Records, stage: str) -> StageView:
    log = f"logs/{stage}.jsonl"
    failure = None
    for number, event in records.numbered(log):
        kind = event.get("event")
        if kind == "error":
            failure = records.value(log, number, "text")
        elif str(kind) in {"begin", "end"}:
            failure = None
    for name, state in ((STAGE_FILE, DONE), (BEGUN_FILE, BEGUN)):
        file = f"{stage}/{name}"
        if isinstance(records.at(file, "inputs"), dict):
            return StageView(stage, state, file, failure if state == BEGUN else None)
        if (records.path / file).exists():
            return StageView(stage, UNREADABLE, file, failure)
    return StageView(stage, MISSING, "", failure)


def checks(records: Records, found: list[StageView]) -> Iterator[Check]:
    """Every place where a stage's record names what an earlier stage made."""
    files = {view.name: view.file for view in found if view.state in {DONE, BEGUN}}
    for stage, file in files.items():
        for key in records.mapping(file, "inputs"):
            left = records.value(file, "inputs", key)
            earlier = key.removesuffix(_RECORD)
            if left is None:
                continue
            if key.endswith(_RECORD) and earlier in files:
                made = durable.sha256_json(records.mapping(files[earlier], "inputs"))
                yield Check(f"{stage} read the record of {earlier} that lies here", left.value == made, left, made)
            elif key == "dataset_sha256" and "prepare" in files:
                yield from _same(records, f"{stage} read the dataset that prepare made", left, files["prepare"],
                                 ("results", "dataset_sha256"))  # fmt: skip
    yield from _of_files(records, files)


def _of_files(records: Records, files: dict[str, str]) -> Iterator[Check]:
    manifest = records.value("extract/manifest.jsonl", 0, "dataset_sha256")
    if manifest and "prepare" in files:
        yield from _same(records, "the manifest of the states speaks of that dataset", manifest, files["prepare"],
                         ("results", "dataset_sha256"))  # fmt: skip
    measured = records.value("evaluate/result.json", "draft_sha256")
    if measured and "export" in files:
        yield from _same(records, "the draft that was measured is the exported one", measured, files["export"],
                         ("results", "weights_sha256", "vllm"))  # fmt: skip


def _same(records: Records, what: str, left: Value, file: str, keys: tuple[str, ...]) -> Iterator[Check]:
    right = records.value(file, *keys)
    if right is not None:
        yield Check(what, left.value == right.value, left, right)


def result(records: Records, view: StageView, *keys: str) -> Value | None:
    """A result of a stage that is done."""
    return records.value(view.file, "results", *keys) if view.state == DONE else None


def number(records: Records, view: StageView, key: str) -> Value | None:
    """A result that is a number, of a stage that is done."""
    return records.number(view.file, "results", key) if view.state == DONE else None


def entry(records: Records, view: StageView, *keys: str) -> Value | None:
    """An input of a stage."""
    return records.value(view.file, "inputs", *keys) if view.file else None


def inputs(records: Records, view: StageView) -> dict[str, Any]:
    """All inputs of a stage."""
    return records.mapping(view.file, "inputs") if view.file else {}
