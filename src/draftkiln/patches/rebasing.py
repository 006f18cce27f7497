"""A rebase from start to end: nothing in the queue changes unless every patch moves, and a conflict can be resumed."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import cache, durable
from draftkiln.errors import PatchError
from draftkiln.patches import edits, rebase, uses
from draftkiln.patches.header import PACKAGE
from draftkiln.patches.rebase import Moved, State
from draftkiln.patches.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from draftkiln.patches.queue import Queue
    from draftkiln.patches.uses import Use
    from draftkiln.patches.wheel import Wheel


@dataclass(frozen=True)
class Task:
    """What is to be moved where."""

    series: str
    old: str
    """Release that the series is for now."""
    new: str
    """Release that it moves to."""
    written_as: str
    """Series file that is written; the same one unless another was named."""


@dataclass(frozen=True)
class Outcome:
    """States so far; `changed` names the files written, `kept` the work tree of an open conflict."""

    task: Task
    moved: tuple[Moved, ...]
    changed: tuple[Path, ...] = ()
    kept: Path | None = None


def begin(task: Task, found: Queue, every_use: Sequence[Use], old: Wheel, new: Wheel) -> Outcome:
    """Find every patch's state; write when all move, keep a work tree at the first conflict.

    Raises:
        PatchError: a rebase of this series is open, or the series to write is there already.
        ProblemsError: every patch that does not fit the release it is for now.
    """
    folder = _folder(found, task.series)
    if folder.exists():
        raise PatchError(
            f"a rebase of {task.series} is open in {folder / 'tree'}",
            fix="go on with --continue, or drop it with --abort",
        )
    if task.new == task.old:
        raise PatchError(f"{task.series} is for {PACKAGE} {task.old} already", fix="name another release with --to")
    if task.written_as != task.series and task.written_as in found.series:
        raise PatchError(
            f"series {task.written_as} is there already", fix="name another one with --as, or rebase that one"
        )
    with Repository.throwaway() as repository:
        moved = list(rebase.move(repository, _texts(repository, task, found, old, new)))
        if not any(one.state.stops for one in moved):
            return _write(task, found, every_use, repository, moved)
    if any(one.state is State.TARGET_REMOVED for one in moved):
        return Outcome(task, tuple(moved))
    tree = folder / "tree"
    tree.mkdir(parents=True)
    repository = Repository.create(tree)
    texts = _texts(repository, task, found, old, new)
    done = list(rebase.move(repository, texts, stop=True))
    _save(folder, task, found, done, texts)
    return Outcome(task, (*done, *moved[len(done) :]), kept=tree)


def resume(series: str, found: Queue, every_use: Sequence[Use]) -> Outcome:
    """Go on after a conflict was resolved in the kept work tree.

    Raises:
        PatchError: no rebase of this series is open, conflict markers are left, or the queue changed meanwhile.
    """
    folder = _folder(found, series)
    state = _load(folder, found, series)
    task = Task(**state["task"])
    repository = Repository(folder / "tree")
    done = [Moved(one["slug"], State(one["state"]), one["detail"], one["commit"]) for one in state["moved"]]
    stopped = done.pop()
    if rebase.finish_merge(repository):
        done.append(Moved(stopped.slug, State.MERGED, "by hand", repository.head()))
    else:
        done.append(Moved(stopped.slug, State.UPSTREAMED, "all of it, by hand"))
    texts: dict[str, str] = state["texts"]
    rest = dict(list(texts.items())[len(done) :])
    done += rebase.move(repository, rest, stop=True)
    if any(one.state.stops for one in done):
        _save(folder, task, found, done, texts)
        return Outcome(task, tuple(done), kept=folder / "tree")
    outcome = _write(task, found, every_use, repository, done)
    shutil.rmtree(folder)
    return outcome


def abort(series: str, found: Queue) -> None:
    """Forget an open rebase; the queue is as it was.

    Raises:
        PatchError: none is open.
    """
    folder = _folder(found, series)
    if not folder.exists():
        raise PatchError(f"no rebase of {series} is open", fix="nothing to do")
    shutil.rmtree(folder)


def open_series(found: Queue) -> list[str]:
    """Series whose rebase waits for a person."""
    parent = _folder(found, "x").parent
    return sorted(path.name for path in parent.iterdir()) if parent.is_dir() else []


def _texts(repository: Repository, task: Task, found: Queue, old: Wheel, new: Wheel) -> dict[str, str]:
    texts = rebase.prepare(repository, old, new, found.series[task.series].patches(task.old))
    for entry in found.series[task.series].entries:
        variant = entry.variant(task.new)
        if variant is not None:
            texts[entry.slug] = variant.text
    return texts


def _write(
    task: Task, found: Queue, every_use: Sequence[Use], repository: Repository, moved: Sequence[Moved]
) -> Outcome:
    texts = {one.slug: repository.export(one.commit) for one in moved if one.commit}
    files = plan(task, found, every_use, moved, texts)
    edits.write(files)
    return Outcome(task, tuple(moved), changed=tuple(sorted(files)))


def plan(
    task: Task, found: Queue, every_use: Sequence[Use], moved: Sequence[Moved], texts: Mapping[str, str]
) -> dict[Path, str | None]:
    """Files to write (None: to remove) once every patch has moved.

    A text that another stack still needs stays, and the moved one becomes a variant where it differs.
    """
    staying = [use for use in every_use if use.series != task.series or task.written_as != task.series]
    still_used = {patch.path for use in staying for patch in uses.patches_of(use, found.series)}
    series = found.series[task.series]
    old = {patch.slug: patch for patch in series.patches(task.old)}
    serving = {entry.slug for entry in series.entries if entry.variant(task.new) is not None}
    files: dict[Path, str | None] = {}
    for one in moved:
        patch = old[one.slug]
        variant = found.folder / f"{one.slug}@{task.new}.patch"
        as_it_is = one.state in {State.CLEAN, State.OFFSET}
        if one.slug in serving and as_it_is:
            continue
        shared = patch.path in still_used
        if not one.commit:
            if not shared:
                files[patch.path] = None
        elif shared and (not as_it_is or patch.version is not None):
            files[variant] = texts[one.slug]
        elif not shared:
            files[patch.path] = None
            files[found.folder / f"{one.slug}.patch" if patch.version is None else variant] = texts[one.slug]
    gone = {one.slug for one in moved if not one.commit}
    target = found.folder / "series" / task.written_as
    text = edits.without_slugs(series.path.read_text(encoding="utf-8"), gone)
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        files[target] = text
    return files


def _folder(found: Queue, series: str) -> Path:
    of_checkout = hashlib.sha256(str(found.folder.resolve()).encode()).hexdigest()[:12]
    return cache.root() / "rebase" / of_checkout / series


def _fingerprint(found: Queue) -> str:
    files = [*(patch.path for patch in found.pool), *(series.path for series in found.series.values())]
    return durable.sha256_json({str(path): durable.sha256_file(path) for path in files})


def _save(folder: Path, task: Task, found: Queue, moved: Sequence[Moved], texts: Mapping[str, str]) -> None:
    state = {
        "task": asdict(task),
        "queue": _fingerprint(found),
        "moved": [asdict(one) for one in moved],
        "order": list(texts),
        "texts": dict(texts),
    }
    durable.write_json(folder / "state.json", state)


def _load(folder: Path, found: Queue, series: str) -> dict[str, Any]:
    if not (folder / "state.json").exists():
        raise PatchError(
            f"no rebase of {series} is open", fix=f"begin one: draftkiln patches rebase --to {PACKAGE}==VERSION"
        )
    state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    if state["queue"] != _fingerprint(found):
        raise PatchError(
            f"the queue changed since the rebase of {series} began", fix="undo that, or drop the rebase with --abort"
        )
    state["texts"] = {slug: state["texts"][slug] for slug in state["order"]}
    return state
