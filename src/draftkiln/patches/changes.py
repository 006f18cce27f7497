"""The subcommands of `draftkiln patches` that change the queue: new, drop, rebase."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
from dataclasses import asdict
from typing import TYPE_CHECKING

from draftkiln import checkout
from draftkiln.errors import ExitCode, PatchError, UsageError
from draftkiln.patches import edits, queue, rebasing, start, uses
from draftkiln.patches.drop import plan
from draftkiln.patches.header import PACKAGE
from draftkiln.patches.rebase import State

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from draftkiln.patches.queue import Queue
    from draftkiln.patches.rebasing import Outcome
    from draftkiln.patches.uses import Use


def new(arguments: argparse.Namespace) -> int:
    """Hand out a tree for editing, or take the edited one in as a patch at the end of the series."""
    if not queue.is_slug(arguments.slug):
        raise UsageError(f"{arguments.slug!r} cannot name a patch", fix=queue.SLUG_RULE)
    every_use = uses.all_uses()
    use = uses.of_stack(arguments.stack, every_use)
    series = queue.load_series(queue.queue_folder(), use.series)
    base = uses.base_of(use.version, every_use, arguments.wheel)
    patches = series.patches(use.version)
    if not arguments.tree.exists():
        start.hand_out(base, patches, arguments.tree)
        print(f"{arguments.tree}: {PACKAGE} {use.version} with {len(patches)} patches; edit it, then run this again")
        print("with --subject, --why and --check")
        return ExitCode.OK
    missing = [f"--{option}" for option in ("subject", "why", "check") if not getattr(arguments, option)]
    if missing:
        raise UsageError(f"a patch must justify itself: {', '.join(missing)} missing", fix="add them")
    path = queue.queue_folder() / f"{arguments.slug}.patch"
    if path.exists():
        raise PatchError(f"{path}: is there already", fix="choose another name")
    words = start.Words(arguments.subject, arguments.why, arguments.author or _author(), _now(), _trailers(arguments))
    text = start.take_in(base, patches, arguments.tree, words, path)
    listed = series.path.read_text(encoding="utf-8").rstrip()
    edits.write({path: text, series.path: f"{listed}\n{arguments.slug}\n".lstrip()})
    print(f"{path}: written, last in {series.path}")
    print(f"next: nox -s lock -- {use.stack}")
    return ExitCode.OK


def drop(arguments: argparse.Namespace) -> int:
    """Remove a patch and its lines in the series."""
    files = plan(
        arguments.slug, queue.load(queue.queue_folder()), uses.all_uses(), arguments.wheel, force=arguments.force
    )
    edits.write(files)
    for path, text in files.items():
        print(f"{path}: {'removed' if text is None else 'line removed'}")
    print("next: draftkiln patches export, then nox -s lock")
    return ExitCode.OK


def rebase(arguments: argparse.Namespace) -> int:
    """Begin, continue or abort a rebase and print each patch's state."""
    found, every_use = queue.load(queue.queue_folder()), uses.all_uses()
    if arguments.abort:
        series = _open_rebase(arguments.stack, found, every_use)
        rebasing.abort(series, found)
        print(f"{series}: rebase dropped, the queue is as it was")
        return ExitCode.OK
    if arguments.go_on:
        outcome = rebasing.resume(_open_rebase(arguments.stack, found, every_use), found, every_use)
    else:
        outcome = _begin(arguments, found, every_use)
    return _tell(outcome, every_use, as_json=arguments.json)


def _begin(arguments: argparse.Namespace, found: Queue, every_use: Sequence[Use]) -> Outcome:
    name, _, release = (arguments.to or "").partition("==")
    if name != PACKAGE or not release:
        raise UsageError("no release to move to", fix=f"add --to {PACKAGE}==VERSION, or --continue, or --abort")
    use = _moving(arguments.stack, every_use)
    if use.series not in found.series:
        raise PatchError(f"no series {use.series}", fix=f"add {found.folder / 'series' / use.series}")
    task = rebasing.Task(use.series, use.version, release, arguments.written_as or use.series)
    old = uses.base_of(use.version, every_use, arguments.wheel)
    return rebasing.begin(task, found, every_use, old, uses.new_release(release, every_use, arguments.wheel))


def _moving(stack: str | None, every_use: Sequence[Use]) -> Use:
    if stack is not None:
        return uses.of_stack(stack, every_use)
    if len({use.series for use in every_use}) != 1:
        raise UsageError(
            "which series is to move?",
            why=", ".join(f"{use.stack}: {use.series} on {use.version}" for use in every_use) or "no stack names one",
            fix="name a stack with --stack",
        )
    return every_use[0]


def _open_rebase(stack: str | None, found: Queue, every_use: Sequence[Use]) -> str:
    if stack is not None:
        return uses.of_stack(stack, every_use).series
    waiting = rebasing.open_series(found)
    if len(waiting) != 1:
        raise PatchError(
            f"{len(waiting) or 'no'} rebases are open",
            why=", ".join(waiting),
            fix="name one with --stack, or begin one with --to",
        )
    return waiting[0]


def _tell(outcome: Outcome, every_use: Sequence[Use], *, as_json: bool) -> int:
    task = outcome.task
    stops = [one for one in outcome.moved if one.state.stops]
    if as_json:
        value = {
            "task": asdict(task),
            "patches": [{"slug": one.slug, "state": one.state, "detail": one.detail} for one in outcome.moved],
            "changed": [str(path) for path in outcome.changed],
            "kept": str(outcome.kept) if outcome.kept else None,
        }
        print(json.dumps(value, indent=2))
    else:
        width = max((len(one.slug) for one in outcome.moved), default=0)
        for one in outcome.moved:
            print(f"{one.slug:{width}}  {one.state:14}  {one.detail}".rstrip())
        for path in outcome.changed:
            print(f"{path}: {'written' if path.exists() else 'removed'}")
    if not stops:
        stacks = ", ".join(use.stack for use in every_use if use.series == task.series)
        then = f"stack.yaml of {stacks}" if task.written_as == task.series else "a new stack's stack.yaml"
        _say(
            f"next: set speculators {{version: {task.new}, series: {task.written_as}}} in {then}; nox -s lock",
            as_json=as_json,
        )
        return ExitCode.OK
    if outcome.kept is None:
        gone = ", ".join(one.slug for one in stops if one.state is State.TARGET_REMOVED)
        raise PatchError(
            f"target removed upstream: {PACKAGE} {task.new} has no file for {gone}; nothing was changed",
            why=f"the patches are for {PACKAGE} {task.old}",
            fix=f"stay on {task.old}, or use a stack on vLLM's own extraction",
        )
    first = next(one for one in outcome.moved if one.state is State.CONFLICT)
    raise PatchError(
        f"{first.slug}: conflict in {first.detail}; nothing in the queue was changed",
        why=f"the merge waits in {outcome.kept}",
        fix="resolve the marked places there, then one of\n"
        f"         draftkiln patches rebase --continue{_for(outcome, every_use)}\n"
        f"         draftkiln patches rebase --abort{_for(outcome, every_use)}",
    )


def _for(outcome: Outcome, every_use: Sequence[Use]) -> str:
    return next((f" --stack {use.stack}" for use in every_use if use.series == outcome.task.series), "")


def _say(text: str, *, as_json: bool) -> None:
    if not as_json:
        print(text)


def _trailers(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    given = [
        ("Upstream-Status", [arguments.upstream_status]),
        ("Origin", [arguments.origin]),
        ("Bug", arguments.bug),
        ("Needs-Vllm", [arguments.needs_vllm] if arguments.needs_vllm else []),
        ("Check", arguments.check),
        ("Drop-When", [arguments.drop_when]),
    ]
    return [(key, value) for key, values in given for value in values]


def _author() -> str:
    words = []
    for key in ("user.name", "user.email"):
        command = ["git", "config", key]
        done = subprocess.run(
            command, cwd=checkout.root(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        words.append(done.stdout.strip())
    if not all(words):
        raise UsageError("git does not know who you are", fix='add --author "Name <mail>"')
    return f"{words[0]} <{words[1]}>"


def _now() -> dt.datetime:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return dt.datetime.fromtimestamp(int(epoch), dt.UTC) if epoch else dt.datetime.now(dt.UTC).replace(microsecond=0)
