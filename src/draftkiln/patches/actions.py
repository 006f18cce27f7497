"""The subcommands of `draftkiln patches` that look, apply and rewrite: list, check, apply, export."""

from __future__ import annotations

import datetime as dt
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from draftkiln import checkout
from draftkiln.errors import DraftkilnError, ExitCode, PatchError, ProblemsError
from draftkiln.patches import queue, uses
from draftkiln.patches.header import PACKAGE

if TYPE_CHECKING:
    import argparse


def list_patches(arguments: argparse.Namespace) -> int:
    """Print a row a patch."""
    from draftkiln.patches import listing

    rows = listing.rows(queue.load(queue.queue_folder()), uses.all_uses(), dt.datetime.now(dt.UTC))
    if arguments.json:
        _print_json([asdict(row) for row in rows])
    else:
        print(listing.table(rows, color=sys.stdout.isatty()))
    return ExitCode.OK


def check(arguments: argparse.Namespace) -> int:
    """Print what each stack's series came to, then every problem."""
    from draftkiln.patches.check import check as check_queue

    report = check_queue(queue.queue_folder(), checkout.root(), arguments.wheel)
    if arguments.json:
        results = [
            {"stack": r.use.stack, "version": r.use.version, "patches": r.patches, "tree": r.tree, "offsets": r.offsets}
            for r in report.results
        ]
        problems = [_problem(problem) for problem in report.problems]
        _print_json({"results": results, "problems": problems})
        return ExitCode.PATCHES if problems else ExitCode.OK
    for result in report.results:
        shifted = f", {len(result.offsets)} hunks at other lines" if result.offsets else ""
        release = f"{PACKAGE} {result.use.version}"
        print(f"{result.use.stack}: {result.patches} patches on {release}, tree {result.tree[:12]}{shifted}")
    if report.problems:
        raise ProblemsError(report.problems)
    return ExitCode.OK


def apply(arguments: argparse.Namespace) -> int:
    """Apply a series to a folder, or write the patched wheel."""
    if not arguments.json:
        _apply(arguments)
        return ExitCode.OK
    try:
        _print_json(_apply(arguments))
    except DraftkilnError as error:
        problems = error.problems if isinstance(error, ProblemsError) else [error]
        _print_json({"outcome": "refused", "problems": [_problem(problem) for problem in problems]})
        return error.code
    return ExitCode.OK


def _apply(arguments: argparse.Namespace) -> dict[str, object]:
    """Apply, print what was done unless it is wanted as JSON, and return it."""
    from draftkiln.patches import folder, wheel

    every_use = uses.all_uses()
    use = uses.of_stack(arguments.stack, every_use)
    series = queue.load_series(queue.queue_folder(), use.series)
    if arguments.folder is None:
        base = uses.base_of(use.version, every_use, arguments.wheel)
        built = wheel.build(base.path, series, arguments.out, sha256=base.sha256)
        if not arguments.json:
            print(f"{built.path}: tree {built.tree}, sha256 {built.sha256}")
        if use.wheel_sha256 not in {None, built.sha256}:
            raise PatchError(
                f"{built.path}: not the wheel that the lock of {use.stack} names",
                why=f"locked sha256 {use.wheel_sha256}",
                fix=f"if the patches are meant to differ: nox -s lock -- {use.stack}",
            )
        return {"outcome": "built", "wheel": str(built.path), "tree": built.tree, "sha256": built.sha256}
    result = folder.apply_to_folder(
        arguments.folder, series.patches(use.version), expected_tree=use.tree, accept_offsets=arguments.accept_offsets
    )
    if not arguments.json:
        print(f"{arguments.folder}: {result.outcome}, tree {result.tree}")
        for line in (*result.changed, *result.offsets):
            print(f"  {line}")
    return asdict(result)


def export(arguments: argparse.Namespace) -> int:
    """Rewrite every patch that is not as git writes it."""
    from draftkiln.patches import edits
    from draftkiln.patches.export import stale_texts

    texts = stale_texts(queue.load(queue.queue_folder()), uses.all_uses(), arguments.wheel)
    if not arguments.dry_run:
        edits.write(texts)
    for path in sorted(texts):
        print(f"{path}: {'differs' if arguments.dry_run else 'rewritten'}")
    return ExitCode.PATCHES if arguments.dry_run and texts else ExitCode.OK


def _problem(problem: DraftkilnError) -> dict[str, str]:
    return {"what": problem.what, "why": problem.why, "fix": problem.fix}


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
