"""Answers on disk: one line each, appended and synced in groups, read again by the next try."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln import durable

if TYPE_CHECKING:
    from pathlib import Path

_SYNC_ROWS = 32
_SYNC_SECONDS = 2.0


@dataclass(frozen=True)
class Prompt:
    """One request: its number among all prompts, the row it belongs to and its token ids."""

    number: int
    source: str
    ids: list[int]


@dataclass(frozen=True)
class Answer:
    """What the target wrote: ids with the end-of-turn token where it stopped by itself (`finish` = stop)."""

    key: str
    ids: list[int]
    text: str
    finish: str


class Store:
    """Answers on disk, one JSON object a line, appended and synced in groups; a line cut by a crash is dropped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, Answer] = {}
        good = 0
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break
                answer = Answer(**json.loads(line))
                self.answers[answer.key] = answer
                good += len(line)
            os.truncate(path, good)
        self._file = path.open("ab")
        self._waiting = 0
        self._synced = time.monotonic()

    def add(self, answer: Answer) -> None:
        """Append an answer; it is durable after at most 32 answers or 2 s, and always after `close`."""
        self.answers[answer.key] = answer
        with durable.storage_errors(self.path):
            self._file.write(json.dumps(vars(answer), ensure_ascii=False).encode() + b"\n")
            self._waiting += 1
            if self._waiting >= _SYNC_ROWS or time.monotonic() - self._synced > _SYNC_SECONDS:
                self._sync()

    def close(self) -> None:
        """Make everything durable."""
        with durable.storage_errors(self.path):
            self._sync()
            self._file.close()

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._waiting, self._synced = 0, time.monotonic()
