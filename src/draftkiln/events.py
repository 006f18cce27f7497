"""The log for programs: one JSON object a line, and logs that are kept from growing without end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LARGEST = 32 << 20
KEPT = 4


@dataclass(frozen=True)
class Events:
    """A file of events.

    Attributes:
        path: of the file, appended to.
        common: what every line says: run, stage, stack.
    """

    path: Path
    common: Mapping[str, Any]

    def write(self, kind: str, *, rank: int | None = None, **fields: Any) -> None:
        """Append an event.

        Args:
            kind: of event, under `event`.
            rank: of the engine that it speaks of; None for the driver.
            fields: more, JSON values.
        """
        line = {"at": round(time.time(), 3), **self.common, "rank": rank, "event": kind, **fields}
        # A log that cannot be written must not end the work that it tells of.
        with contextlib.suppress(OSError):
            rotate(self.path, shared=False)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def rotate(path: Path, *, shared: bool, largest: int = LARGEST) -> None:
    """Give a log that grew beyond `largest` bytes another name: `LOG.1`, the older ones up to `LOG.4`.

    Args:
        path: of the log.
        shared: whether other processes hold it open; then it is copied and cut, and they go on at its new end. What is
            written between the two is lost.
        largest: bytes.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size <= largest:
            return
        names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, KEPT + 1))]
        for older, newer in zip(names[:1:-1], names[-2:0:-1], strict=True):
            if newer.exists():
                newer.replace(older)
        if shared:
            shutil.copyfile(path, names[1])
            os.truncate(path, 0)
        else:
            path.replace(names[1])
