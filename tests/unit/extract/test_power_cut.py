"""A power cut at any moment: what was not synced may be gone, torn, or there; what was recorded must hold.

A model of a disk follows every sync and makes up what a machine may find after the cut: names as of the last sync of
their folder or as they were, contents as of the last sync of their file with any part of what came after.
"""

import os
import random
import threading
from pathlib import Path

import pytest
import stub_extraction as stub

from draftkiln.errors import RunDirectoryError
from draftkiln.extract import drive, manifest, plan, samples, sink

pytestmark = pytest.mark.slow

COUNT = 120


class Disk:
    """What is durable of a run directory, and cuts."""

    def __init__(self, run, monkeypatch, forget=lambda _path: False):
        self.run, self.forget = run, forget
        self.content, self.names, self.cuts = {}, {}, []
        self.recorded = set()
        self.chance = random.Random(8)
        self.lock = threading.RLock()
        self.real = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, handle):
        self.real(handle)
        with self.lock:
            path = Path(f"/proc/self/fd/{handle}").readlink()
            if not path.is_relative_to(self.run) or self.forget(path):
                return
            if path.is_dir():
                self.names[path] = {file.name: file.stat().st_ino for file in path.iterdir() if file.is_file()}
            else:
                self.content[os.fstat(handle).st_ino] = Path(f"/proc/self/fd/{handle}").read_bytes()
            if self.chance.random() < 0.1:
                self.cut()

    def cut(self):
        """Keep what may be found if the power went now, beside what was recorded until then."""
        found = {}
        for folder in (self.run, self.run / samples.FOLDER):
            durable = {inode: name for name, inode in self.names.get(folder, {}).items()}
            for file in folder.iterdir():
                if not file.is_file():
                    continue
                inode = file.stat().st_ino
                name = self.chance.choice([durable.get(inode), file.name])
                if name is not None:
                    found[(folder / name).relative_to(self.run)] = self.torn(inode, file.read_bytes())
        self.cuts.append((found, frozenset(self.recorded)))

    def torn(self, inode, now):
        durable = self.content.get(inode, b"")
        if not now.startswith(durable):
            return durable
        rest = now[len(durable) :]
        kept = self.chance.randint(0, len(rest))
        # A file system may have the length of a file before its bytes.
        return durable + rest[:kept] + (bytes(len(rest) - kept) if rest and not durable else b"")


def extract(run, record=lambda _receipts: None):
    """Begin or go on, as the stage does."""
    folder, path = run / samples.FOLDER, run / manifest.FILE
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        manifest.create(path, stub.head(COUNT))
    todo = plan.compare(folder, manifest.read(path))
    plan.clear(folder, path, todo, lambda _line: None)
    prompts = ((index, stub.token_ids(index)) for index in todo.remaining)

    def keep(receipts):
        manifest.append(path, receipts)
        record(receipts)

    limits = drive.Limits(4 * stub.STEP_TOKENS, 16, stub.STEP_TOKENS)
    drive.drive(stub.LocalEngine(folder), prompts, limits, keep)


def cuts_of(run, monkeypatch, forget=lambda _path: False):
    monkeypatch.setattr(sink, "_SYNC_SECONDS", 0.005)
    monkeypatch.setattr(sink, "_SYNC_FILES", 8)
    monkeypatch.setattr(sink, "_UNSYNCED_FILES", 12)
    monkeypatch.setattr(drive, "_REPORT_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        disk = Disk(run, patch, forget)

        def record(receipts):
            with disk.lock:
                disk.recorded.update(receipt.index for receipt in receipts)
                if disk.chance.random() < 0.3:
                    disk.cut()

        extract(run, record)
        disk.cut()
    return disk.cuts


def after(folder, found, recorded):
    """Put the machine on again: what is found is checked, resumed, and checked again."""
    (folder / samples.FOLDER).mkdir(parents=True)
    for name, data in found.items():
        (folder / name).write_bytes(data)
    if (folder / manifest.FILE).exists() or recorded:
        receipts = manifest.read(folder / manifest.FILE).receipts
        assert recorded <= receipts.keys()
        for index in receipts:
            assert (folder / samples.FOLDER / samples.name(index)).read_bytes() == stub.file_bytes(index)
    extract(folder)
    assert sorted(manifest.read(folder / manifest.FILE).receipts) == list(range(COUNT))
    for index in range(COUNT):
        assert (folder / samples.FOLDER / samples.name(index)).read_bytes() == stub.file_bytes(index)


def after_all(folder, cuts):
    for number, (found, recorded) in enumerate(cuts):
        after(folder / f"after-{number}", found, recorded)


def test_a_power_cut_at_any_sync_loses_nothing_that_was_recorded(tmp_path, monkeypatch):
    cuts = cuts_of(tmp_path / "run", monkeypatch)
    assert len(cuts) > 5
    assert len({len(recorded) for _, recorded in cuts}) > 2
    after_all(tmp_path, cuts)


@pytest.mark.parametrize(
    "forget",
    [
        lambda path: path.name.startswith(".hs_"),
        lambda path: path.name == samples.FOLDER,
        lambda path: path.name == manifest.FILE,
    ],
    ids=["files", "folder", "manifest"],
)
def test_without_one_of_the_syncs_a_power_cut_does_harm(tmp_path, monkeypatch, forget):
    """The test above can fail."""
    cuts = cuts_of(tmp_path / "run", monkeypatch, forget)
    with pytest.raises((AssertionError, FileNotFoundError, RunDirectoryError)):
        after_all(tmp_path, cuts)
