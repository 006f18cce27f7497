"""A replica: what runs as a Ray actor on each host, beside the process of its engine."""

from __future__ import annotations

import shutil
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import DraftkilnError, EngineError, RunDirectoryError
from draftkiln.scale import places
from draftkiln.scale.child import Child
from draftkiln.scale.messages import Reply
from draftkiln.scale.replica_command import REPLICAS

if TYPE_CHECKING:
    from draftkiln.scale.messages import Order
    from draftkiln.scale.places import Start

_ASK_SECONDS = 0.5
"""A replica that has nothing to say says so that often: the driver takes a silent one for dead."""


class Replica:
    """One engine and its folder on this host.

    It answers at once, also while its stack's environment is made or its weights are loaded.

    Args:
        start: how its process is started.
        name: of the replica, and of its folder.
    """

    def __init__(self, start: Start, name: str) -> None:
        self._host = socket.gethostname()
        self._folder = Path(start.run) / "extract" / REPLICAS / name
        self._child: Child | None = None
        self._failure: DraftkilnError | None = None
        self._begun = threading.Event()
        threading.Thread(target=self._begin, args=(start, name), daemon=True).start()

    def exchange(self, order: Order) -> Reply:
        """Take an order; what there is to say, as soon as there is something."""
        if self._child is None and not self._begun.wait(_ASK_SECONDS):
            return Reply(host=self._host)
        if self._child is None:
            return Reply(host=self._host, state="over", failure=self._failure)
        self._child.order(order)
        said = self._child.news(_ASK_SECONDS)
        disk = f"{self._host}:{self._folder.stat().st_dev}"
        return replace(said, host=self._host, free_bytes=shutil.disk_usage(self._folder).free, disk=disk)

    def end(self) -> None:
        """End the engine's process."""
        if self._child is not None:
            self._child.end()

    def _begin(self, start: Start, name: str) -> None:
        try:
            self._refuse_unprepared(Path(start.run))
            self._folder.mkdir(parents=True)
            recipe = self._folder / "recipe.yaml"
            recipe.write_text(start.recipe, encoding="utf-8")
            program = places.program(start, recipe, name)
            folder = Path(start.folder) if Path(start.folder).is_dir() else self._folder
            self._child = Child(program.command, program.variables, folder, self._folder / "stderr.log")
        except DraftkilnError as failure:
            self._failure = failure
        except Exception as failure:  # noqa: BLE001 - told to the driver, which is on another host
            self._failure = EngineError(f"{type(failure).__name__}: {failure}", why=f"on host {self._host}")
        finally:
            self._begun.set()

    def _refuse_unprepared(self, run: Path) -> None:
        if not (run / "prepare" / "stage.json").exists():
            raise RunDirectoryError(
                f"host {self._host} has no prepared samples in {run}",
                fix="mount the run directory there at that path, or copy its run.json and prepare/ to --host-run",
            )
