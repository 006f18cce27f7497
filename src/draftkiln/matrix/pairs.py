"""Which stacks are pairs to be proved, and what a proof of one depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln import durable
from draftkiln.errors import UsageError
from draftkiln.patches import queue
from draftkiln.patches.uses import all_uses, patches_of
from draftkiln.stack.model import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.patches.uses import Use

GENERATOR = "speculators/data_generation/vllm_hidden_states_generator.py"


@dataclass(frozen=True)
class Pair:
    """A stack that extracts with a patched generator on a CPU."""

    stack: str
    speculators: str
    vllm: str
    patches: int
    identity: str
    """Hash of all that its proof depends on: the lock (wheels, patches, packages) and its environment variables."""


def every_pair() -> list[Pair]:
    """The CPU stacks whose patches change the generator: by engine, then by release."""
    series = queue.load(queue.queue_folder()).series
    found = []
    for use in all_uses():
        patches = patches_of(use, series)
        if read(use.stack).file.device == "cpu" and any(GENERATOR in patch.files for patch in patches):
            found.append(_pair(use, len(patches)))
    return sorted(found, key=lambda pair: (_numbers(pair.vllm), _numbers(pair.speculators)))


def chosen(only: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs named by `only`; all where nothing is named.

    Raises:
        UsageError: a name is none of them.
    """
    known = {pair.stack: pair for pair in pairs}
    wrong = [name for name in only if name not in known]
    if wrong:
        raise UsageError(f"no pair named {', '.join(wrong)}", why=f"pairs: {', '.join(known)}", fix="name one of them")
    return [pair for pair in pairs if not only or pair.stack in only]


def _pair(use: Use, patches: int) -> Pair:
    stack = read(use.stack)
    identity = durable.sha256_json([stack.locked().model_dump(), stack.file.environment])
    return Pair(use.stack, use.version, use.engine, patches, identity)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
