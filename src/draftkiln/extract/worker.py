"""The worker's side of an extraction: rows captured in a step go to blocks of host memory and on to the sink.

Runs inside vLLM's worker process as the worker extension, on top of the capture of speculators' patched extension. The
model's own forward pass and vLLM's own scheduler run unchanged; hidden states never leave this process.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from speculators.data_generation import custom_worker
from vllm.distributed import get_tp_group

from draftkiln.errors import EngineError, StorageError
from draftkiln.extract import made_up, samples
from draftkiln.extract.copying import HostCopy
from draftkiln.extract.ranks import RowPrints
from draftkiln.extract.ring import Ring
from draftkiln.extract.sink import Sink
from draftkiln.extract.steps import Bookkeeping, Span, hand_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from draftkiln.extract.manifest import Receipt

_BLOCKS = 6
_BLOCK_BYTES = 256 << 20


class SinkExtension(custom_worker.HiddenStatesWorkerExtension):  # type: ignore[misc]  # untyped upstream class
    """Worker extension that writes what it captures.

    vLLM mixes it into its worker class and refuses names that this class has already, hence the prefix. Requests are
    named by the index of their sample, which vLLM may follow by `-` and letters of its own. Replies are plain lists,
    texts and numbers: vLLM's calls between processes carry nothing else by default.
    """

    model_runner: Any
    _step_states: dict[int, torch.Tensor]
    _sink_active = False
    _sink: Sink
    _sink_copy: HostCopy

    def _sink_make_up(self) -> int:
        """Give made-up weights values that flow; the number of tensors that were set."""
        return int(made_up.fill(self.model_runner.model))

    def _sink_open(
        self,
        layer_ids: list[int],
        folder: str,
        hidden: int,
        writers: int,
        step_tokens: int,
        driver: int,
        host: str,
        cpus: list[int],
        storage: str = "bfloat16",
        compared: Sequence[int] = (),
    ) -> dict[str, Any]:
        """Begin: hook the layers and, on rank 0, start the sink.

        Args:
            layer_ids: as the patched generator counts them (output of layer i), ascending.
            folder: where samples go.
            hidden: size of a state.
            writers: threads that write.
            step_tokens: most tokens of a step.
            driver: process that records receipts; without it nothing is to be written any more.
            host: that it runs on; on another one whoever started the worker ends it.
            cpus: that the writers may run on; the engine binds itself, and with it every thread it starts, to one.
            storage: type that states are stored in.
            compared: samples of which every rank keeps fingerprints of rows, to be compared between ranks.

        Returns:
            The rank, its process and whether it writes, for the log.
        """
        group = get_tp_group()
        self._sink_writes = group.rank_in_group == 0
        if not hasattr(self, "_sink_kept"):
            # Ctrl-C goes to the whole foreground group, but it is the driver that ends an extraction.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            if host == socket.gethostname():
                threading.Thread(target=_die_with, args=(os.pidfd_open(driver),), daemon=True).start()
            self._setup_hidden_states_capture(layer_ids)
            if compared and not self._sink_writes:
                self._sink_hook(layer_ids)
        self._sink_kept = Bookkeeping()
        self._sink_prints = RowPrints(compared)
        if self._sink_writes:
            slots = len(layer_ids)
            for before in ("_sink_copy", "_sink_ring"):
                self.__dict__.pop(before, None)  # gives its memory back first
            device = next(self.model_runner.model.parameters()).device
            self._sink_copy = HostCopy(device, storage, (step_tokens, slots, hidden))
            self._sink_seen: set[int] = set()
            self._sink = Sink(Path(folder), slots, hidden, writers, cpus=set(cpus), dtype=storage)
            self._sink_row_bytes = samples.row_bytes(slots, hidden, storage)
            # Even parts of a step: the writers get all of them at about the same time.
            parts = -(-step_tokens * self._sink_row_bytes // _BLOCK_BYTES)
            self._sink_block_rows = -(-step_tokens // parts)
            blocks = (self._sink_copy.block(self._sink_block_rows, slots, hidden) for _ in range(_BLOCKS))
            self._sink_ring = Ring(blocks)
        self._sink_active = self._sink_writes or bool(compared)
        return {
            "rank": int(group.rank_in_group),
            "process": os.getpid(),
            "writes": self._sink_writes,
            "device_bytes": self._sink_copy.device_bytes if self._sink_writes else 0,
        }

    def _sink_hook(self, layer_ids: list[int]) -> None:
        """Hook the layers on a rank that does not write, which the patched extension leaves out."""
        find = getattr(custom_worker, "_find_decoder", None)
        if find is None:
            raise EngineError("this series of patches cannot compare ranks", fix="leave --check-ranks out")
        decoder = find(self.model_runner.model)
        for layer_id in layer_ids:
            decoder.layers[layer_id].register_forward_hook(partial(self._capture_layer, layer_id))

    def _capture_layer(self, layer_id: int, layer: Any, args: Any, output: Any) -> None:
        """Hook after a captured layer; the last one completes the step's states. Idle while no sink is open."""
        if not self._sink_active or (self._sink_writes and self._sink.failure is not None):
            return
        try:
            if self._sink_writes and layer_id in self._sink_seen:
                slot = self._layer_ids.index(layer_id)
                self._step_states[layer_id] = self._sink_copy.add(slot, output)
            else:
                # The patched extension looks at what the layer gives; from then on it gives the same.
                super()._capture_layer(layer_id, layer, args, output)
                self._sink_first(layer_id, output)
            if layer_id == self._layer_ids[-1]:
                states, self._step_states = self._step_states, {}
                self._sink_step([states[number] for number in self._layer_ids])
        except Exception as cause:  # noqa: BLE001 - told by the next report; raised here it would end as a dead engine
            if self._sink_writes:
                self._sink.fail(cause)
            else:
                self._sink_prints.failure = f"{type(cause).__name__}: {cause}"

    def _sink_first(self, layer_id: int, output: Any) -> None:
        if self._sink_writes and self._sink_copy.on_gpu:
            self._sink_seen.add(layer_id)
            self._step_states[layer_id] = self._sink_copy.add(self._layer_ids.index(layer_id), output)

    def _sink_step(self, states: list[torch.Tensor]) -> None:
        """Give the rows of a step, `[tokens, hidden]` a layer, to the sink."""
        spans = self._sink_kept.new_rows(self._sink_account())
        used = max((span.last for span in spans), default=0)
        if used == 0:
            return
        if min(map(len, states)) < used:
            raise EngineError(f"a captured layer has {min(map(len, states))} rows in a step of {used}")
        self._sink_prints.keep(spans, partial(_row_bytes, states))
        if self._sink_writes:
            copy = partial(self._sink_copy.copy, self._sink_copy.stored(states, used))
            rows, row_bytes = self._sink_block_rows, self._sink_row_bytes
            hand_over(spans, copy, self._sink_ring, self._sink, rows=rows, row_bytes=row_bytes)

    def _sink_account(self) -> Iterator[tuple[Span, Callable[[], bytes]]]:
        """Rows of the step by request, in the order in which the model runner laid them out."""
        batch = self.model_runner.input_batch
        bounds = self.model_runner.query_start_loc.np
        for number, name in enumerate(batch.req_ids):
            first, last = int(bounds[number]), int(bounds[number + 1])
            start, total = int(batch.num_computed_tokens_cpu[number]), int(batch.num_prompt_tokens[number])
            ids = batch.token_ids_cpu[number, :total]
            yield Span(int(name.split("-")[0]), first, last, start, total, None), partial(_id_bytes, ids)

    def _sink_report(self) -> dict[str, Any] | None:
        """Durable samples since the last call, and what went wrong; None on ranks that do not write."""
        if not self._sink_writes:
            return None
        return self._sink_reply(self._sink.receipts())

    def _sink_close(self) -> dict[str, Any] | None:
        """Write all that was captured and stop the writers; the last report, or None on ranks that do not write."""
        self._sink_active = False
        if not self._sink_writes:
            return None
        return self._sink_reply(self._sink.close())

    def _sink_reply(self, receipts: list[Receipt]) -> dict[str, Any]:
        lost = [[loss.error, loss.min_cosine] for loss in self._sink_copy.lost]
        return {"receipts": _plain(receipts), "failure": _failure(self._sink), "lost": lost}

    def _sink_rows(self) -> dict[str, Any]:
        """Fingerprints of rows on this rank."""
        prints = self._sink_prints
        rank = int(get_tp_group().rank_in_group)
        return {"rank": rank, "prints": dict(prints.prints), "failure": prints.failure}

    def _sink_leave(self) -> None:
        """Let signals end this process again."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


def _row_bytes(states: list[torch.Tensor], row: int) -> bytes:
    data: bytes = torch.stack([state[row] for state in states]).cpu().view(torch.uint8).numpy().tobytes()
    return data


def _id_bytes(token_ids: Any) -> bytes:
    data: bytes = token_ids.astype("<i8").tobytes()
    return data


def _die_with(process: int) -> None:
    """End this process as soon as the process of that descriptor has ended: a new one may be at work on the folder."""
    select.select([process], [], [])
    os._exit(1)


def _plain(receipts: list[Receipt]) -> list[list[Any]]:
    return [[found.index, found.rows, found.bytes, found.checksum, found.token_ids] for found in receipts]


def _failure(sink: Sink) -> list[str] | None:
    found = sink.failure
    if found is None:
        return None
    return ["storage" if isinstance(found, StorageError) else "engine", found.what, found.why, found.fix]
