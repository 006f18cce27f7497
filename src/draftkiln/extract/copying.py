"""From the states of a step to blocks of host memory, as they are stored: on a GPU by a side stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from draftkiln.extract import fp8, samples
from draftkiln.extract.ring import Block

if TYPE_CHECKING:
    from collections.abc import Sequence

_MEASURED_ROWS = 256


class HostCopy:
    """Copies rows while the next step computes.

    Args:
        device: of the states.
        storage: type that they are stored in.

    Attributes:
        lost: what the storage loses of each slot, measured on the first rows; empty when nothing is.
    """

    def __init__(self, device: torch.device, storage: str) -> None:
        self.lost: list[fp8.Loss] = []
        self._device, self._fp8 = device, storage == samples.FP8
        self._on_gpu = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._on_gpu else None

    def block(self, rows: int, slots: int, hidden: int) -> Block:
        """Host memory for so many rows."""
        dtype = torch.float8_e4m3fn if self._fp8 else torch.bfloat16
        memory = torch.empty(rows, slots, hidden, dtype=dtype, pin_memory=self._on_gpu)
        scales = torch.empty(rows if self._fp8 else 0, dtype=torch.float32, pin_memory=self._on_gpu and self._fp8)
        return Block(memory, _bytes(memory), scales=scales, scale_view=_bytes(scales))

    def stored(self, states: Sequence[torch.Tensor], rows: int) -> list[torch.Tensor]:
        """What `copy` copies of the first `rows` rows of a step: `[rows, hidden]` a slot, or all of them together."""
        if not self._on_gpu and not self._fp8:
            return list(states)
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
        if not self._on_gpu and not self._fp8:
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
        for source in stored:
            # The allocator must not hand the states' memory out before the copy is done.
            source.record_stream(self._stream)
        block.ready = event.synchronize


def _bytes(memory: torch.Tensor) -> memoryview:
    return memoryview(memory.view(torch.uint8).numpy().reshape(-1))
