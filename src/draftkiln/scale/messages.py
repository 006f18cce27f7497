"""What driver, replica and engine process say to each other: plain JSON values, so that any pipe carries them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from draftkiln.errors import DraftkilnError, EngineError, StackError, StorageError, SystemMissingError

if TYPE_CHECKING:
    from draftkiln.extract.manifest import Receipt

State = Literal["starting", "identified", "ready", "over"]
"""Of a replica: its process is being made; it said what it runs on and waits for the word; it computes; it ended."""

_KINDS: dict[str, type[DraftkilnError]] = {
    "storage": StorageError,
    "stack": StackError,
    "system": SystemMissingError,
    "engine": EngineError,
}


@dataclass(frozen=True)
class Order:
    """What the driver wants of a replica.

    Attributes:
        ranges: samples to compute after those it has.
        go: whether it is accepted and its engine may be loaded.
        stop: whether to finish only what its engine has begun, and end.
    """

    ranges: tuple[range, ...] = ()
    go: bool = False
    stop: bool = False

    def lines(self) -> list[dict[str, Any]]:
        """As the engine's process reads it."""
        parts: list[dict[str, Any]] = [{"range": [part.start, part.stop]} for part in self.ranges]
        return [*([{"go": True}] if self.go else []), *parts, *([{"stop": True}] if self.stop else [])]


@dataclass
class Reply:
    """What a replica has to say since it was last asked.

    Attributes:
        host: that it runs on.
        state: how far it is.
        identity: hashes of what it runs on, by name; None before it knows.
        receipts: of samples that became durable in its folder.
        answers: what the engine said next after each token of a few samples, by index.
        waiting: samples that it was given and its engine was not.
        free_bytes: on the disk of its folder.
        disk: name of that disk, the same for all replicas that write to it.
        failure: what ended it.
    """

    host: str = ""
    state: State = "starting"
    identity: dict[str, Any] | None = None
    receipts: list[Receipt] = field(default_factory=list)
    answers: dict[int, list[int]] = field(default_factory=dict)
    waiting: int = 0
    free_bytes: int = 0
    disk: str = ""
    failure: DraftkilnError | None = None


def told(failure: DraftkilnError) -> list[str]:
    """A failure as a message carries it."""
    kind = next((name for name, kind in _KINDS.items() if isinstance(failure, kind)), "engine")
    # What an error of several problems says is all in its text.
    return [kind, failure.what or str(failure), failure.why, failure.fix]


def failure_of(values: list[str]) -> DraftkilnError:
    """The failure that a message carries."""
    kind, what, why, fix = values
    return _KINDS[kind](what, why=why, fix=fix)
