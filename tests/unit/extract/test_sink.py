"""The sink: files as safetensors writes them, receipts only of what is durable, and failures that are told."""

import errno
import itertools
import os
import shutil
import stat
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import stub_extraction as stub
from safetensors import TensorSpec, serialize

from draftkiln.errors import StorageError
from draftkiln.extract import drive, manifest, plan, samples, sink
from draftkiln.extract.ring import Block, Ring, Rows


def extract(folder, indices, record=None):
    """Run the stub over `indices`; the receipts."""
    folder.mkdir(exist_ok=True)
    receipts = []
    prompts = ((index, stub.token_ids(index)) for index in indices)
    drive.drive(
        stub.LocalEngine(folder),
        prompts,
        drive.Limits(4 * stub.STEP_TOKENS, 16, stub.STEP_TOKENS),
        record or receipts.extend,
    )
    return receipts


@pytest.fixture
def folder(tmp_path):
    return tmp_path / samples.FOLDER


def spec(dtype, shape, data):
    return TensorSpec(dtype=dtype, shape=shape, data_ptr=np.frombuffer(data, np.uint8).ctypes.data, data_len=len(data))


@pytest.mark.parametrize("tokens", [1, 7, 100, 5000])
def test_the_file_is_byte_for_byte_what_the_safetensors_library_writes(tokens):
    ids, states = os.urandom(8 * tokens), os.urandom(tokens * stub.ROW)
    library = serialize(
        {
            "hidden_states": spec("bfloat16", [tokens, stub.SLOTS, stub.HIDDEN], states),
            "token_ids": spec("int64", [tokens], ids),
        }
    )
    ours = samples.head_bytes(tokens, stub.SLOTS, stub.HIDDEN) + ids + states
    assert bytes(library) == ours
    assert samples.size(tokens, stub.SLOTS, stub.HIDDEN) == len(ours)


@pytest.mark.parametrize("count", [1, 32, 33, 65])
def test_case_4_every_sample_is_written_with_its_own_rows(folder, count):
    receipts = extract(folder, range(count))
    assert sorted(receipt.index for receipt in receipts) == list(range(count))
    assert {path.name for path in folder.iterdir()} == {samples.name(index) for index in range(count)}
    for receipt in receipts:
        path = folder / samples.name(receipt.index)
        assert path.read_bytes() == stub.file_bytes(receipt.index)
        assert receipt.checksum == samples.checksum(path)
        assert (receipt.rows, receipt.bytes) == (stub.length(receipt.index), path.stat().st_size)


def test_a_receipt_is_given_only_after_sync_of_the_file_rename_and_sync_of_the_folder(folder, monkeypatch):
    """What a power cut may leave: files count as written only up to their last fsync, names up to the folder's."""
    synced, named = {}, set()
    real = os.fsync

    def fsync(handle):
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path.is_dir():
            named.update(file.name for file in path.iterdir())
        else:
            synced[os.fstat(handle).st_ino] = os.fstat(handle).st_size
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(sink, "_SYNC_SECONDS", 0.01)
    monkeypatch.setattr(drive, "_REPORT_SECONDS", 0.0)
    told = []

    def record(receipts):
        for receipt in receipts:
            path = folder / samples.name(receipt.index)
            assert path.name in named
            assert synced[path.stat().st_ino] == receipt.bytes
        told.extend(receipts)

    extract(folder, range(150), record)
    assert len(told) == 150


def test_the_disk_begins_with_every_byte_as_soon_as_it_is_written(folder, monkeypatch):
    begun = {}
    real = os.posix_fadvise

    def fadvise(handle, start, length, advice):
        assert advice == os.POSIX_FADV_DONTNEED
        begun.setdefault(os.fstat(handle).st_ino, []).append((start, start + length))
        real(handle, start, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", fadvise)
    for receipt in extract(folder, range(20)):
        spans = sorted(begun[(folder / samples.name(receipt.index)).stat().st_ino])
        assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
        assert spans[-1][1] == receipt.bytes


def of_samples(monkeypatch, sync):
    """Let `sync(handle, number)` stand before the syncs of samples' files, which are numbered as they begin."""
    real, numbers = os.fsync, itertools.count()

    def fsync(handle):
        if stat.S_ISREG(os.fstat(handle).st_mode):
            sync(handle, next(numbers))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)


def test_several_files_are_synced_at_a_time(folder, monkeypatch):
    together = threading.Barrier(sink._SYNCERS, timeout=30)
    of_samples(monkeypatch, lambda _, number: together.wait() if number < sink._SYNCERS else None)
    assert len(extract(folder, range(20))) == 20


def test_no_file_is_closed_while_it_is_synced_also_behind_one_that_failed(folder, monkeypatch):
    open_still = []

    def sync(handle, number):
        if number == 0:
            raise OSError(errno.EIO, "broken")
        time.sleep(0.2)
        open_still.append(Path(f"/proc/self/fd/{handle}").readlink())

    of_samples(monkeypatch, sync)
    with pytest.raises(StorageError, match="errno 5"):
        extract(folder, range(8))
    assert len(set(open_still)) == 7


def fails(monkeypatch, name, code, after):
    """Let the `after`-th call of this function of `os` and all later ones fail in the threads of the sink."""
    real, calls = getattr(os, name), []

    def failing(*arguments, **more):
        calls.append(1)
        if len(calls) >= after:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **more)

    monkeypatch.setattr(sink.os, name, failing)
    return calls


def failure(folder, damage, recorded):
    """The error of an extraction over 400 samples, damaged after its sink has begun."""
    folder.mkdir()
    engine = stub.LocalEngine(folder)
    damage()
    prompts = ((index, stub.token_ids(index)) for index in range(400))
    with pytest.raises(StorageError, match="cannot write") as caught:
        drive.drive(engine, prompts, drive.Limits(4 * stub.STEP_TOKENS, 16, stub.STEP_TOKENS), recorded.extend)
    engine.worker.sink.close()
    return caught.value


@pytest.mark.parametrize(
    ("name", "code", "after"), [("pwrite", errno.ENOSPC, 3), ("pwrite", errno.EIO, 40), ("open", errno.EROFS, 5)]
)
def test_case_29_a_failing_disk_ends_it_with_the_cause_and_can_be_resumed(folder, monkeypatch, name, code, after):
    recorded = []
    with monkeypatch.context() as patch:
        error = failure(folder, lambda: fails(patch, name, code, after), recorded)
    assert os.strerror(code) in error.why
    done = {receipt.index for receipt in recorded}
    for path in folder.glob("hs_*"):
        assert path.read_bytes() == stub.file_bytes(samples.index_of(path.name))
    assert extract(folder, [index for index in range(400) if index not in done])


def test_a_sync_that_fails_gives_no_receipts(folder, monkeypatch):
    recorded = []
    failure(folder, lambda: fails(monkeypatch, "fsync", errno.EIO, 1), recorded)
    assert recorded == []
    assert list(folder.glob("hs_*")) == []


def test_a_vanished_folder_ends_it(folder):
    assert "No such file" in failure(folder, lambda: shutil.rmtree(folder), []).why


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ENOSPC])
def test_a_manifest_that_cannot_be_written_ends_it_and_what_was_not_recorded_is_made_again(folder, monkeypatch, code):
    folder.mkdir()
    path = folder.parent / manifest.FILE
    manifest.create(path, stub.head(200))
    real, appends = manifest.os.fsync, []

    def fsync(handle):
        if Path(f"/proc/self/fd/{handle}").readlink() == path:
            appends.append(1)
            if len(appends) == 1:  # a later one may be the last on a slow machine
                raise OSError(code, os.strerror(code))
        real(handle)

    monkeypatch.setattr(sink, "_SYNC_SECONDS", 0.005)
    monkeypatch.setattr(drive, "_REPORT_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        engine = stub.LocalEngine(folder)
        prompts = ((index, stub.token_ids(index)) for index in range(200))
        limits = drive.Limits(4 * stub.STEP_TOKENS, 16, stub.STEP_TOKENS)
        with pytest.raises(StorageError) as caught:
            drive.drive(engine, prompts, limits, lambda found: manifest.append(path, found))
        engine.worker.sink.close()
    assert os.strerror(code) in caught.value.why
    todo = plan.compare(folder, manifest.read(path))
    assert todo.remaining
    receipts = extract(folder, todo.remaining)
    manifest.append(path, receipts)
    assert plan.compare(folder, manifest.read(path), full=True).remaining == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 200 kB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "draftkiln-test", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


def test_case_29_a_disk_that_is_really_full_ends_it_with_the_cause_and_room_lets_it_go_on(small_disk, tmp_path):
    folder, recorded = small_disk / samples.FOLDER, []
    error = failure(folder, lambda: None, recorded)
    assert "No space left on device" in error.why
    done = {receipt.index for receipt in recorded}
    for path in folder.glob("hs_*"):
        assert path.read_bytes() == stub.file_bytes(samples.index_of(path.name))
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert len(extract(folder, [index for index in range(400) if index not in done])) == 400 - len(done)


def test_a_mount_that_vanishes_ends_it(small_disk):
    folder = small_disk / samples.FOLDER
    error = failure(folder, lambda: subprocess.run(["umount", "-l", str(small_disk)], check=True), [])
    assert "No such file" in error.why


def test_states_in_fp8_are_laid_with_their_scales_at_the_end_whatever_the_chunks(folder):
    folder.mkdir()
    rows, hidden = 7, 8
    codes = np.random.default_rng(0).integers(0, 255, size=(rows, 2, hidden), dtype=np.uint8).tobytes()
    scales, ids = np.arange(1, rows + 1, dtype="<f4").tobytes(), np.arange(rows, dtype="<i8").tobytes()
    found = sink.Sink(folder, 2, hidden, writers=2, dtype=samples.FP8)
    ring = Ring(Block(bytearray(256), memoryview(bytearray(256))) for _ in range(3))
    for first, last in ((0, 3), (3, 4), (4, 7)):
        block = ring.take(lambda: False)
        block.lend(1)
        data = memoryview(codes)[first * 2 * hidden : last * 2 * hidden]
        part = memoryview(scales)[4 * first : 4 * last]
        found.put(Rows(3, first, data, rows, ids if first == 0 else None, block, part))
    (receipt,) = found.close()
    path = folder / samples.name(3)
    assert path.read_bytes() == samples.head_bytes(rows, 2, hidden, samples.FP8) + ids + codes + scales
    assert (receipt.bytes, receipt.checksum) == (path.stat().st_size, samples.checksum(path))
    assert receipt.bytes == samples.size(rows, 2, hidden, samples.FP8)
    assert samples.header(path)[samples.SCALES] == {
        "dtype": "F32", "shape": [rows, 1, 1], "data_offsets": [rows * 24, rows * 28],
    }  # fmt: skip


def test_after_a_failure_nobody_waits_for_a_block(folder, monkeypatch):
    folder.mkdir()
    worker = stub.StubWorker(folder)
    fails(monkeypatch, "pwrite", errno.ENOSPC, 1)
    worker.queue = [[index, 0] for index in range(100)]
    began = time.monotonic()
    while worker.queue:
        worker.step()
    assert time.monotonic() - began < 10
    assert isinstance(worker.sink.failure, StorageError)
    worker.sink.close()


@pytest.mark.parametrize("much", [True, False])
def test_the_disk_has_work_as_soon_as_much_waits(folder, monkeypatch, much):
    """On a GPU the first second of an extraction to disk went by before anything was synced."""
    folder.mkdir()
    monkeypatch.setattr(sink, "_SYNC_SECONDS", 60.0)
    monkeypatch.setattr(sink, "_SYNC_BYTES", 1 if much else 1 << 40)
    worker = stub.StubWorker(folder)
    worker.queue = [[0, 0]]
    while worker.queue:
        worker.step()
    latest = time.monotonic() + (20 if much else 0.5)
    found = []
    while not found and time.monotonic() < latest:
        found = worker.sink.receipts()
        time.sleep(0.01)
    assert len(found) == much
    assert len(worker.sink.close()) == (not much)


def test_a_slow_disk_holds_the_engine_back_instead_of_filling_memory(folder, monkeypatch):
    folder.mkdir()
    real = os.pwrite
    taken = []

    def slow(*arguments):
        time.sleep(0.002)
        return real(*arguments)

    monkeypatch.setattr(sink.os, "pwrite", slow)
    worker = stub.StubWorker(folder)
    worker.queue = [[index, 0] for index in range(60)]
    while worker.queue:
        worker.step()
        taken.append(worker.sink._tasks.qsize())
    assert max(taken) <= 4 * stub.BLOCK_ROWS
    assert len(worker.sink.close()) == 60


def test_two_sinks_never_work_on_one_folder(folder):
    folder.mkdir()
    first = stub.StubWorker(folder).sink
    import fcntl

    with (folder.parent / sink.LOCK).open("r+") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    first.close()
    stub.StubWorker(folder).sink.close()


def test_a_block_comes_back_after_its_last_user():
    memory = bytearray(4)
    ring = Ring([Block(memory, memoryview(memory))])
    block = ring.take(lambda: False)
    block.lend(2)
    block.done()
    waited = iter([False, True])
    assert ring.take(lambda: next(waited)) is None
    block.done()
    assert ring.take(lambda: False) is block
