"""How many samples a recipe can make, from its data alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from draftkiln.recipe.files import path_of
from draftkiln.recipe.model import PathData, SeveralData, SyntheticData

if TYPE_CHECKING:
    from pathlib import Path

    from draftkiln.recipe.model import Data

_BLOCK = 1 << 20
_NOT_LINES = {".json", ".parquet"}


def count(data: Data) -> int | None:
    """The most samples that `data` can make, None where its files cannot be counted by their lines."""
    if isinstance(data.source, SyntheticData):
        found = data.source.synthetic
    else:
        try:
            lines = _rows(data)
        except OSError:
            return None
        if lines is None:
            return None
        found = max(lines - data.held_out, 0)
    return found if data.limit is None else min(found, data.limit)


def _rows(data: Data) -> int | None:
    source = data.source
    parts = source.several if isinstance(source, SeveralData) else (source,)
    if data.too_long == "split" or not all(isinstance(part, PathData) for part in parts):
        return None
    files = [(path_of(part.path), part.weight) for part in parts if isinstance(part, PathData)]
    if any(file.suffix in _NOT_LINES for file, _ in files):
        return None
    return sum(_lines(file) * math.ceil(weight) for file, weight in files)


def _lines(file: Path) -> int:
    total, last = 0, b"\n"
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            total += block.count(b"\n")
            last = block[-1:]
    return total + (last != b"\n")
