"""From the states of a step to blocks of host memory, as they are stored: on a GPU by a side stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from draftkiln.extract import fp8, samples
from draftkiln.extract.ring import Block

if TYPE_CHECKING:
    from collections.abc import Sequence

_MEASURED_ROWS = 256
_STAGES = 2
"""While the rows of one step leave the GPU, those of the next are captured."""


class HostCopy:
    """Copies rows while the next step computes.

    On a GPU layers add their states at their place in device memory laid out as the samples are, `[token, slot,
    hidden]`, so that the rows of a sample leave in one piece. It is taken once, outside of what the engine plans with.

    Args:
        device: of the states.
        storage: type that they are stored in.
        step: most tokens of a step, captured slots of a token, size of a state.

    Attributes:
        lost: what the storage loses of each slot, measured on the first rows; empty when nothing is.
        device_bytes: memory of the GPU that it takes.
    """

    def __init__(self, device: torch.device, storage: str, step: tuple[int, int, int]) -> None:
        self.lost: list[fp8.Loss] = []
        self._fp8 = storage == samples.FP8
        self.on_gpu = device.type == "cuda"
        self._device = device
        self._stream = torch.cuda.Stream(device) if self.on_gpu else None
        stages = _STAGES if self.on_gpu else 0
        self._stages = [torch.empty(step, dtype=torch.bfloat16, device=device) for _ in range(stages)]
        self._copied: list[torch.cuda.Event | None] = [None] * stages
        self._filling = self._leaving = 0
        self.device_bytes = sum(stage.nbytes for stage in self._stages)

    def add(self, slot: int, parts: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Add what a layer gave, hidden states and residual, at its place; gives that place."""
        stage, copied = self._stages[self._filling], self._copied[self._filling]
        if slot == 0 and copied is not None:
            # The GPU itself waits, should this memory still be on its way; nobody here does.
            torch.cuda.current_stream(self._device).wait_event(copied)
        rows = min(len(parts[0]), len(stage))
        place = stage[:rows, slot]
        torch.add(parts[0][:rows], parts[1][:rows], out=place)
        return place

    def block(self, rows: int, slots: int, hidden: int) -> Block:
        """Host memory for so many rows."""
        dtype = torch.float8_e4m3fn if self._fp8 else torch.bfloat16
        memory = torch.empty(rows, slots, hidden, dtype=dtype, pin_memory=self.on_gpu)
        scales = torch.empty(rows if self._fp8 else 0, dtype=torch.float32, pin_memory=self.on_gpu and self._fp8)
        return Block(memory, _bytes(memory), scales=scales, scale_view=_bytes(scales))

    def stored(self, states: Sequence[torch.Tensor], rows: int) -> list[torch.Tensor]:
        """What `copy` copies of the first `rows` rows of a step: `[rows, hidden]` a slot, or all of them together."""
        if not self.on_gpu and not self._fp8:
            return list(states)
        if self.on_gpu:
            together = self._stages[self._filling][:rows]
            self._leaving, self._filling = self._filling, (self._filling + 1) % _STAGES
        else:
            together = torch.stack([state[:rows] for state in states], dim=1).to(torch.bfloat16)
        if not self._fp8:
            return [together]
        codes, scales = fp8.quantize(together)
        if not self.lost:
            few = slice(0, _MEASURED_ROWS)
            self.lost = fp8.loss(together[few], codes[few], scales[few])
        return [codes, scales]

    def copy(self, stored: Sequence[torch.Tensor], block: Block, begin: int, end: int) -> None:
        """Copy rows `begin` to `end` into a block, which is ready when `block.ready` returns."""
        rows = end - begin
        if not self.on_gpu and not self._fp8:
            for slot, state in enumerate(stored):
                block.memory[:rows, slot].copy_(state[begin:end])
            return
        targets = (block.memory, block.scales)
        if self._stream is None:
            for source, target in zip(stored, targets, strict=False):
                target[:rows].copy_(source[begin:end])
            return
        event = torch.cuda.Event(blocking=True)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for source, target in zip(stored, targets, strict=False):
                target[:rows].copy_(source[begin:end], non_blocking=True)
            event.record(self._stream)
        self._copied[self._leaving] = event
        if self._fp8:
            for source in stored:
                # The allocator must not hand the codes' memory out before the copy is done.
                source.record_stream(self._stream)
        block.ready = event.synchronize


def _bytes(memory: torch.Tensor) -> memoryview:
    return memoryview(memory.view(torch.uint8).numpy().reshape(-1))
