"""Plain prefill and extraction on one engine, for the benchmark."""

from __future__ import annotations

import dataclasses
import shutil
import time
from typing import TYPE_CHECKING

from draftkiln.errors import UsageError
from draftkiln.extract import drive, manifest, memory, samples
from draftkiln.extract.engine import Settings, VllmEngine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from draftkiln.extract.neighbours import Prompts


class WithSink:
    """One engine: prefill alone, or with the sink at work. While no sink is open nothing is captured.

    Attributes:
        memory: bytes that driver and engine took at most in the first round of prefill alone and in that of extraction;
            later on the engine's own KV cache, which is touched as it is used, would count as extraction's.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.engine = VllmEngine(settings)
        self._limits = self.engine.limits()
        self._folder, self._round = folder, 0
        shape = settings.captured(), settings.facts.hidden_size
        self._head = manifest.Head(*shape, "bfloat16", settings.dtype, 0, "bench", "bench", "bench")
        self.memory = [0, 0]

    def plain(self, prompts: Prompts) -> float:
        """Seconds of prefill alone."""
        memory.begin()
        began = time.monotonic()
        drive.drive(_Plain(self.engine), enumerate(prompts), self._limits, lambda _: None)
        seconds = time.monotonic() - began
        if self._round == 0:
            self.memory[0] = memory.highest()
        return seconds

    def extract(self, prompts: Prompts, folder: Path | None = None) -> float:
        """Seconds until every sample and its receipt is durable, in `folder` or the one that this was made with."""
        folder = fresh((folder or self._folder) / f"extract-{self._round}") / samples.FOLDER
        self._round += 1
        folder.mkdir()
        path = folder.parent / manifest.FILE
        manifest.create(path, dataclasses.replace(self._head, samples=len(prompts)))
        memory.begin()
        self.engine.open(folder)
        began = time.monotonic()
        drive.drive(self.engine, enumerate(prompts), self._limits, lambda found: manifest.append(path, found))
        seconds = time.monotonic() - began
        if self._round == 1:
            self.memory[1] = memory.highest()
        assert len(manifest.read(path).receipts) == len(prompts)  # noqa: S101 - a round that lost samples counts for nothing
        shutil.rmtree(folder.parent)
        return seconds


class _Plain:
    """The engine without a sink, for the same loop: a sample is done when it is computed."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self._done: list[tuple[int, Sequence[int]]] = []
        self._asked: dict[int, Sequence[int]] = {}

    def add(self, index: int, token_ids: Sequence[int]) -> None:
        self._asked[index] = token_ids
        self._engine.add(index, token_ids)

    def cancel(self, indices: list[int]) -> None:
        self._engine.cancel(indices)

    def step(self) -> list[int]:
        finished = self._engine.step()
        self._done += [(index, self._asked.pop(index)) for index in finished]
        return finished

    def report(self) -> drive.Report:
        done, self._done = self._done, []
        return drive.Report([manifest.Receipt(i, len(ids), 0, "", drive.ids_checksum(ids)) for i, ids in done])

    close = report


def fresh(folder: Path) -> Path:
    """Make a folder for samples that go again; one that holds something else is refused."""
    if folder.exists() and any(folder.iterdir()) and not (folder / manifest.FILE).exists():
        raise UsageError(f"{folder} is not empty", fix="name a new --folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
