"""How many samples a recipe can make, from its data alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.recipe.model import SyntheticData

if TYPE_CHECKING:
    from draftkiln.recipe.model import Data

_BLOCK = 1 << 20


def count(data: Data) -> int | None:
    """The most samples that `data` can make, None where its file cannot be read."""
    if isinstance(data.source, SyntheticData):
        found = data.source.synthetic
    else:
        try:
            lines = _lines(Path(data.source.path).expanduser())
        except OSError:
            return None
        found = max(lines - data.held_out, 0)
    return found if data.limit is None else min(found, data.limit)


def _lines(file: Path) -> int:
    total, last = 0, b"\n"
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            total += block.count(b"\n")
            last = block[-1:]
    return total + (last != b"\n")
