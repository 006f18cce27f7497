"""The saved state of a training, from which it goes on as if it had never stopped: complete folders, the newest alone.

`RUN/train/state/STEP/` holds weights and optimizer in full precision, scheduler, random states and `position.json`.
It is written under another name, synced and renamed; what was there before is removed only then.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from draftkiln import durable
from draftkiln.errors import TrainingError
from draftkiln.rundir import differences, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

FOLDER = "state"
_POSITION = "position.json"
_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Position:
    """How far a training is."""

    step: int
    """Optimizer steps done."""
    epoch: int
    epoch_steps: int
    """Of these, the ones done in this epoch."""
    seconds: float
    """Time spent in steps."""


class Asked(Protocol):
    """Says whether the end was asked for."""

    def asked(self) -> bool:
        """Whether it was."""


@dataclass
class Saves:
    """When states are saved, and where to.

    Attributes:
        folder: of the states.
        begin: position to go on from; None: the beginning.
        settings: what decides the result, kept with each state.
        ending: whether the end was asked for.
        every_seconds: time between states.
        every_steps: steps between states, None: time alone decides.
        seconds: gives the time spent in steps so far.
    """

    folder: Path
    begin: Position | None
    settings: Mapping[str, Any]
    ending: Asked
    every_seconds: float
    every_steps: int | None = None
    seconds: Callable[[], float] = float
    _saved_at: float = field(default_factory=time.monotonic, init=False)

    def due(self, step: int) -> bool:
        """Whether a state is to be saved after `step` steps."""
        if self.every_steps is not None and step % self.every_steps == 0:
            return True
        return time.monotonic() - self._saved_at >= self.every_seconds

    def temporary(self, step: int) -> str:
        """Name of the folder of a state while it is written."""
        return f".{step}.tmp"

    def publish(self, position: Position) -> None:
        """Let the state that lies under its temporary name appear, and remove the ones before it."""
        temporary, final = self.folder / self.temporary(position.step), self.folder / str(position.step)
        with durable.storage_errors(final):
            content = {"schema_version": _SCHEMA_VERSION, "settings": dict(self.settings), **asdict(position)}
            durable.write_json(temporary / _POSITION, content)
            for file in temporary.iterdir():
                durable.sync_file(file)
            durable.sync_folder(temporary)
            shutil.rmtree(final, ignore_errors=True)
            temporary.rename(final)
            durable.sync_folder(self.folder)
            for step in _steps(self.folder):
                if step != position.step:
                    shutil.rmtree(self.folder / str(step))
        self._saved_at = time.monotonic()


def kept(train: Path) -> str:
    """Where the last saved state of a training in RUN/train lies, for people."""
    folder = train / FOLDER
    steps = _steps(folder) if folder.is_dir() else []
    if not steps:
        return "no state was saved before it (train.save_minutes, train.save_steps)"
    return f"the state after step {max(steps)} is kept in {folder / str(max(steps))}"


def latest(folder: Path, settings: Mapping[str, Any]) -> Position | None:
    """Position of the newest complete state; None when there is none.

    Raises:
        TrainingError: it was saved by a training with other settings; each difference is named.
    """
    if not folder.is_dir():
        return None
    for leftover in folder.glob(".*.tmp"):
        shutil.rmtree(leftover, ignore_errors=True)
    steps = _steps(folder)
    if not steps:
        return None
    found = read_json(folder / str(max(steps)) / _POSITION)
    changed = list(differences(found.pop("settings", {}), dict(settings)))
    if changed or found.pop("schema_version", None) != _SCHEMA_VERSION:
        raise TrainingError(
            f"{folder} was saved by another training",
            why="; ".join(changed) or f"it is not of schema version {_SCHEMA_VERSION}",
            fix=f"remove {folder} to begin anew, or go back to the draftkiln that wrote it",
        )
    return Position(**found)


def _steps(folder: Path) -> list[int]:
    return [int(entry.name) for entry in folder.iterdir() if entry.is_dir() and entry.name.isdecimal()]
