"""From a replica's folder into the run: only samples that the driver took first, and their receipts after them.

On a shared path the driver gives a file its place in the run by renaming it; a replica that was taken for dead, or that
computed what another delivered before, writes to its own folder only. Where hosts keep their samples on disks of their
own, `places.jsonl` says which sample lies where.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from draftkiln import durable
from draftkiln.extract import samples
from draftkiln.scale.ranges import Ranges

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from draftkiln.extract.manifest import Receipt
    from draftkiln.scale.coordinate import Delivery

PLACES = "places.jsonl"


class Publisher(Protocol):
    """Makes delivered samples part of the run."""

    def publish(self, deliveries: Sequence[Delivery]) -> set[int]:
        """Do so, durably; the indices whose files are not what their receipts say."""


@dataclass(frozen=True)
class Shared:
    """All hosts see the run directory.

    Attributes:
        replicas: folder of the replicas' folders.
        folder: of the run's samples, on the same file system.
    """

    replicas: Path
    folder: Path

    def publish(self, deliveries: Sequence[Delivery]) -> set[int]:
        """Rename the files, then sync the folder."""
        wrong: set[int] = set()
        with durable.storage_errors(self.folder):
            for delivery in deliveries:
                place = self.replicas / delivery.replica / samples.FOLDER
                wrong.update(receipt.index for receipt in delivery.receipts if not self._take(place, receipt))
            durable.sync_folder(self.folder)
        return wrong

    def _take(self, place: Path, receipt: Receipt) -> bool:
        name = samples.name(receipt.index)
        try:
            if (place / name).stat().st_size != receipt.bytes:
                return False
            (place / name).rename(self.folder / name)
        except FileNotFoundError:
            return False
        return True


@dataclass(frozen=True)
class PerHost:
    """Each host keeps what it computed.

    Attributes:
        run: run directory as the hosts see it.
        places: file that says where samples lie.
    """

    run: str
    places: Path

    def publish(self, deliveries: Sequence[Delivery]) -> set[int]:
        """Note the host and the folder of each sample."""
        lines = []
        for delivery in deliveries:
            indices = Ranges(receipt.index for receipt in delivery.receipts)
            line = {
                "host": delivery.host,
                "folder": f"{self.run}/extract/replicas/{delivery.replica}/{samples.FOLDER}",
                "indices": [[part.start, part.stop] for part in indices],
            }
            lines.append(json.dumps(line) + "\n")
        with durable.storage_errors(self.places), self.places.open("ab") as file:
            # A line that a kill cut short must not spoil the one after it.
            file.write(("\n" + "".join(lines)).encode())
            file.flush()
            os.fsync(file.fileno())
        return set()
