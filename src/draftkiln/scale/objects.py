"""A run on an object store, or any place that fsspec reaches: what is there, and copies that are read back."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import xxhash

from draftkiln import durable
from draftkiln.errors import DraftkilnError, NetworkError, StorageError, SystemMissingError, UsageError
from draftkiln.extract import samples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from draftkiln.extract.manifest import Receipt

_BLOCK = 1 << 20
SAMPLES = f"extract/{samples.FOLDER}"


@dataclass(frozen=True)
class Store:
    """A folder of a file system that fsspec knows.

    Attributes:
        url: of it, for messages.
        files: the file system.
        root: path of the folder in it.
    """

    url: str
    files: Any
    root: str

    @classmethod
    def at(cls, url: str) -> Store:
        """Reach a folder by its URL, such as `s3://bucket/folder`.

        Raises:
            SystemMissingError: the package for that kind of store is not installed.
            UsageError: there is no such kind.
        """
        import fsspec

        try:
            found, root = fsspec.core.url_to_fs(url, **({"auto_mkdir": True} if url.startswith("file://") else {}))
        except ImportError as error:
            raise SystemMissingError(
                f"nothing here reaches {url}", why=str(error), fix="for S3 and what speaks like it: draftkiln[s3]"
            ) from error
        except ValueError as error:
            raise UsageError(
                f"{url} is no place that fsspec knows", why=str(error), fix="write s3://BUCKET/FOLDER"
            ) from error
        return cls(url, found, root.rstrip("/"))

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of every file in `folder` by its name."""
        with self._told(folder):
            self.files.invalidate_cache()
            try:
                listed = self.files.ls(f"{self.root}/{folder}", detail=True)
            except FileNotFoundError:
                return {}
            return {entry["name"].rsplit("/", 1)[-1]: entry["size"] for entry in listed if entry["type"] == "file"}

    def put_sample(self, receipt: Receipt, source: Path) -> None:
        """Copy the file of a sample there and read it back.

        Raises:
            StorageError: what arrived is not what the receipt says; it is taken away again.
        """
        name = f"{SAMPLES}/{samples.name(receipt.index)}"
        with self._told(name):
            self.files.put_file(str(source), f"{self.root}/{name}")
        if self.checksum(name) != receipt.checksum:
            with self._told(name):
                self.files.rm_file(f"{self.root}/{name}")
            raise StorageError(
                f"{self.url}/{name} is not what its receipt says",
                why=f"{source} was altered, or the way there alters files",
                fix="look at that file with `draftkiln validate --headers-only`; run the same command again",
            )

    def get_sample(self, receipt: Receipt, folder: Path) -> None:
        """Copy the file of a sample from there: durable, and under its name only when it is what its receipt says.

        Raises:
            StorageError: it is not.
        """
        name = f"{SAMPLES}/{samples.name(receipt.index)}"
        temporary = folder / samples.temporary(receipt.index)
        with self._told(name):
            self.files.get_file(f"{self.root}/{name}", str(temporary))
        if samples.checksum(temporary) != receipt.checksum:
            temporary.unlink()
            raise StorageError(f"{self.url}/{name} is not what its receipt says", fix="copy it there again")
        with durable.storage_errors(temporary):
            durable.sync_file(temporary)
            temporary.rename(folder / samples.name(receipt.index))

    def put(self, name: str, data: bytes) -> str:
        """Write a small file and read it back; its sha256."""
        digest = hashlib.sha256(data).hexdigest()
        with self._told(name):
            self.files.pipe_file(f"{self.root}/{name}", data)
        if hashlib.sha256(self.get(name)).hexdigest() != digest:
            raise StorageError(f"{self.url}/{name} did not arrive as it was sent", fix="run the same command again")
        return digest

    def get(self, name: str) -> bytes:
        """Read a small file."""
        with self._told(name):
            data: bytes = self.files.cat_file(f"{self.root}/{name}")
        return data

    def checksum(self, name: str) -> str:
        """Checksum of a file there, as a receipt carries it; read in blocks."""
        digest = xxhash.xxh3_128()
        with self._told(name), self.files.open(f"{self.root}/{name}", "rb") as file:
            for block in _blocks(file):
                digest.update(block)
        return digest.hexdigest()

    @contextlib.contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Turn what a store may raise into an error that names the file."""
        try:
            yield
        except FileNotFoundError as error:
            raise StorageError(f"{self.url}/{name} is not there", fix="copy it there first") from error
        except OSError as error:
            raise StorageError(f"{self.url}/{name} cannot be used", why=str(error), fix="look at its rights") from error
        except DraftkilnError:
            raise
        except Exception as error:
            raise NetworkError(
                f"{self.url}/{name} cannot be reached",
                why=f"{type(error).__name__}: {error}",
                fix="run the same command again: what has arrived is not copied twice",
            ) from error


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block
