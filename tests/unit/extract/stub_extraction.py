"""An extraction without vLLM: the real sink, ring, bookkeeping and loop over a stub that schedules and computes.

A driver and a worker in two processes, as with vLLM; the state of a row encodes its sample and position. Run as a
program it begins or goes on with the extraction in a folder:

    python stub_extraction.py RUN SAMPLES [--die driver|worker --at CALL --count N]

`--die` ends one of the two by SIGKILL at its N-th call of write, rename, fsync or append (a write is left half done).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import select
import signal
import sys
import threading
import time
from pathlib import Path

from draftkiln import lock
from draftkiln.errors import DraftkilnError
from draftkiln.extract import drive, manifest, plan, samples, signals, sink, steps
from draftkiln.extract.ring import Block, Ring

SLOTS, HIDDEN, STEP_TOKENS, BLOCK_ROWS = 2, 16, 64, 48
ROW = samples.row_bytes(SLOTS, HIDDEN)


def length(index: int) -> int:
    return random.Random(index).randint(1, 150)


def token_ids(index: int) -> list[int]:
    return [(index * 31 + position) % 1000 for position in range(length(index))]


def id_bytes(index: int) -> bytes:
    return b"".join(token.to_bytes(8, "little") for token in token_ids(index))


def row(index: int, position: int) -> bytes:
    return (index.to_bytes(4, "little") + position.to_bytes(4, "little")) * (ROW // 8)


def file_bytes(index: int) -> bytes:
    total = length(index)
    states = b"".join(row(index, position) for position in range(total))
    return samples.head_bytes(total, SLOTS, HIDDEN) + id_bytes(index) + states


def head(count: int) -> manifest.Head:
    return manifest.Head((1, 2), HIDDEN, "bfloat16", "float32", count, "d", "s", "p")


class StubWorker:
    """Computes steps of at most STEP_TOKENS rows, long samples in chunks, the requests of a step in any order."""

    def __init__(self, folder: Path, pause: float = 0.0) -> None:
        self.sink = sink.Sink(folder, SLOTS, HIDDEN, writers=3)
        memories = [bytearray(BLOCK_ROWS * ROW) for _ in range(4)]
        self.ring = Ring(Block(memory, memoryview(memory)) for memory in memories)
        self.kept = steps.Bookkeeping()
        self.queue: list[list[int]] = []
        self.pause = pause
        self.order = random.Random(3)

    def step(self) -> list[int]:
        batch, left, finished = [], STEP_TOKENS, []
        for request in self.queue:
            index, start = request
            count = min(left, length(index) - start)
            if count:
                batch.append((index, start, count))
                request[1] += count
                left -= count
            if request[1] == length(index):
                finished.append(index)
        self.queue = [request for request in self.queue if request[0] not in finished]
        self.order.shuffle(batch)
        rows, account, at = [], [], 0
        for index, start, count in batch:
            rows += [row(index, position) for position in range(start, start + count)]
            span = steps.Span(index, at, at + count, start, length(index), None)
            account.append((span, lambda index=index: id_bytes(index)))
            at += count
        spans = self.kept.new_rows(account)

        def copy(block, begin, end):
            block.memory[: (end - begin) * ROW] = b"".join(rows[begin:end])

        if self.sink.failure is None:
            steps.hand_over(spans, copy, self.ring, self.sink, rows=BLOCK_ROWS, row_bytes=ROW)
        time.sleep(self.pause)
        return finished


class LocalEngine:
    """The worker in this process."""

    def __init__(self, folder: Path) -> None:
        self.worker = StubWorker(folder)

    def add(self, index, ids):
        assert ids == token_ids(index)
        self.worker.queue.append([index, 0])

    def step(self):
        return self.worker.step()

    def report(self):
        return drive.Report(self.worker.sink.receipts(), self.worker.sink.failure)

    def close(self):
        return drive.Report(self.worker.sink.close(), self.worker.sink.failure)


class RemoteEngine:
    """The worker in a process of its own, spoken to over a pipe."""

    def __init__(self, folder: Path, die: tuple[str, int] | None) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=_serve, args=(theirs, folder, os.getpid(), die), daemon=True)
        self.process.start()
        theirs.close()

    def _ask(self, *words):
        try:
            self.pipe.send(words)
            return self.pipe.recv()
        except (EOFError, OSError):
            # As vLLM does, wait for an answer that never comes; the watch over the process must end it.
            while True:
                time.sleep(60)

    def add(self, index, ids):
        self._ask("add", index)

    def cancel(self, indices):
        self._ask("cancel", indices)

    def step(self):
        return self._ask("step")

    def report(self):
        return self._ask("report")

    def close(self):
        return self._ask("close")


def _serve(pipe, folder, driver, die):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    descriptor = os.pidfd_open(driver)

    def follow():
        select.select([descriptor], [], [])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    if die:
        arm(*die)
    worker = StubWorker(folder, pause=0.002)
    while True:
        word, *rest = pipe.recv()
        if word == "add":
            worker.queue.append([rest[0], 0])
            pipe.send(None)
        elif word == "cancel":
            worker.queue = [request for request in worker.queue if request[0] not in rest[0]]
            pipe.send(None)
        elif word == "step":
            pipe.send(worker.step())
        elif word == "report":
            pipe.send(drive.Report(worker.sink.receipts(), worker.sink.failure))
        else:
            pipe.send(drive.Report(worker.sink.close(), worker.sink.failure))


def arm(call: str, count: int) -> None:
    """End this process at the `count`-th such call."""
    left = [count]

    def now() -> bool:
        left[0] -= 1
        return left[0] == 0

    real_pwrite, real_fsync, real_rename, real_append = os.pwrite, os.fsync, Path.rename, manifest._append

    def pwrite(handle, data, offset):
        if call == "write" and now():
            real_pwrite(handle, data[: len(data) // 2], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return real_pwrite(handle, data, offset)

    def fsync(handle):
        if call == "fsync" and now():
            os.kill(os.getpid(), signal.SIGKILL)
        real_fsync(handle)

    def rename(self, target):
        if call == "rename" and now():
            real_rename(self, target)
            os.kill(os.getpid(), signal.SIGKILL)
        return real_rename(self, target)

    def append(path, lines):
        if call == "append" and now():
            path.write_bytes(path.read_bytes() + b'{"index": 1, "row')
            os.kill(os.getpid(), signal.SIGKILL)
        real_append(path, lines)

    os.pwrite, os.fsync, Path.rename, manifest._append = pwrite, fsync, rename, append


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("samples", type=int)
    parser.add_argument("--die", choices=("driver", "worker"))
    parser.add_argument("--at", choices=("write", "rename", "fsync", "append"))
    parser.add_argument("--count", type=int)
    arguments = parser.parse_args()
    run, die = arguments.run, (arguments.at, arguments.count)
    folder, path = run / samples.FOLDER, run / manifest.FILE
    folder.mkdir(parents=True, exist_ok=True)
    sink._SYNC_SECONDS, drive._REPORT_SECONDS = 0.02, 0.01
    with lock.held(run / "driver.lock"):
        with lock.held(run / sink.LOCK):
            pass
        if not path.exists():
            manifest.create(path, head(arguments.samples))
        todo = plan.compare(folder, manifest.read(path))
        plan.clear(folder, path, todo, print)
        ending = signals.Ending()
        with ending.while_starting():
            engine = RemoteEngine(folder, die if arguments.die == "worker" else None)
        print("worker", engine.process.pid, flush=True)
        if arguments.die == "driver":
            arm(*die)
        prompts = ((index, token_ids(index)) for index in todo.remaining)
        record = lambda receipts: manifest.append(path, receipts)  # noqa: E731 - one line at the place of its use
        try:
            with ending.while_running(), signals.watched([engine.process.pid]):
                drive.drive(engine, prompts, drive.Limits(4 * STEP_TOKENS, 16, STEP_TOKENS), record, ending.asked)
        finally:
            engine.process.kill()
    if ending.number:
        raise signals.StoppedError(ending.number, "stub")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except DraftkilnError as error:
        print(error, file=sys.stderr)
        raise SystemExit(int(error.code)) from None
