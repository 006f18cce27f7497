"""`draftkiln bench-prepare`: rows a second and peak memory of `prepare`, beside speculators' own `prepare-data`.

Both prepare the same file of made-up conversations with the same tokenizer and number of processes. speculators asks a
rendering server for every prefix of a conversation; it gets vLLM's own, the one without an engine.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable, memory
from draftkiln.counts import positive
from draftkiln.errors import DataError, ExitCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from draftkiln.recipe.model import Recipe

_WORDS = Path("data/prompts-en.jsonl")
_EXCHANGES, _QUESTION_WORDS, _ANSWER_WORDS = (1, 4), (5, 60), (20, 200)
_SEED = 5
_RENDER_SERVER = """
from vllm.entrypoints.cli.launch import RenderSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
RenderSubcommand.add_cli_args(parser)
if __name__ == "__main__":
    RenderSubcommand.cmd(parser.parse_args())
"""
"""`vllm launch render`, whose own command line wants a package of the name vllm."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is measured."""
    parser.add_argument("--recipe", type=Path, required=True, metavar="FILE", help="target and stacks")
    parser.add_argument("--folder", type=Path, required=True, metavar="DIR", help="where files go; made and emptied")
    parser.add_argument("--rows", type=positive, default=10_000, help="conversations")
    parser.add_argument("--baseline-rows", type=positive, metavar="N", help="of these, how many speculators prepares")
    parser.add_argument(
        "--memory-times", type=int, default=0, metavar="N", help="also measure memory on files N times as long, by kind"
    )
    parser.add_argument("--workers", type=positive, default=2, metavar="N", help="processes that render rows")
    parser.add_argument("--result", type=Path, metavar="FILE", help="also write the figures as JSON")


def main(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    from draftkiln import cache
    from draftkiln.recipe.load import load
    from draftkiln.stack import environment
    from draftkiln.target.resolve import ensure

    recipe = load(arguments.recipe)
    environment.enter(recipe.stacks.train, sys.argv[1:])
    folder = arguments.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    target = ensure(recipe.target.source, cache.root() / "targets")
    file = write_rows(folder / "rows.jsonl", arguments.rows)
    figures = {"draftkiln": ours(recipe, file, folder / "ours", arguments.rows, arguments.workers)}
    _print("draftkiln", figures["draftkiln"])
    if arguments.memory_times:
        for kind, many in write_longer(file, arguments.memory_times):
            found = ours(recipe, many, folder / kind, arguments.rows, arguments.workers, 1 / arguments.memory_times)
            figures[kind] = found | {"file_gb": round(many.stat().st_size / 1e9, 2)}
            many.unlink()
            _print(f"draftkiln, {kind} of {arguments.memory_times} times the rows", figures[kind])
    few = arguments.baseline_rows or arguments.rows
    part = file if few == arguments.rows else write_rows(folder / "few.jsonl", few)
    figures["speculators"] = theirs(target, part, folder, few, arguments.workers)
    _print("speculators", figures["speculators"])
    ratio = figures["draftkiln"]["rows_per_second"] / figures["speculators"]["rows_per_second"]
    print(f"draftkiln / speculators: {ratio:.1f}")
    if arguments.result:
        durable.write_json(arguments.result, figures | {"ratio": ratio})
    return ExitCode.OK


def write_rows(file: Path, count: int) -> Path:
    """Write ShareGPT rows of words that the shipped prompts use; the same count gives the same file."""
    prompts = [json.loads(line) for line in _WORDS.read_text(encoding="utf-8").splitlines()]
    words = sorted({word for row in prompts for turn in row["messages"] for word in turn["content"].split()})
    drawn = random.Random(_SEED)  # noqa: S311 - repeatable, not secret

    def text(bounds: tuple[int, int]) -> str:
        return " ".join(drawn.choices(words, k=drawn.randint(*bounds))) + "."

    with file.open("w", encoding="utf-8") as lines:
        for number in range(count):
            turns = []
            for _ in range(drawn.randint(*_EXCHANGES)):
                turns.append({"from": "human", "value": text(_QUESTION_WORDS)})
                turns.append({"from": "gpt", "value": text(_ANSWER_WORDS)})
            lines.write(json.dumps({"id": f"row-{number}", "conversations": turns}) + "\n")
    return file


def write_longer(file: Path, times: int) -> Iterator[tuple[str, Path]]:
    """Write the rows of a file `times` over: as lines, as one JSON list, as Parquet in one group of rows."""
    import pyarrow as pa
    from pyarrow import parquet

    lines = file.with_name("longer.jsonl")
    with lines.open("wb") as out:
        for _ in range(times):
            out.write(file.read_bytes())
    yield "jsonl", lines
    listed = file.with_name("longer.json")
    content = file.read_bytes().strip().replace(b"\n", b",\n")
    with listed.open("wb") as out:
        for number in range(times):
            out.write((b"," if number else b"[") + content)
        out.write(b"]")
    yield "json", listed
    columns = file.with_name("longer.parquet")
    table = pa.Table.from_pylist([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()])
    parquet.write_table(pa.concat_tables([table] * times), columns, row_group_size=len(table) * times)
    yield "parquet", columns


def ours(recipe: Recipe, file: Path, run: Path, rows: int, workers: int, weight: float = 1.0) -> dict[str, Any]:
    """Figures of `draftkiln prepare`, the whole command and its rendering alone; a `weight` leaves rows out."""
    import yaml

    content = recipe.model_dump(mode="json", by_alias=True, exclude_none=True)
    content["data"] = {"source": {"path": str(file), "weight": weight}, "max_tokens": 4096, "held_out": 1}
    content["stacks"]["prepare"] = recipe.stacks.train
    content["train"]["cut_samples"] = True
    content["evaluate"]["prompts"] = 1
    made = run.with_suffix(".yaml")
    durable.write_text(made, yaml.safe_dump(content))
    line = ["-m", "draftkiln", "prepare", "--recipe", str(made), "--run", str(run), "--workers", str(workers)]
    figures = _measured([sys.executable, *line], rows, run.with_suffix(".log"))
    record = json.loads((run / "prepare" / "stage.json").read_text(encoding="utf-8"))["results"]
    return figures | {"rendered_rows_per_second": record["rows_per_second"], "tokens": record["tokens"]}


def theirs(target: Path, file: Path, folder: Path, rows: int, workers: int) -> dict[str, Any]:
    """Figures of speculators' `prepare-data`, its rendering server started before and not counted."""
    from draftkiln.prepare import server

    def line(port: int) -> list[str]:
        options = ["--model", str(target), "--host", server.HOST, "--port", str(port), "--disable-uvicorn-access-log"]
        return [sys.executable, "-c", _RENDER_SERVER, *options]

    with server.started(line, folder / "render-server.log") as port:
        program = "from speculators.cli import app; app()"
        arguments = ["prepare-data", "--model", str(target), "--data", str(file), "--output", str(folder / "theirs")]
        arguments += ["--render-endpoint", f"http://{server.HOST}:{port}", "--seq-length", "4096"]
        arguments += ["--num-preprocessing-workers", str(workers)]
        return _measured([sys.executable, "-c", program, *arguments], rows, folder / "theirs.log")


def _measured(line: list[str], rows: int, log: Path) -> dict[str, Any]:
    began = time.monotonic()
    with (
        log.open("wb") as output,
        subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as started,
        memory.Peak(started.pid) as peak,
    ):
        code = started.wait()
    seconds = time.monotonic() - began
    if code:
        raise DataError(f"exit code {code} of {' '.join(line[:4])} …", fix=f"its output is in {log}")
    return {
        "rows": rows,
        "seconds": round(seconds, 1),
        "rows_per_second": round(rows / seconds, 1),
        "peak_gb": round(peak.gigabytes, 2),
    }


def _print(name: str, figures: dict[str, Any]) -> None:
    print(f"{name}: {', '.join(f'{key} {value}' for key, value in figures.items())}", flush=True)
