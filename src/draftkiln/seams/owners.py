"""Which patch owns a line of a patched file: by unwinding the series from the patched text.

The patches are taken off again from last to first. A hunk's new side must lie exactly in the text at that moment
(searched from where the patch says, as `git apply` allows for moved lines); its added lines belong to that patch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftkiln.errors import PatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from draftkiln.seams.sources import Sources

Line = tuple[str, int | None]


def read_series(pool: Path, series: str) -> list[tuple[str, str]]:
    """Slug and text of each patch of a series, in order.

    Raises:
        PatchError: the series or one of its patches is not there.
    """
    file = pool / "series" / series
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise PatchError(f"no series {series}", why=str(error), fix=f"name one of {pool / 'series'}") from error
    slugs = [line.split("#", 1)[0].strip() for line in lines]
    patches = []
    for slug in filter(None, slugs):
        patch = pool / f"{slug}.patch"
        if not patch.is_file():
            raise PatchError(f"{file} names {slug}", why=f"{patch} is not there", fix="add the patch or drop the line")
        patches.append((slug, patch.read_text(encoding="utf-8")))
    return patches


def owner_lookup(sources: Sources, patches: Sequence[tuple[str, str]]) -> Callable[[str, int], str | None]:
    """A function from file and line to the slug of the patch that owns the line, None for upstream's own.

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
