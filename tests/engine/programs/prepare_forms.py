"""Checked templates and every container, with the real libraries."""

import contextlib
import datetime as dt
import json
from pathlib import Path
from typing import Any

from prepare import told, write_fast
from prepare_kimi import runs

from draftkiln.prepare import output, pool, presets, rows, samples, tokenizer
from draftkiln.prepare.forms import Rules, parse
from draftkiln.prepare.outcome import Refusal, Sample
from draftkiln.prepare.rows import Source
from draftkiln.prepare.samples import Limits, Renderer
from draftkiln.prepare.template import Template, template_text

PRESETS = Path(__file__).parents[1] / "data" / "presets"
NAMES = ("qwen3", "llama3", "gptoss", "deepseekv3")
# Keys in alphabetical order, as pyarrow infers a struct: templates write tools in the order that they are given.
TOOLS = [
    {
        "function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}, "type": "object"}},
        "type": "function",
    }
]
CALL = {"id": "c0", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Rome"}'}}
ROWS = [
    {
        "id": "1",
        "messages": [
            {"role": "user", "content": "How are you?"},
            {"role": "assistant", "content": "Fine.", "reasoning_content": "all is well"},
        ],
    },
    {
        "id": "2",
        "messages": [
            {"role": "user", "content": "Sun?"},
            {"role": "assistant", "content": None, "reasoning_content": "look it up", "tool_calls": [CALL]},
            {"role": "tool", "content": "sunny", "tool_call_id": "c0"},
            {"role": "assistant", "content": "Sunny.", "reasoning_content": "so"},
        ],
        "tools": TOOLS,
    },
]


def preset(folder: Path, name: str) -> dict[str, Any]:
    """What becomes of the conversations that were written out by hand for a template."""
    data = json.loads((PRESETS / f"{name}.json").read_text())
    text = (PRESETS / f"{name}.jinja").read_text()
    end = data["specials"][-1]
    write_fast(folder, text, bos=data["bos"], special=data["specials"], plain=data["added"], eos=end)
    loaded = tokenizer.load(folder, trust_remote_code=False)
    checked = presets.of(template_text(loaded))
    outcomes: dict[str, Any] = {"checked": checked.name if checked else None}
    for written in data["conversations"]:
        template = Template(loaded, written["arguments"])
        template.prove()
        row = parse("x:1", {"messages": written["messages"], "tools": written.get("tools")}, Rules())
        made = Renderer(template, Limits(4096)).render(row)
        today = dt.datetime.now().astimezone().date().isoformat()
        wanted = [[piece.replace("{today}", today), bit] for piece, bit in written["expected"]]
        if isinstance(made, Refusal):
            outcomes[written["name"]] = [made.reason, made.detail]
            continue
        (sample,) = made.parts
        whole = loaded("".join(piece for piece, _ in wanted), add_special_tokens=False)["input_ids"]
        got = runs(template, sample)
        outcomes[written["name"]] = "equal" if got == wanted and sample.input_ids == whole else [got, wanted]
    return outcomes


def write_containers(folder: Path) -> dict[str, Path]:
    """The same rows in every container."""
    import datasets
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    files = {name: folder / f"d.{name}" for name in ("jsonl", "json", "parquet")} | {"dataset": folder / "saved"}
    files["jsonl"].write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    files["json"].write_text(json.dumps(ROWS, indent=1))
    table = pa.Table.from_pylist([{"tools": None, **row} for row in ROWS])  # columns are those of the first row
    parquet.write_table(table, files["parquet"])
    datasets.Dataset(table).save_to_disk(str(files["dataset"]))
    return files


def prepared(folder: Path, template: Template, file: Path, workers: int) -> dict[str, Any]:
    """Prepare a file as the stage does."""
    with output.writing(folder) as outcome:
        for made in pool.render(Renderer(template, Limits(4096)), rows.read([Source(file)], Rules()), workers):
            samples.record(made, outcome)
        outcome.finish_refusals()
        digest = outcome.finish()
    lines = (folder / "sources.jsonl").read_text().splitlines()
    return {
        "sha256": digest,
        "left": sorted(path.name for path in folder.iterdir()),
        "sources": [json.loads(line)["source"].removeprefix(str(file)) for line in lines],
    }


def bad_files(folder: Path) -> dict[str, str]:
    """What is told about files that hold no rows."""
    (folder / "cut.parquet").write_bytes(b"PAR1")
    (folder / "text.parquet").write_text("{}")

    def read(name: str) -> str:
        text = told(lambda: list(rows.read([Source(folder / name)], Rules())))
        return text.replace(str(folder), "")

    return {name: read(name) for name in ("cut.parquet", "text.parquet", "none.parquet", "")}


def interrupted(folder: Path) -> list[str]:
    """What is left where the stage fails while it writes."""
    with contextlib.suppress(ZeroDivisionError), output.writing(folder) as outcome:
        outcome.add(Sample("d:1", [1, 2], [0, 1 // 0]))
    return sorted(path.name for path in folder.iterdir())


def outcomes(folder: Path) -> dict[str, Any]:
    """What came of presets and of files of every kind."""
    folder.mkdir()
    found: dict[str, Any] = {"presets": {name: preset(folder / name, name) for name in NAMES}}
    template = Template(tokenizer.load(folder / "qwen3", trust_remote_code=False))
    files = write_containers(folder / "files")
    found["containers"] = {
        name: prepared(folder / f"out-{name}", template, file, workers=1) for name, file in files.items()
    }
    found["two workers"] = prepared(folder / "out-two", template, files["jsonl"], workers=2)
    found["bad"] = bad_files(folder / "files")
    found["interrupted"] = interrupted(folder / "out-interrupted")
    return found
