"""The sink: rows of hidden states in, durable sample files and their receipts out.

The worker hands over the rows of a step in blocks of host memory; writer threads lay them at their place in the files
of their samples while the next step computes. A receipt is handed out only after its file was synced under its final
name, so whoever records receipts records the truth. After the first failure nothing more is written, and the failure is
kept for whoever asks.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import xxhash

from draftkiln import durable, lock
from draftkiln.errors import DraftkilnError, EngineError, StorageError
from draftkiln.extract import samples
from draftkiln.extract.manifest import Receipt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from draftkiln.extract.ring import Rows

LOCK = "sink.lock"
_SYNC_SECONDS = 1.0
_SYNC_FILES = 64
_SYNC_BYTES = 1 << 28
_SYNCERS = 4
"""Syncs at a time: one by one, each file's end and the journal's are waited for with the disk idle."""
_UNSYNCED_FILES = 512


@dataclass
class _Open:
    """A sample that is being written."""

    handle: int
    temporary: Path
    digest: xxhash.xxh3_128
    token_ids: str = ""
    scales: bytearray = field(default_factory=bytearray)
    rows: int = 0
    waiting: dict[int, Rows] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Sink:
    """Writer threads over one folder of samples.

    Rows of a sample must be put in their order, all rows of all steps exactly once.

    Args:
        folder: where the files go; another sink on it is waited for.
        slots: captured layers of a sample.
        hidden: size of a state.
        writers: threads that write.
        cpus: that they may run on; default: those of the calling thread.
        dtype: that states are stored in.

    Attributes:
        failure: the first thing that went wrong, or None.
    """

    def __init__(
        self,
        folder: Path,
        slots: int,
        hidden: int,
        writers: int,
        cpus: set[int] | None = None,
        dtype: str = "bfloat16",
    ) -> None:
        self.failure: DraftkilnError | None = None
        self._folder, self._shape = folder, (slots, hidden, dtype)
        self._row_bytes = samples.row_bytes(*self._shape)
        self._held = contextlib.ExitStack()
        self._held.enter_context(lock.held(folder.parent / LOCK))
        self._tasks: queue.SimpleQueue[Rows | None] = queue.SimpleQueue()
        self._open: dict[int, _Open] = {}
        self._open_lock = threading.Lock()
        self._settling = threading.Condition()
        self._written: list[tuple[_Open, Receipt]] = []
        self._unsynced = 0
        self._written_bytes = 0
        self._receipts: list[Receipt] = []
        self._stopping = False
        self._cpus = cpus
        self._writers = [threading.Thread(target=self._write_loop, daemon=True) for _ in range(writers)]
        self._syncer = threading.Thread(target=self._sync_loop, daemon=True)
        self._syncs = ThreadPoolExecutor(_SYNCERS)
        for thread in (*self._writers, self._syncer):
            thread.start()

    def put(self, rows: Rows) -> None:
        """Queue rows for writing; their block is given back when they are written, or dropped after a failure."""
        self._tasks.put(rows)

    def fail(self, cause: BaseException) -> None:
        """Write nothing more; the first cause is kept."""
        if self.failure is None:
            self.failure = _told(cause, self._folder)
        with self._settling:
            self._settling.notify_all()

    def receipts(self) -> list[Receipt]:
        """Receipts of samples that became durable since the last call."""
        with self._settling:
            found, self._receipts = self._receipts, []
        return found

    def close(self) -> list[Receipt]:
        """Write and sync all that was put, stop the threads and return the last receipts.

        A sample of which rows are missing is removed.
        """
        for _ in self._writers:
            self._tasks.put(None)
        for thread in self._writers:
            thread.join()
        with self._settling:
            self._stopping = True
            self._settling.notify_all()
        self._syncer.join()
        self._syncs.shutdown()
        for sample in self._open.values():
            os.close(sample.handle)
            with contextlib.suppress(OSError):
                sample.temporary.unlink()
        self._open.clear()
        self._held.close()
        return self.receipts()

    def _write_loop(self) -> None:
        if self._cpus:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self._cpus)
        while (rows := self._tasks.get()) is not None:
            if self.failure is not None:
                rows.block.done()
                continue
            try:
                self._accept(rows)
            except BaseException as cause:  # noqa: BLE001 - kept for whoever asks
                self.fail(cause)

    def _accept(self, rows: Rows) -> None:
        """Write rows whose turn it is, and those that waited for them; keep others until it is."""
        try:
            sample = self._sample(rows)
        except BaseException:
            rows.block.done()
            raise
        ready: Rows | None = None
        with sample.lock:
            if rows.start == sample.rows:
                ready = rows
            else:
                sample.waiting[rows.start] = rows
        while ready is not None:
            if self._write(sample, ready):
                return
            with sample.lock:
                ready = sample.waiting.pop(sample.rows, None)

    def _sample(self, rows: Rows) -> _Open:
        with self._open_lock:
            sample = self._open.get(rows.index)
            if sample is None:
                temporary = self._folder / samples.temporary(rows.index)
                handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
                sample = _Open(handle, temporary, xxhash.xxh3_128())
                self._open[rows.index] = sample
            return sample

    def _write(self, sample: _Open, rows: Rows) -> bool:
        """Write rows at their place; True when they were the last of their sample."""
        head = samples.head_bytes(rows.total, *self._shape)
        start = len(head) + rows.total * samples.TOKEN_ID_BYTES + rows.start * self._row_bytes
        count = len(rows.data) // self._row_bytes
        try:
            rows.block.ready()
            if rows.start == 0:
                if rows.token_ids is None:
                    raise EngineError(f"sample {rows.index}: its first rows came without token ids")
                sample.token_ids = samples.token_ids_checksum(rows.token_ids)
                sample.digest.update(head + rows.token_ids)
                _write_at(sample.handle, [head + rows.token_ids, rows.data], 0)
            else:
                _write_at(sample.handle, [rows.data], start)
            sample.digest.update(rows.data)
            sample.scales += rows.scales
        finally:
            rows.block.done()
        with sample.lock:
            sample.rows += count
            finished = sample.rows == rows.total
        if finished:
            end = start + len(rows.data)
            size = end + len(sample.scales)
            _write_at(sample.handle, [sample.scales], end)
            sample.digest.update(sample.scales)
            self._finish(sample, Receipt(rows.index, rows.total, size, sample.digest.hexdigest(), sample.token_ids))
        return finished

    def _finish(self, sample: _Open, receipt: Receipt) -> None:
        with self._open_lock:
            del self._open[receipt.index]
        with self._settling:
            # An open file each: without a limit a fast engine on a slow disk would run out of descriptors.
            self._settling.wait_for(lambda: self._unsynced < _UNSYNCED_FILES or self.failure is not None)
            self._written.append((sample, receipt))
            self._unsynced += 1
            self._written_bytes += receipt.bytes
            if self._much_waits():
                self._settling.notify_all()

    def _sync_loop(self) -> None:
        stopping = False
        while not stopping:
            with self._settling:
                self._settling.wait_for(lambda: self._stopping or self._much_waits(), _SYNC_SECONDS)
                stopping = self._stopping
                written, self._written, self._written_bytes = self._written, [], 0
            try:
                self._settle(written)
            except BaseException as cause:  # noqa: BLE001 - kept for whoever asks
                self.fail(cause)
            with self._settling:
                self._unsynced -= len(written)
                self._settling.notify_all()

    def _much_waits(self) -> bool:
        return len(self._written) >= _SYNC_FILES or self._written_bytes >= _SYNC_BYTES

    def _settle(self, written: list[tuple[_Open, Receipt]]) -> None:
        """Make written files durable under their final names, then tell them."""
        if not written:
            return
        try:
            if self.failure is not None:
                return
            # Every sync is waited for, also behind one that failed: its file is closed below.
            failed = [error for error in self._syncs.map(_sync, [sample.handle for sample, _ in written]) if error]
            if failed:
                raise failed[0]
            for sample, receipt in written:
                sample.temporary.rename(self._folder / samples.name(receipt.index))
            durable.sync_folder(self._folder)
        finally:
            for sample, _ in written:
                os.close(sample.handle)
        with self._settling:
            self._receipts.extend(receipt for _, receipt in written)


def _told(cause: BaseException, folder: Path) -> DraftkilnError:
    """The error that a person meets for `cause`."""
    if isinstance(cause, DraftkilnError):
        return cause
    if isinstance(cause, OSError):
        return StorageError(
            f"cannot write {cause.filename or folder}",
            why=f"{cause.strerror} (errno {cause.errno})",
            fix="make room or make the place writable, then run the same command again: it goes on where it stopped",
        )
    return EngineError(f"the sink failed: {type(cause).__name__}: {cause}")


def _sync(handle: int) -> OSError | None:
    try:
        os.fsync(handle)
    except OSError as error:
        return error
    return None


def _write_at(handle: int, parts: Sequence[bytes | bytearray | memoryview], offset: int) -> None:
    """Write `parts` one after the other at `offset`, however many calls it takes, and have the disk begin with them.

    By itself the kernel begins only when a tenth of memory waits or a file is synced, so a disk would be idle before.
    """
    start = offset
    for part in parts:
        view = memoryview(part)
        while view:
            count = os.pwrite(handle, view, offset)
            view = view[count:]
            offset += count
    if offset > start:
        with contextlib.suppress(OSError):
            os.posix_fadvise(handle, start, offset - start, os.POSIX_FADV_DONTNEED)
