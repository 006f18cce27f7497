"""Remedies as patches of the candidate, each with its reasoning, marked to be read by a person.

They stand in the candidate's folder only and reach the repository with a proven stack; an existing patch is never
written over.
"""

from __future__ import annotations

import ast
import datetime as dt
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln import cache, durable
from draftkiln.errors import DraftkilnError
from draftkiln.patches import base, queue, start
from draftkiln.patches import wheel as wheels
from draftkiln.refresh.remedies import remedies
from draftkiln.seams.engines import open_engine

if TYPE_CHECKING:
    from pathlib import Path

    from draftkiln.patches.queue import Patch
    from draftkiln.patches.wheel import Wheel
    from draftkiln.refresh.build import Build
    from draftkiln.refresh.home import Home
    from draftkiln.refresh.ranking import Fit
    from draftkiln.refresh.remedies import Remedy
    from draftkiln.seams.sources import Sources

_CHECK = "tests/engine/test_probe_real.py::test_the_patched_tree_shows_nothing"
_AUTHOR = "draftkiln refresh <refresh@draftkiln.invalid>"


@dataclass(frozen=True)
class Proposed:
    """What was made up."""

    written: tuple[Path, ...]
    complete: bool
    """Whether every break has a remedy: only then is it worth a run of the engine."""


def propose(fit: Fit, build: Build, home: Home) -> Proposed:
    """Write a patch for each remedy into the candidate's own folder."""
    found, left = remedies(fit.breaks, _old_sources(fit), open_engine(str(build.wheel)).sources)
    if not found:
        return Proposed((), complete=False)
    pristine, patches = _tree_of(fit)
    written: list[Path] = []
    for remedy in found:
        path = _free(home, remedy.slug)
        text = _patch(remedy, pristine, patches, build, path)
        if text is None:
            return Proposed(tuple(written), complete=False)
        durable.write_text(path, text)
        patches = (*patches, queue.read_patch(path))
        written.append(path)
    return Proposed(tuple(written), complete=not left)


def _old_sources(fit: Fit) -> Sources | None:
    engine = fit.stack.file.engine
    try:
        return open_engine(f"{engine.package}=={engine.version}").sources
    except DraftkilnError:
        return None  # without the old sources only required parameters can be judged


def _tree_of(fit: Fit) -> tuple[Wheel, tuple[Patch, ...]]:
    part, lock = fit.stack.file.speculators, fit.stack.locked()
    pristine = wheels.read(base.base_wheel("speculators", part.version, lock.base_wheel_sha256, cache.root()))
    return pristine, queue.load_series(queue.queue_folder(), fit.series).patches(part.version)


def _free(home: Home, slug: str) -> Path:
    """A name in the queue that nobody has."""
    path, number = home.patches / f"{slug}.patch", 2
    while path.exists():
        path, number = home.patches / f"{slug}-{number}.patch", number + 1
    return path


def _patch(remedy: Remedy, pristine: Wheel, patches: tuple[Patch, ...], build: Build, path: Path) -> str | None:
    tree = path.with_name(f".{path.stem}.tree")
    shutil.rmtree(tree, ignore_errors=True)
    try:
        start.hand_out(pristine, patches, tree)
        for name, line in remedy.places:
            file = tree / name
            edited = edit(file.read_text(encoding="utf-8"), line, remedy)
            if edited is None:
                return None
            file.write_text(edited, encoding="utf-8")
        return start.take_in(pristine, patches, tree, _words(remedy, build), path)
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def _words(remedy: Remedy, build: Build) -> start.Words:
    why = (
        f"Proposed by a refresh to {build.name}, to be read by a person: {remedy.reason} The files were removed\n"
        "upstream, so only a patch reaches them. The probe and the comparison with transformers passed with it where\n"
        "the stack that it came with says so."
    )
    trailers = [
        ("Upstream-Status", "Pending [proposed by a refresh, not yet read by a person]"),
        ("Origin", "draftkiln refresh"),
        ("Needs-Vllm", f"=={build.version} [{remedy.subject[0].lower()}{remedy.subject[1:]}]"),
        ("Check", _CHECK),
        ("Drop-When", "a person has written the patch that this stands for"),
    ]
    moment = dt.datetime.now(dt.UTC).replace(microsecond=0)
    return start.Words(remedy.subject, why, _AUTHOR, moment, trailers)


def edit(text: str, line: int, remedy: Remedy) -> str | None:
    """`text` with the remedy at a line; None where the line holds nothing that it fits."""
    spots = _call_spots(text, line, remedy) if remedy.keyword else _name_spots(text, line, remedy.old)
    if not spots:
        return None
    new = f"{remedy.keyword}={remedy.value}" if remedy.keyword else remedy.new
    lines = text.splitlines(keepends=True)
    for row, start_byte, end_byte, prefix, suffix in sorted(spots, reverse=True):
        data = lines[row - 1].encode()
        lines[row - 1] = (data[:start_byte] + f"{prefix}{new}{suffix}".encode() + data[end_byte:]).decode()
    return "".join(lines)


_Spot = tuple[int, int, int, str, str]


def _call_spots(text: str, line: int, remedy: Remedy) -> list[_Spot]:
    """Where the keyword goes into the call: in front of its first keyword, else behind its last argument."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or node.lineno != line:
            continue
        callee = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if callee != remedy.callee or any(keyword.arg == remedy.keyword for keyword in node.keywords):
            continue
        if node.keywords:
            named = node.keywords[0]
            own_line = text.splitlines()[named.lineno - 1][: named.col_offset].isspace()
            gap = "\n" + " " * named.col_offset if own_line else " "
            return [(named.lineno, named.col_offset, named.col_offset, "", f",{gap}")]
        last = (node.args or [node.func])[-1]
        if node.args:
            return [(last.end_lineno or line, last.end_col_offset or 0, last.end_col_offset or 0, ", ", "")]
        close = (node.end_lineno or line, (node.end_col_offset or 1) - 1)
        return [(close[0], close[1], close[1], "", "")]
    return []


def _name_spots(text: str, line: int, old: str) -> list[_Spot]:
    """Every place on a line where the name is an attribute or an imported or plain name."""
    spots: list[_Spot] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr == old and node.end_lineno == line:
            end = node.end_col_offset or 0
            spots.append((line, end - len(old.encode()), end, "", ""))
        elif isinstance(node, ast.Name) and node.id == old and node.lineno == line:
            spots.append((line, node.col_offset, node.end_col_offset or 0, "", ""))
        elif isinstance(node, ast.alias) and node.name == old and node.lineno == line and node.asname is None:
            spots.append((line, node.col_offset, node.end_col_offset or 0, "", f" as {old}"))
    return sorted(set(spots))
