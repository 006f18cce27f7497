"""`draftkiln copy`: an extracted run to an object store or from one; samples are compared with receipts on arrival."""

from __future__ import annotations

import hashlib
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable, rundir
from draftkiln.errors import DraftkilnError, ExitCode, ProblemsError, RunDirectoryError, StorageError, UsageError
from draftkiln.extract import manifest, samples, top_tokens
from draftkiln.scale.hosts import PER_HOST
from draftkiln.scale.objects import SAMPLES, Store
from draftkiln.scale.publish import PLACES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from draftkiln.extract.manifest import Receipt

RECORD = "copied.json"
"""File at a store that is written last: the sha256 of every small file; without it the copy is not whole."""
SCHEMA_VERSION = 1
_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two places."""
    parser.add_argument("source", metavar="FROM", help="run directory with a finished extraction, or a URL")
    parser.add_argument("target", metavar="TO", help="URL such as s3://bucket/folder, or run directory to make")
    parser.add_argument("--streams", type=int, default=8, metavar="N", help="files at a time (default: 8)")
    parser.add_argument(
        "--check-existing",
        choices=("quick", "full"),
        default="quick",
        help="compare samples that are there already by size (quick) or also by checksum (full)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Copy what is not there yet.

    Raises:
        UsageError: not exactly one of the two places is a URL.
    """
    there, here = "://" in arguments.source, "://" in arguments.target
    if there == here or arguments.streams < 1:
        raise UsageError("one place must be a run directory, the other a URL, and --streams 1 or more")
    full = arguments.check_existing == "full"
    if here:
        return _push(Path(arguments.source), Store.at(arguments.target), arguments.streams, full=full)
    return _fetch(Store.at(arguments.source), Path(arguments.target), arguments.streams, full=full)


def _push(run: Path, store: Store, streams: int, *, full: bool) -> int:
    record = rundir.RunDirectory(run).require("extract")
    found = manifest.read(run / "extract" / manifest.FILE)
    sizes = store.sizes(SAMPLES)
    missing = [receipt for receipt in found.receipts.values() if not _there(store, sizes, receipt, full=full)]
    places = _Places(run)
    sources = {receipt.index: path for receipt in missing if (path := places.file(receipt.index)) is not None}
    todo = [receipt for receipt in missing if receipt.index in sources]
    _each(lambda receipt: store.put_sample(receipt, sources[receipt.index]), todo, streams)
    elsewhere = len(missing) - len(todo)
    size = sum(receipt.bytes for receipt in todo) / 1e9
    print(f"copy: {len(todo)} samples, {size:.2f} GB, checksums compared at {store.url}")
    if elsewhere:
        print(f"copy: {elsewhere} samples are not on host {socket.gethostname()}; run this on the others as well")
        return ExitCode.OK
    digests = {name: store.put(name, data) for name, data in _small_files(run, record)}
    store.put(RECORD, json.dumps({"schema_version": SCHEMA_VERSION, "files": digests}, indent=2).encode())
    print(f"copy: all {len(found.receipts)} samples and their manifest are at {store.url}")
    return ExitCode.OK


def _there(store: Store, sizes: dict[str, int], receipt: Receipt, *, full: bool) -> bool:
    name = samples.name(receipt.index)
    if sizes.get(name) != receipt.bytes:
        return False
    return not full or store.checksum(f"{SAMPLES}/{name}") == receipt.checksum


def _small_files(run: Path, record: dict[str, Any]) -> Iterable[tuple[str, bytes]]:
    """All of a run up to extraction but its samples, so that what is fetched is one that validate and train take."""
    inputs = {key: value for key, value in record["inputs"].items() if key not in PER_HOST}
    data = (json.dumps({**record, "inputs": inputs}, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
    yield "extract/stage.json", data
    yield f"extract/{manifest.FILE}", (run / "extract" / manifest.FILE).read_bytes()
    answers = run / "extract" / top_tokens.FILE
    if answers.exists():
        yield f"extract/{top_tokens.FILE}", answers.read_bytes()
    yield "run.json", (run / "run.json").read_bytes()
    for file in sorted((run / "prepare").rglob("*")):
        if file.is_file():
            yield str(file.relative_to(run)), file.read_bytes()


def _fetch(store: Store, run: Path, streams: int, *, full: bool) -> int:
    if RECORD not in store.sizes(""):
        raise StorageError(
            f"{store.url} holds no whole run", why=f"it has no {RECORD}", fix="copy the run there to its end first"
        )
    digests: dict[str, str] = json.loads(store.get(RECORD))["files"]
    for name, digest in digests.items():
        data = store.get(name)
        if hashlib.sha256(data).hexdigest() != digest:
            raise StorageError(f"{store.url}/{name} has other bytes than were copied there", fix="copy it there again")
        _write(run, name, data)
    found = manifest.read(run / "extract" / manifest.FILE)
    folder = run / SAMPLES
    folder.mkdir(parents=True, exist_ok=True)
    todo = [receipt for receipt in found.receipts.values() if not _here(folder, receipt, full=full)]
    _each(lambda receipt: store.get_sample(receipt, folder), todo, streams)
    durable.sync_folder(folder)
    # The record that makes the stage finished comes last.
    (run / "extract" / ".stage.json").rename(run / "extract" / "stage.json")
    durable.sync_folder(run / "extract")
    print(f"copy: {len(todo)} of {len(found.receipts)} samples fetched into {run}, all as their receipts say")
    return ExitCode.OK


def _write(run: Path, name: str, data: bytes) -> None:
    path = run / name
    if not path.resolve().is_relative_to(run.resolve()):
        raise StorageError(f"{name} lies outside of the run", fix="do not fetch from there")
    if name == "extract/stage.json":
        durable.write_bytes(run / "extract" / ".stage.json", data)
    elif path.exists() and path.read_bytes() != data:
        raise RunDirectoryError(f"{path} is another one than that at the store", fix="fetch into a new run directory")
    else:
        durable.write_bytes(path, data)


def _here(folder: Path, receipt: Receipt, *, full: bool) -> bool:
    path = folder / samples.name(receipt.index)
    if not path.exists() or path.stat().st_size != receipt.bytes:
        return False
    return not full or samples.checksum(path) == receipt.checksum


def _each(copy: Callable[[Receipt], None], receipts: Iterable[Receipt], streams: int) -> None:
    """Copy each, several at a time; go on after a bad one, and tell all that were.

    Raises:
        ProblemsError: what was wrong with which.
    """
    problems: list[DraftkilnError] = []

    def one(receipt: Receipt) -> None:
        try:
            copy(receipt)
        except DraftkilnError as error:
            problems.append(error)

    with ThreadPoolExecutor(streams) as pool:
        for _ in pool.map(one, receipts):
            pass
    if problems:
        more = len(problems) - _SHOWN
        shown = problems[:_SHOWN]
        raise ProblemsError([*shown, StorageError(f"and {more} more")] if more > 0 else shown)


class _Places:
    """Where samples of a run lie on this host."""

    def __init__(self, run: Path) -> None:
        self._folder = run / SAMPLES
        self._host: dict[int, str] = {}
        path = run / "extract" / PLACES
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            if line.endswith("}"):
                place = json.loads(line)
                for start, stop in place["indices"]:
                    self._host.update(dict.fromkeys(range(start, stop), place["folder"]))

    def file(self, index: int) -> Path | None:
        """File of a sample; None when it is not on this host."""
        for folder in (self._folder, self._host.get(index)):
            if folder is not None and (path := Path(folder) / samples.name(index)).exists():
                return path
        return None
