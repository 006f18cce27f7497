"""Which patch owns a line of a patched file: by unwinding the series from the patched text.

The patches are taken off again from last to first. A hunk's new side must lie exactly in the text at that moment
(searched from where the patch says, as `git apply` allows for moved lines); its added lines belong to that patch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from draftkiln.errors import PatchError
from draftkiln.patches import queue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from draftkiln.seams.sources import Sources

Line = tuple[str, int | None]


def read_series(pool: Path, series: str, version: str) -> list[tuple[str, str]]:
    """Name and text of each patch of a series for a release of speculators, in order.

    Args:
        pool: folder of the queue.
        series: its file below `series/`.
        version: of the tree, patched or not; where it is none, the texts that are no variants are taken.

    Raises:
        PatchError: the series is not there.
        ProblemsError: everything that is wrong with it or its patches.
    """
    release = version.partition("+")[0]
    plain = release if re.fullmatch(r"\d+(\.\d+)*", release) else "0"
    return [(patch.name, patch.text) for patch in queue.load_series(pool, series).patches(plain)]


def owner_lookup(sources: Sources, patches: Sequence[tuple[str, str]]) -> Callable[[str, int], str | None]:
    """A function from file and line to the name of the patch that owns the line, None for upstream's own.

    Raises:
        PatchError: the tree is not this series applied.
    """
    from unidiff.patch import PatchSet

    owners: dict[tuple[str, int], str] = {}
    texts: dict[str, list[Line]] = {}
    for slug, text in reversed(patches):
        for file in PatchSet(text):
            lines = texts.get(file.path)
            if lines is None:
                lines = [(line, number) for number, line in enumerate(_lines(sources, file.path), 1)]
            for hunk in reversed(file):
                new = [item.value.rstrip("\r\n") for item in hunk if item.line_type in "+ "]
                start = _find([line for line, _ in lines], new, hunk.target_start - 1)
                if start is None:
                    raise PatchError(
                        f"{sources.origin} is not the series applied",
                        why=f"{file.path} does not hold what {slug} makes of line {hunk.target_start}",
                        fix="apply the series to the pristine wheel again and list its seams from that tree",
                    )
                lines = _unwound(
                    lines,
                    start,
                    [(item.line_type, item.value.rstrip("\r\n")) for item in hunk],
                    slug,
                    file.path,
                    owners,
                )
            texts[file.path] = lines
    return lambda path, line: owners.get((path, line))


def _lines(sources: Sources, path: str) -> list[str]:
    return sources.read(path).splitlines() if sources.has(path) else []


def _find(lines: Sequence[str], wanted: Sequence[str], expected: int) -> int | None:
    places = range(len(lines) - len(wanted) + 1)
    for start in sorted(places, key=lambda place: abs(place - expected)):
        if lines[start : start + len(wanted)] == wanted:
            return start
    return None


def _unwound(
    lines: list[Line],
    start: int,
    hunk: Sequence[tuple[str, str]],
    slug: str,
    path: str,
    owners: dict[tuple[str, int], str],
) -> list[Line]:
    old: list[Line] = []
    position = start
    for kind, text in hunk:
        if kind == "-":
            old.append((text, None))
        elif kind in "+ ":
            number = lines[position][1]
            if kind == "+" and number is not None:
                owners.setdefault((path, number), slug)
            elif kind == " ":
                old.append(lines[position])
            position += 1
    return [*lines[:start], *old, *lines[position:]]
