"""Shards: the samples of a dataset dealt out to several hosts by their index alone, so that hosts need not talk."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

_FORM = re.compile(r"([1-9]\d*)/([1-9]\d*)", re.ASCII)


@dataclass(frozen=True, repr=False)
class Shard:
    """Part `number` of `of`, counted from 1: every `of`-th sample, so that long and short ones are spread evenly."""

    number: int
    of: int

    def __repr__(self) -> str:
        return f"{self.number}/{self.of}"

    def indices(self, samples: int) -> range:
        """Indices of its samples in a dataset of so many."""
        return range(self.number - 1, samples, self.of)


def parse(text: str) -> Shard:
    """Read `2/4`; for argparse.

    Raises:
        ArgumentTypeError: it has another form, or names a part that there is not.
    """
    found = _FORM.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no shard: write 1/4 to 4/4 for the parts of four hosts")
    return Shard(int(found[1]), int(found[2]))
