"""What a refresh leaves in the repository: a proven build's stack with its evidence, and its place in the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftkiln import checkout, durable
from draftkiln.errors import StackError, UsageError
from draftkiln.matrix import pairs
from draftkiln.matrix import record as matrix
from draftkiln.refresh import badges, history
from draftkiln.refresh.home import Home
from draftkiln.refresh.outcome import Outcome
from draftkiln.refresh.report import as_json

if TYPE_CHECKING:
    from pathlib import Path

    from draftkiln.refresh.report import Report

EVIDENCE = "refresh.json"
"""File in a stack's folder that says how it was proved."""


def keep(report: Report, home_folder: Path) -> list[str]:
    """Copy the candidate into the repository with its report; fill the matrix; the paths that changed.

    Raises:
        UsageError: its wheel has no address that others could fetch it from.
        StackError: there is no candidate.
    """
    home = Home(home_folder, checkout.root(), report.stack)
    if not (home.stack_folder / "stack.lock.yaml").is_file():
        raise StackError(f"{report.stack}: there is no locked candidate to write", fix="run the refresh to its end")
    build = report.twin or report.build
    if str(build.get("url") or "").startswith("file:"):
        raise UsageError(
            f"{report.stack} is not written: its wheel is a file of this machine",
            why="nobody else could install the stack, and no release or index has these bytes",
            fix="put the wheel where a URL reaches it, then name the URL",
        )
    durable.write_json(home.stack_folder / EVIDENCE, as_json(report) | {"work": "", "written": []})
    changed = home.write()
    if report.outcome is Outcome.PROVEN:
        changed += _fill_matrix(report)
    return changed


def _fill_matrix(report: Report) -> list[str]:
    every = pairs.every_pair()
    pair = next((pair for pair in every if pair.stack == report.stack), None)
    if pair is None:
        return []
    rows = matrix.load(matrix.json_file())
    rows[pair.stack] = matrix.Row(
        pair.stack,
        pair.speculators,
        pair.vllm,
        pair.patches,
        pair.identity,
        "small",
        report.date,
        round(sum(step.seconds for step in report.steps), 1),
        seams=0,
        probe=0,
        min_cosine=report.min_cosine,
        shifted_cosine=report.shifted_cosine,
    )
    order = [one.stack for one in every]
    matrix.save(matrix.json_file(), rows, order)
    page = matrix.table_file()
    kept = [rows[stack] for stack in order if stack in rows]
    durable.write_text(page, matrix.page(page.read_text(encoding="utf-8"), kept))
    badges.refresh()
    files = (matrix.json_file(), page, badges.readme())
    return [str(file.relative_to(checkout.root())) for file in files]


def note(report: Report) -> list[str]:
    """Put the report's row into the table of refreshes; the paths that changed.

    A refresh that nobody answered says nothing of the build and has no row.
    """
    if not (report.twin or report.build) or report.outcome in {Outcome.GONE, Outcome.NO_NETWORK}:
        return []
    history.record(report)
    return [str(file.relative_to(checkout.root())) for file in (history.json_file(), history.page_file())]
