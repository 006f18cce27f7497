"""Rows to learn from and prompts held out: the last conversations of the data, found before any row is rendered."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from draftkiln import durable
from draftkiln.errors import DataError
from draftkiln.prepare import rows
from draftkiln.prepare.conversation import Conversation
from draftkiln.prepare.forms import Rules
from draftkiln.prepare.outcome import Outcome, Refusal
from draftkiln.prepare.rows import LeftOut, Source
from draftkiln.recipe.files import path_of
from draftkiln.recipe.model import HubData, PathData, SeveralData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from draftkiln.prepare.conversation import Row
    from draftkiln.recipe.model import Data

HELD_OUT = "its prompt is held out for evaluation"
_DUPLICATE = "duplicate"


def sources(data: Data) -> list[Source]:
    """The files and folders that hold the rows of a recipe; those on the Hub are fetched.

    Raises:
        NetworkError: they cannot be fetched.
    """
    source = data.source
    if isinstance(source, PathData):
        return [Source(path_of(source.path), source.weight)]
    if isinstance(source, SeveralData):
        return [Source(path_of(part.path), part.weight) for part in source.several]
    if isinstance(source, HubData):
        from draftkiln.prepare import hubdata

        return [Source(path) for path in hubdata.fetch(source)]
    return []


def rules(data: Data) -> Rules:
    """How rows of a recipe are read."""
    return Rules(data.answers is not None, data.roles, data.raw_text.field if data.raw_text else None)


@dataclass
class Split:
    """Which conversations are held out, and the rows that are left to learn from.

    Rows are read twice, once to find the last conversations, so that no more than these are ever in memory.
    """

    read: Callable[[], Iterator[Row | Refusal | LeftOut]]
    duplicates: str = "ignore"
    held_out: list[Conversation] = field(default_factory=list)

    def find(self, count: int, where: str) -> None:
        """Set the last `count` conversations apart.

        Raises:
            DataError: there are no more than these.
        """
        last: collections.deque[Conversation] = collections.deque(maxlen=count)
        good, refused = 0, Outcome()
        for row in self.read():
            if isinstance(row, Refusal):
                refused.note(row)
            elif not isinstance(row, LeftOut):
                good += 1
                if isinstance(row, Conversation):
                    last.append(row)
        if good <= count:
            told = f"; {refused.refused_rows} rows are refused: {refused.reasons()}" if refused.refused_rows else ""
            raise DataError(
                f"{where}: {good} conversations are too few",
                why=f"data.held_out sets {count} apart and none is left to train on{told}",
                fix="add rows, or lower data.held_out",
            )
        self.held_out = list(last)

    def taught(self, outcome: Outcome) -> Iterator[Row | Refusal]:
        """Rows to learn from, with those refused that ask a held-out prompt or say what an earlier row said."""
        apart = {row.source for row in self.held_out}
        asked = {prompt_key(row) for row in self.held_out}
        seen: set[bytes] = set()
        ids: set[str] = set()
        for row in self.read():
            if isinstance(row, LeftOut):
                outcome.counts["left out by weight"] += 1
            elif isinstance(row, Refusal):
                yield row
            elif row.source not in apart:
                if isinstance(row, Conversation) and prompt_key(row) in asked:
                    yield Refusal(row.source, HELD_OUT)
                else:
                    yield self._unless_seen(row, seen, ids, outcome)

    def _unless_seen(self, row: Row, seen: set[bytes], ids: set[str], outcome: Outcome) -> Row | Refusal:
        if self.duplicates == "ignore":
            return row
        if row.row_id is not None:
            outcome.counts["doubled ids"] += row.row_id in ids
            ids.add(row.row_id)
        content = row.content()
        if content not in seen:
            seen.add(content)
            return row
        if self.duplicates == "refuse":
            return Refusal(row.source, _DUPLICATE)
        outcome.counts["duplicates"] += 1
        return row


def of(data: Data) -> Split:
    """The split of a recipe's data.

    Raises:
        DataError: it holds too few conversations.
    """
    split = everything(data)
    if data.held_out:
        split.find(data.held_out, ", ".join(str(source.path) for source in sources(data)))
    return split


def everything(data: Data) -> Split:
    """A split that holds nothing out."""
    found, read_by = sources(data), rules(data)
    return Split(lambda: rows.read(found, read_by, limit=data.limit), data.duplicates)


def prompt_key(conversation: Conversation) -> str:
    """What a conversation asks, whatever the answer."""
    return durable.sha256_json(conversation.prompt())
