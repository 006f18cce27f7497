"""`draftkiln show ROW`: a sample with its trained tokens coloured, on the terminal or as an HTML page."""

from __future__ import annotations

import html
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import ExitCode, UsageError
from draftkiln.prepare import tokenizer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

_TRAINED, _CONTEXT, _RESET = "\x1b[30;42m", "\x1b[2m", "\x1b[0m"
_BROKEN = "\ufffd"
_LONGEST_PIECE = 8
"""Tokens that one character may be spread over; more are shown as they decode."""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font-family: ui-monospace, monospace; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  line-height: 1.7; background: #fff; color: #666 }}
pre {{ white-space: pre-wrap; word-break: break-word }}
span {{ border-bottom: 1px dotted #bbb }}
.t {{ background: #b6e3b6; color: #052505; border-color: #3a7d3a }}
</style></head><body><h1>{title}</h1><p>{summary}</p><pre>{tokens}</pre></body></html>
"""


@dataclass(frozen=True)
class Piece:
    """Tokens that decode to whole characters: text, ids, and whether they are trained."""

    text: str
    ids: tuple[int, ...]
    trained: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add row, recipe, run directory and the page's name."""
    from draftkiln import stage

    parser.add_argument("row", metavar="ROW", help="number of the sample from 0, or where it stands: `data.jsonl:12`")
    stage.add_arguments(parser)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page instead")


def main(arguments: argparse.Namespace) -> int:
    """Show one sample."""
    from draftkiln import cache
    from draftkiln.recipe.load import load
    from draftkiln.rundir import RunDirectory
    from draftkiln.stack import environment
    from draftkiln.target.resolve import ensure

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    recipe = load(arguments.recipe)
    directory = RunDirectory.open(arguments.run, recipe.name)
    directory.require("prepare")
    environment.enter(recipe.stacks.of("prepare"), sys.argv[1:])
    tokenizer.close_stdin()
    folder = directory.folder("prepare")
    index, source = find(folder / "sources.jsonl", arguments.row)
    ids, mask = _row(folder / "dataset", index)
    target = ensure(recipe.target.source, cache.root() / "targets")
    loaded = tokenizer.load(target, trust_remote_code=recipe.target.trust_remote_code)
    shown = list(pieces(loaded, ids, mask))
    title = f"sample {index}: {source}"
    summary = f"{len(ids)} tokens, {sum(mask)} of them trained"
    if arguments.html:
        durable.write_text(arguments.html, page(shown, title, summary))
        print(f"written: {arguments.html}")
        return ExitCode.OK
    print(f"{title}: {summary}")
    print(coloured(shown) if sys.stdout.isatty() and "NO_COLOR" not in os.environ else marked(shown))
    return ExitCode.OK


def find(sources: Path, row: str) -> tuple[int, str]:
    """Index and source of the sample that `row` names.

    Raises:
        UsageError: there is none.
    """
    count = 0
    with sources.open(encoding="utf-8") as lines:
        for line in lines:
            record: dict[str, Any] = json.loads(line)
            count += 1
            if row == str(record["index"]) or record["source"] == row or record["source"].endswith(f"/{row}"):
                return int(record["index"]), str(record["source"])
    raise UsageError(
        f"no sample is {row}",
        why=f"there are {count}, from 0; a refused or held-out row gave none",
        fix=f"name a number or a place from {sources}; refused rows are in {sources.with_name('refused.jsonl')}",
    )


def pieces(loaded: Any, ids: Sequence[int], mask: Sequence[int]) -> Iterator[Piece]:
    """Tokens grouped until they decode to whole characters; a group never crosses a change of the mask."""
    waiting: list[int] = []
    for place, (number, bit) in enumerate(zip(ids, mask, strict=True)):
        waiting.append(number)
        text = str(loaded.decode(waiting))
        last = place + 1 == len(ids) or mask[place + 1] != bit
        if _BROKEN not in text or last or len(waiting) == _LONGEST_PIECE:
            yield Piece(text, tuple(waiting), bool(bit))
            waiting = []


def coloured(shown: Sequence[Piece]) -> str:
    """Text for a terminal: trained tokens on green, the others dim."""
    return "".join(f"{_TRAINED if piece.trained else _CONTEXT}{piece.text}{_RESET}" for piece in shown)


def marked(shown: Sequence[Piece]) -> str:
    """Text without colours: trained runs between ⟦ and ⟧."""
    out, inside = "", False
    for piece in shown:
        if piece.trained != inside:
            out += "⟦" if piece.trained else "⟧"
            inside = piece.trained
        out += piece.text
    return out + "⟧" * inside


def page(shown: Sequence[Piece], title: str, summary: str) -> str:
    """A page of its own: trained tokens on green, each token's ids under the pointer."""
    tokens = "".join(
        f'<span class="{"t" if piece.trained else "c"}" title="{" ".join(map(str, piece.ids))}">'
        f"{html.escape(piece.text)}</span>"
        for piece in shown
    )
    return _PAGE.format(title=html.escape(title), summary=html.escape(summary), tokens=tokens)


def _row(dataset: Path, index: int) -> tuple[list[int], list[int]]:
    import datasets

    row = datasets.load_from_disk(str(dataset)).with_format(None)[index]
    return list(row["input_ids"]), list(row["loss_mask"])
