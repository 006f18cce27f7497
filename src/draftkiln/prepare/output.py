"""What the stage leaves behind: the dataset, the held-out prompts, the sources and the report, all or nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from array import array
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.prepare.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from draftkiln.prepare.conversation import Conversation
    from draftkiln.prepare.outcome import Refusal, Sample

REPORT = "prepare-report.json"
REPORT_VERSION = 2
_BATCH = 512


class DatasetWriter:
    """Writes `folder/dataset` as `datasets` saves one and speculators >= 0.5 trains from it, sample by sample.

    Columns: `input_ids` int64 `[T]`, `loss_mask` int64 `[T]`, `seq_len` int64; row i is sample i.
    """

    def __init__(self, folder: Path) -> None:
        import pyarrow as pa

        self._folder = folder
        self._rows = folder / ".samples.arrow.tmp"
        integers = pa.list_(pa.int64())
        self._schema = pa.schema([("input_ids", integers), ("loss_mask", integers), ("seq_len", pa.int64())])
        self._stream = pa.ipc.new_stream(str(self._rows), self._schema)
        self._digest = hashlib.sha256()
        self._batch: list[dict[str, Any]] = []

    def add(self, sample: Sample) -> None:
        """Append a sample."""
        ids, mask = sample.input_ids, sample.loss_mask
        for part in (array("q", [len(ids)]), array("q", ids), array("B", mask)):
            self._digest.update(part)
        self._batch.append({"input_ids": ids, "loss_mask": mask, "seq_len": len(ids)})
        if len(self._batch) >= _BATCH:
            self._flush()

    def finish(self) -> str:
        """Let the dataset appear.

        Returns:
            Hex sha256 of lengths, ids (64 bits each) and masks (8 bits each) in order, independent of the file format.
        """
        import datasets

        self._flush()
        self._stream.close()
        final, temporary = self._folder / "dataset", self._folder / ".dataset.tmp"
        datasets.disable_progress_bars()
        with durable.storage_errors(final):
            for leftover in (temporary, final):
                shutil.rmtree(leftover, ignore_errors=True)
            datasets.Dataset.from_file(str(self._rows)).save_to_disk(str(temporary))
            _read_as_tensors(temporary / "state.json")
            for file in temporary.iterdir():
                durable.sync_file(file)
            durable.sync_folder(temporary)
            temporary.rename(final)
            durable.sync_folder(self._folder)
        self.discard()
        return self._digest.hexdigest()

    def discard(self) -> None:
        """Remove what only the writing needed."""
        self._stream.close()
        self._rows.unlink(missing_ok=True)

    def _flush(self) -> None:
        import pyarrow as pa

        with durable.storage_errors(self._rows):
            if self._batch:
                self._stream.write_batch(pa.RecordBatch.from_pylist(self._batch, schema=self._schema))
        self._batch = []


class Written(Outcome):
    """An outcome whose samples and refusals go to files as they come, so that memory does not grow with them.

    `sources.jsonl` says of each sample where it came from, `refused.jsonl` of each refused row why.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._dataset = DatasetWriter(folder)
        self._sources = _open(folder / ".sources.jsonl.tmp")
        self._refused = _open(folder / ".refused.jsonl.tmp")

    def store(self, sample: Sample) -> None:
        """Write a sample."""
        self._dataset.add(sample)
        record = {"index": self.kept_samples - 1, "source": sample.source, "cut_tokens": sample.cut_tokens}
        self._sources.write(_line(record))

    def store_refusal(self, refusal: Refusal) -> None:
        """Write a refusal."""
        self._refused.write(_line(vars(refusal)))

    def finish_refusals(self) -> None:
        """Let refused.jsonl appear, also where the stage fails because of them."""
        _appear(self._refused, self._folder / "refused.jsonl")

    def finish(self) -> str:
        """Let sources.jsonl and the dataset appear; gives the dataset's hash."""
        _appear(self._sources, self._folder / "sources.jsonl")
        return self._dataset.finish()

    def discard(self) -> None:
        """Leave nothing half-written behind."""
        self._dataset.discard()
        for file in (self._sources, self._refused):
            file.close()
            Path(file.name).unlink(missing_ok=True)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[Written]:
    """A `Written` outcome; whatever happens, only finished files are left."""
    outcome = Written(folder)
    try:
        yield outcome
    finally:
        outcome.discard()


def write_dataset(folder: Path, samples: Iterable[Sample]) -> str:
    """Write `folder/dataset` and return its hash."""
    writer = DatasetWriter(folder)
    for sample in samples:
        writer.add(sample)
    return writer.finish()


def write_held_out(folder: Path, prompts: Sequence[tuple[Conversation, list[int]]]) -> str:
    """Write `folder/held_out.jsonl` (source, messages, prompt_token_ids a line) and return its sha256."""
    file = folder / "held_out.jsonl"
    lines = (
        {"source": prompt.source, "messages": list(prompt.messages), "prompt_token_ids": ids} for prompt, ids in prompts
    )
    durable.write_text(file, "".join(map(_line, lines)))
    return durable.sha256_file(file)


def report(outcome: Outcome, held_out: int, facts: dict[str, Any]) -> dict[str, Any]:
    """The account of every row: kept, refused by reason with file and line, and what happened to kept ones."""
    return {
        "schema_version": REPORT_VERSION,
        "rows": outcome.kept_rows + outcome.refused_rows + held_out,
        "samples": outcome.kept_samples,
        "held_out": held_out,
        "refused": outcome.refused_rows,
        "refused_by_reason": dict(outcome.refused.most_common()),
        "refused_rows": [vars(refusal) for shown in outcome.examples.values() for refusal in shown],
        "counts": {name: count for name, count in sorted(outcome.counts.items()) if count},
        "tokens": outcome.tokens,
        "trained_tokens": outcome.trained_tokens,
        "length": outcome.length_summary(),
        **facts,
    }


def table(report: dict[str, Any]) -> list[str]:
    """Lines for people: what was kept, what was refused and why."""
    share = report["trained_tokens"] / report["tokens"] if report["tokens"] else 0.0
    lines = [
        f"{report['samples']} samples of {report['rows']} rows, {report['held_out']} prompts held out",
        f"{report['tokens']} tokens, {share:.0%} of them trained; masks proved by {report['mask_proved_by']}",
    ]
    if (draft := report.get("draft_vocabulary")) and draft["coverage"] is not None:
        lines.append(f"{draft['coverage']:.2%} of trained tokens are inside a draft vocabulary of {draft['size']}")
    lines.extend(f"{count} refused: {reason}" for reason, count in report["refused_by_reason"].items())
    lines.extend(f"{count} kept: {name}" for name, count in report["counts"].items())
    return lines


def _read_as_tensors(state: Path) -> None:
    """Let rows of a saved dataset be read as torch's tensors; `datasets` itself would import torch to write that."""
    saved = json.loads(state.read_text(encoding="utf-8"))
    state.write_text(json.dumps(saved | {"_format_type": "torch"}), encoding="utf-8")


def _open(path: Path) -> IO[str]:
    with durable.storage_errors(path):
        return path.open("w", encoding="utf-8")


def _appear(file: IO[str], final: Path) -> None:
    with durable.storage_errors(final):
        file.flush()
        os.fsync(file.fileno())
        file.close()
        Path(file.name).replace(final)
        durable.sync_folder(final.parent)


def _line(record: Any) -> str:
    return json.dumps(record, ensure_ascii=False, sort_keys=True) + "\n"
