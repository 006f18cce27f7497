"""What each subcommand of `draftkiln patches` does and prints."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import checkout
from draftkiln.errors import ExitCode, PatchError, ProblemsError, UsageError
from draftkiln.patches import queue, uses
from draftkiln.patches.header import PACKAGE

if TYPE_CHECKING:
    import argparse

    from draftkiln.patches.queue import Queue
    from draftkiln.patches.rebasing import Outcome


def list(arguments: argparse.Namespace) -> int:  # noqa: A001 - the subcommand's name
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
        problems = [{"what": p.what, "why": p.why, "fix": p.fix} for p in report.problems]
        _print_json({"results": results, "problems": problems})
        return ExitCode.PATCHES if problems else ExitCode.OK
    for result in report.results:
        shifted = f", {len(result.offsets)} hunks at other lines" if result.offsets else ""
        print(f"{result.use.stack}: {result.patches} patches on {PACKAGE} {result.use.version}, tree {result.tree[:12]}{shifted}")
    if report.problems:
        raise ProblemsError(report.problems)
    return ExitCode.OK


def apply(arguments: argparse.Namespace) -> int:
    """Apply a series to a folder, or write the patched wheel."""
    from draftkiln.patches import folder, wheel

    every_use = uses.all_uses()
    use = uses.of_stack(arguments.stack, every_use)
    series = queue.load_series(queue.queue_folder(), use.series)
    if arguments.folder is None:
        base = uses.base_of(use.version, every_use, arguments.wheel)
        built = wheel.build(base.path, series, arguments.out, sha256=base.sha256)
        print(f"{built.path}: tree {built.tree}, sha256 {built.sha256}")
        if use.wheel_sha256 not in {None, built.sha256}:
            raise PatchError(
                f"{built.path}: not the wheel that the lock of {use.stack} names",
                why=f"locked sha256 {use.wheel_sha256}",
                fix=f"if the patches are meant to differ: nox -s lock -- {use.stack}",
            )
        return ExitCode.OK
    result = folder.apply_to_folder(
        arguments.folder, series.patches(use.version), expected_tree=use.tree, accept_offsets=arguments.accept_offsets
    )
    print(f"{arguments.folder}: {result.outcome}, tree {result.tree}")
    for line in (*result.changed, *result.offsets):
        print(f"  {line}")
    return ExitCode.OK


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


def rebase(arguments: argparse.Namespace) -> int:
    """Begin, continue or abort a rebase and print each patch's state."""
    from draftkiln.patches import rebasing

    found, every_use = queue.load(queue.queue_folder()), uses.all_uses()
    if arguments.abort:
        series = _open_rebase(arguments, found)
        rebasing.abort(series, found)
        print(f"{series}: rebase dropped, the queue is as it was")
        return ExitCode.OK
    if arguments.go_on:
        return _tell(rebasing.resume(_open_rebase(arguments, found), found, every_use), as_json=arguments.json)
    name, pin, new = (arguments.to or "").partition("==")
    if name != PACKAGE or not pin or not new:
        raise UsageError("no release to move to", fix=f"add --to {PACKAGE}==VERSION, or --continue, or --abort")
    series, old = _series_and_release(arguments.stack, found, every_use)
    task = rebasing.Task(series, old, new, arguments.written_as or series)
    old_wheel = uses.base_of(old, every_use, arguments.wheel)
    return _tell(
        rebasing.begin(task, found, every_use, old_wheel, uses.new_release(new, every_use, arguments.wheel)), as_json=arguments.json
    )


def new(arguments: argparse.Namespace) -> int:
    """Hand out a tree for editing, or take the edited one in as a patch at the end of the series."""
    from draftkiln.patches import edits, start

    every_use = uses.all_uses()
    use = uses.of_stack(arguments.stack, every_use)
    series = queue.load_series(queue.queue_folder(), use.series)
    base = uses.base_of(use.version, every_use, arguments.wheel)
    patches = series.patches(use.version)
    if not arguments.tree.exists():
        start.hand_out(base, patches, arguments.tree)
        print(f"{arguments.tree}: {PACKAGE} {use.version} with {len(patches)} patches; edit it, then run this again with")
        print("  --subject, --why and --check")
        return ExitCode.OK
    missing = [option for option in ("subject", "why", "check") if not getattr(arguments, option)]
    if missing:
        raise UsageError(f"a patch must justify itself: {', '.join('--' + option for option in missing)} missing", fix="add them")
    path = queue.queue_folder() / f"{arguments.slug}.patch"
    if path.exists():
        raise PatchError(f"{path}: is there already", fix="choose another name")
    words = start.Words(arguments.subject, arguments.why, arguments.author or _author(), _now(), _trailers(arguments))
    text = start.take_in(base, patches, arguments.tree, words, path)
    listed = series.path.read_text(encoding="utf-8")
    edits.write({path: text, series.path: f"{listed.rstrip()}\n{arguments.slug}\n".lstrip()})
    print(f"{path}: written, last in {series.path}; next: nox -s lock -- {use.stack}")
    return ExitCode.OK


def drop(arguments: argparse.Namespace) -> int:
    """Remove a patch and its lines in the series."""
    from draftkiln.patches import edits
    from draftkiln.patches.drop import plan

    found = queue.load(queue.queue_folder())
    files = plan(arguments.slug, found, uses.all_uses(), arguments.wheel, force=arguments.force)
    edits.write(files)
    for path, text in files.items():
        print(f"{path}: {'removed' if text is None else 'line removed'}")
    print("next: draftkiln patches export; nox -s lock")
    return ExitCode.OK


def _open_rebase(arguments: argparse.Namespace, found: Queue) -> str:
    from draftkiln.patches import rebasing

    if arguments.stack:
        return uses.of_stack(arguments.stack, uses.all_uses()).series
    waiting = rebasing.open_series(found)
    if len(waiting) != 1:
        raise PatchError(f"{len(waiting)} rebases are open", why=", ".join(waiting), fix="name one with --stack, or begin one with --to")
    return waiting[0]


def _series_and_release(stack: str | None, found: Queue, every_use: list_of_uses) -> tuple[str, str]:
    raise NotImplementedError
