"""The worker's side of an extraction: rows captured in a step go to blocks of host memory and on to the sink.

Runs inside vLLM's worker process as the worker extension, on top of the capture of speculators' patched extension. The
model's own forward pass and vLLM's own scheduler run unchanged; hidden states never leave this process.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from speculators.data_generation.custom_worker import HiddenStatesWorkerExtension
from vllm.distributed import get_tp_group

from draftkiln.errors import EngineError, StorageError
from draftkiln.extract import samples
from draftkiln.extract.ring import Block, Ring
from draftkiln.extract.sink import Rows, Sink

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCKS = 6
_BLOCK_BYTES = 256 << 20


class SinkExtension(HiddenStatesWorkerExtension):  # type: ignore[misc]  # untyped upstream class
    """Worker extension that writes what it captures.

    vLLM mixes it into its worker class and refuses names that this class has already, hence the prefix. Requests are
    named by the index of their sample, which vLLM may follow by `-` and letters of its own. Replies are plain lists,
    texts and numbers: vLLM's calls between processes carry nothing else by default.
    """

    model_runner: Any
    _step_states: dict[int, torch.Tensor]

    def _sink_open(
        self, layer_ids: list[int], folder: str, hidden: int, writers: int, step_tokens: int, driver: int
    ) -> None:
        """Begin: hook the layers and, on rank 0, start the sink.

        Args:
            layer_ids: as the patched generator counts them (output of layer i), ascending.
            folder: where samples go.
            hidden: size of a state.
            writers: threads that write.
            step_tokens: most tokens of a step.
            driver: process that records receipts; without it nothing is to be written any more.
        """
        # Ctrl-C goes to the whole foreground group, but it is the driver that ends an extraction.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        threading.Thread(target=_die_with, args=(os.pidfd_open(driver),), daemon=True).start()
        self._sink_writes = get_tp_group().rank_in_group == 0
        if self._sink_writes:
            slots = len(layer_ids)
            self._sink = Sink(Path(folder), slots, hidden, writers)
            self._sink_device = next(self.model_runner.model.parameters()).device
            rows = max(1, min(step_tokens, _BLOCK_BYTES // samples.row_bytes(slots, hidden)))
            self._sink_ring = Ring(
                _block(rows, slots, hidden, pinned=self._sink_device.type == "cuda") for _ in range(_BLOCKS)
            )
            self._sink_block_rows = rows
            self._sink_next: dict[int, int] = {}
            if self._sink_device.type == "cuda":
                self._sink_stream = torch.cuda.Stream(self._sink_device)
        self._setup_hidden_states_capture(layer_ids)

    def _capture_layer(self, layer_id: int, layer: Any, args: Any, output: Any) -> None:
        """Hook after a captured layer; the last one completes the step's states."""
        super()._capture_layer(layer_id, layer, args, output)
        if layer_id == self._layer_ids[-1] and getattr(self, "_sink_writes", False):
            states, self._step_states = self._step_states, {}
            try:
                self._sink_step([states[number] for number in self._layer_ids])
            except Exception as cause:  # noqa: BLE001 - told by the next report; raised here it would end as a dead engine
                self._sink.fail(cause)

    def _sink_step(self, states: list[torch.Tensor]) -> None:
        """Copy the rows of a step, `[tokens, hidden]` a layer, to blocks and hand them to the sink."""
        spans = list(self._sink_spans())
        if not spans or self._sink.failure is not None:
            return
        used = spans[-1][2]
        if min(map(len, states)) < used:
            raise EngineError(f"a captured layer has {min(map(len, states))} rows in a step of {used}")
        if self._sink_device.type == "cuda":
            states = [torch.stack([state[:used] for state in states], dim=1).to(torch.bfloat16)]
        row = samples.row_bytes(len(self._layer_ids), states[0].shape[-1])
        for begin in range(0, used, self._sink_block_rows):
            end = min(begin + self._sink_block_rows, used)
            block = self._sink_ring.take(lambda: self._sink.failure is not None)
            if block is None:
                return
            self._sink_copy(block, states, begin, end)
            parts = list(_within(spans, begin, end))
            block.lend(len(parts))
            for index, first, last, start, total, token_ids in parts:
                data = block.view[(first - begin) * row : (last - begin) * row]
                self._sink.put(Rows(index, start, data, total, token_ids, block))

    def _sink_spans(self) -> Iterator[tuple[int, int, int, int, int, bytes | None]]:
        """Rows of the step by request, in the order in which the model runner laid them out.

        Yields:
            index of the sample, first row and row after the last, first token, tokens of the prompt, and with the
            first token all token ids that the engine was given.
        """
        batch = self.model_runner.input_batch
        bounds = self.model_runner.query_start_loc.np
        for number, name in enumerate(batch.req_ids):
            index = int(name.split("-")[0])
            first, last = int(bounds[number]), int(bounds[number + 1])
            start, total = int(batch.num_computed_tokens_cpu[number]), int(batch.num_prompt_tokens[number])
            expected = self._sink_next.get(index, 0)
            if start > expected:
                raise EngineError(
                    f"sample {index}: the engine went on at token {start}, states of {expected} tokens were captured",
                    why="a prefix cache is on, or a chunk was lost",
                )
            # A request that was preempted is computed anew: rows that were captured before are left out.
            first, start = first + expected - start, expected
            last = min(last, first + total - start)
            if first < last:
                done = start + last - first
                if done == total:
                    self._sink_next.pop(index, None)
                else:
                    self._sink_next[index] = done
                ids = batch.token_ids_cpu[number, :total].astype("<i8").tobytes() if start == 0 else None
                yield index, first, last, start, total, ids

    def _sink_copy(self, block: Block, states: list[torch.Tensor], begin: int, end: int) -> None:
        """Copy rows `begin` to `end` into the block, on a GPU on a side stream while the next step computes."""
        rows = end - begin
        if self._sink_device.type != "cuda":
            for slot, state in enumerate(states):
                block.memory[:rows, slot].copy_(state[begin:end])
            return
        event = torch.cuda.Event(blocking=True)
        self._sink_stream.wait_stream(torch.cuda.current_stream(self._sink_device))
        with torch.cuda.stream(self._sink_stream):
            block.memory[:rows].copy_(states[0][begin:end], non_blocking=True)
            event.record(self._sink_stream)
        # The allocator must not hand the states' memory out before the copy is done.
        states[0].record_stream(self._sink_stream)
        block.ready = event.synchronize

    def _sink_report(self) -> dict[str, Any] | None:
        """Durable samples since the last call, and what went wrong; None on ranks that do not write."""
        if not self._sink_writes:
            return None
        return {"receipts": _plain(self._sink.receipts()), "failure": _failure(self._sink)}

    def _sink_close(self) -> dict[str, Any] | None:
        """Write all that was captured and stop the writers; the last report, or None on ranks that do not write."""
        if not self._sink_writes:
            return None
        return {"receipts": _plain(self._sink.close()), "failure": _failure(self._sink)}

    def _sink_leave(self) -> None:
        """Let signals end this process again."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


def _block(rows: int, slots: int, hidden: int, *, pinned: bool) -> Block:
    memory = torch.empty(rows, slots, hidden, dtype=torch.bfloat16, pin_memory=pinned)
    return Block(memory, memoryview(memory.view(torch.uint8).numpy().reshape(-1)))


def _within(
    spans: list[tuple[int, int, int, int, int, bytes | None]], begin: int, end: int
) -> Iterator[tuple[int, int, int, int, int, bytes | None]]:
    """The parts of `spans` that lie in rows `begin` to `end`."""
    for index, first, last, start, total, token_ids in spans:
        low, high = max(first, begin), min(last, end)
        if low < high:
            yield index, low, high, start + low - first, total, token_ids if low == first else None


def _die_with(process: int) -> None:
    """End this process as soon as the process of that descriptor has ended: a new one may be at work on the folder."""
    select.select([process], [], [])
    os._exit(1)


def _plain(receipts: list[Any]) -> list[list[Any]]:
    return [[found.index, found.rows, found.bytes, found.checksum, found.token_ids] for found in receipts]


def _failure(sink: Sink) -> list[str] | None:
    found = sink.failure
    if found is None:
        return None
    return ["storage" if isinstance(found, StorageError) else "engine", found.what, found.why, found.fix]
