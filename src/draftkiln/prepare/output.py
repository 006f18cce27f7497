"""What the stage leaves behind: the dataset, the held-out prompts, the sources and the report, all or nothing."""

from __future__ import annotations

import json
import shutil
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

from draftkiln import durable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from draftkiln.prepare.rows import Conversation
    from draftkiln.prepare.samples import Outcome, Sample

REPORT_VERSION = 1


def write_dataset(folder: Path, samples: Sequence[Sample]) -> str:
    """Write `folder/dataset` (datasets' on-disk format, as speculators >= 0.5 trains from) and `folder/sources.jsonl`.

    Columns: `input_ids` int64 `[T]`, `loss_mask` int64 `[T]`, `seq_len` int64; row i is sample i.

    Returns:
        Hex sha256 of ids and masks in order, independent of the file format.
    """
    import datasets

    integers = datasets.Sequence(datasets.Value("int64"))
    features = datasets.Features({"input_ids": integers, "loss_mask": integers, "seq_len": datasets.Value("int64")})
    columns = {
        "input_ids": [sample.input_ids for sample in samples],
        "loss_mask": [sample.loss_mask for sample in samples],
        "seq_len": [len(sample.input_ids) for sample in samples],
    }
    dataset = datasets.Dataset.from_dict(columns, features=features)
    dataset.set_format(type="torch")
    final, temporary = folder / "dataset", folder / ".dataset.tmp"
    datasets.disable_progress_bars()
    with durable.storage_errors(final):
        for leftover in (temporary, final):
            shutil.rmtree(leftover, ignore_errors=True)
        dataset.save_to_disk(str(temporary))
        for file in temporary.iterdir():
            _sync(file)
        durable.sync_folder(temporary)
        temporary.rename(final)
        durable.sync_folder(folder)
    lines = (
        {"index": index, "source": sample.source, "cut_tokens": sample.cut_tokens}
        for index, sample in enumerate(samples)
    )
    durable.write_text(folder / "sources.jsonl", _lines(lines))
    return durable.sha256_json([[sample.input_ids, sample.loss_mask] for sample in samples])


def write_held_out(folder: Path, prompts: Sequence[tuple[Conversation, list[int]]]) -> str:
    """Write `folder/held_out.jsonl` (source, messages, prompt_token_ids a line) and return its sha256."""
    file = folder / "held_out.jsonl"
    lines = (
        {"source": prompt.source, "messages": list(prompt.messages), "prompt_token_ids": ids} for prompt, ids in prompts
    )
    durable.write_text(file, _lines(lines))
    return durable.sha256_file(file)


def report(outcome: Outcome, held_out: int, facts: dict[str, Any]) -> dict[str, Any]:
    """The account of every row: kept, refused by reason with file and line, and what happened to kept ones."""
    lengths = [len(sample.input_ids) for sample in outcome.samples]
    trained = [sum(sample.loss_mask) for sample in outcome.samples]
    return {
        "schema_version": REPORT_VERSION,
        "rows": len(outcome.samples) + len(outcome.refusals) + held_out,
        "samples": len(outcome.samples),
        "held_out": held_out,
        "refused": len(outcome.refusals),
        "refused_by_reason": dict(Counter(refusal.reason for refusal in outcome.refusals).most_common()),
        "refused_rows": [
            {"source": refusal.source, "reason": refusal.reason, "detail": refusal.detail}
            for refusal in outcome.refusals
        ],
        "counts": {name: count for name, count in sorted(outcome.counts.items()) if count},
        "tokens": sum(lengths),
        "trained_tokens": sum(trained),
        "length": {"min": min(lengths), "median": statistics.median(lengths), "max": max(lengths)} if lengths else None,
        **facts,
    }


def table(report: dict[str, Any]) -> list[str]:
    """Lines for people: what was kept, what was refused and why."""
    share = report["trained_tokens"] / report["tokens"] if report["tokens"] else 0.0
    lines = [
        f"{report['samples']} samples of {report['rows']} rows, {report['held_out']} prompts held out",
        f"{report['tokens']} tokens, {share:.0%} of them trained; masks proved by {report['mask_proved_by']}",
    ]
    lines.extend(f"{count} refused: {reason}" for reason, count in report["refused_by_reason"].items())
    lines.extend(f"{count} kept: {name}" for name, count in report["counts"].items())
    return lines


def _lines(records: Any) -> str:
    return "".join(json.dumps(record, ensure_ascii=False, sort_keys=True) + "\n" for record in records)


def _sync(file: Path) -> None:
    import os

    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
