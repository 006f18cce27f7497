"""A pinned revision of a model on the Hugging Face Hub: every file verified, interrupted downloads gone on with.

Weights carry their sha256 on the Hub (Git LFS), all other files their Git blob id; both are checked after the download.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import NetworkError, StorageError, SystemMissingError, TargetError, UsageError
from draftkiln.target.record import NAME, write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

_REVISION = re.compile(r"[0-9a-f]{40}")
_WANTED = {".safetensors", ".json", ".jinja", ".txt", ".py", ".model", ".tiktoken"}
"""Suffixes of what an engine loads; other formats of the same weights, pictures and papers stay on the Hub."""
_TERMS = re.compile(r"(README\.md|(LICEN[SC]E|COPYING|NOTICE)[^/]*)", re.IGNORECASE)
"""Files beside the weights that say under which terms they are given."""
_BLOCK = 1 << 20
_TRANSPORTS = {"httpcore", "httpx", "httpx2", "requests", "urllib3"}
"""Packages whose errors mean that the connection failed; huggingface_hub lets them through, each release another's."""


@dataclass(frozen=True)
class HubFile:
    """A file of a revision, as the Hub describes it."""

    name: str
    size: int
    sha256: str | None
    """Of its contents, for files in Git LFS."""
    blob_id: str | None
    """Git's SHA-1 of its contents with their length before them, for all other files."""


def wanted(name: str) -> bool:
    """Whether a file of a repository is fetched: what an engine loads, and what states the licence terms."""
    return PurePosixPath(name).suffix in _WANTED or _TERMS.fullmatch(name) is not None


def checked_revision(revision: str) -> str:
    """`revision`, if it is a whole commit.

    Raises:
        UsageError: it is a branch, a tag or a short commit, which can come to mean other files.
    """
    if _REVISION.fullmatch(revision):
        return revision
    raise UsageError(
        f"--revision {revision}: not a commit of 40 hex digits",
        why="a branch or tag can come to mean other files",
        fix="copy the commit from the model's page, under Files and versions",
    )


def fetch_revision(
    repository: str,
    revision: str,
    folder: Path,
    *,
    token: str | None = None,
    announce: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Fetch the files of `repository` at `revision` that an engine loads, and its terms; gives their record.

    Files that are whole already stay, begun ones go on. `target.json` appears when every file is verified.

    Raises:
        NetworkError: no network is allowed, the Hub cannot be reached, or a file does not have its hash.
        TargetError: the repository or revision is not there or not open to this token, or has no safetensors.
        StorageError: the files do not fit.
        SystemMissingError: huggingface_hub is not installed here.
    """
    refuse_offline(repository)
    if importlib.util.find_spec("huggingface_hub") is None:
        raise SystemMissingError(
            "cannot fetch from the Hub: huggingface_hub is not installed here",
            fix="run the command in the environment of a stack",
        )
    from huggingface_hub import snapshot_download

    with _hub_errors(repository, revision), durable.storage_errors(folder):
        files = listed(repository, revision, token)
        _refuse_without_room(folder, files)
        announce(f"{repository}@{revision[:12]}: {len(files)} files, {sum(file.size for file in files) / 1e9:.1f} GB")
        names = [file.name for file in files]
        snapshot_download(repository, revision=revision, local_dir=folder, allow_patterns=names, token=token)
    announce("verifying every file")
    digests = verify(folder, files)
    return write_record(folder, {"hub": repository, "revision": revision}, digests)


def listed(repository: str, revision: str, token: str | None) -> list[HubFile]:
    """The wanted files of a revision.

    Raises:
        TargetError: there are no safetensors among them.
    """
    from huggingface_hub import HfApi

    info = HfApi(token=token).model_info(repository, revision=revision, files_metadata=True)
    files = [
        HubFile(entry.rfilename, entry.size or 0, entry.lfs.sha256 if entry.lfs else None, entry.blob_id)
        for entry in info.siblings or []
        if wanted(entry.rfilename)
    ]
    if not any(file.name.endswith(".safetensors") for file in files):
        raise TargetError(
            f"{repository}@{revision} has no safetensors",
            why=f"among its files that are: {', '.join(sorted(file.name for file in files)[:5]) or 'none'}",
            fix="name a repository that holds the weights as safetensors",
        )
    return files


def verify(folder: Path, files: Sequence[HubFile]) -> dict[str, str]:
    """Sha256 of every file, after checking each against the Hub's hash.

    Raises:
        NetworkError: some differ; they are removed, so that the next run fetches them again, and only them.
    """
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        hashes = list(pool.map(lambda file: _hashes(folder / file.name, file.size), files))
    wrong = [
        file.name
        for file, (sha256, blob_id) in zip(files, hashes, strict=True)
        if (sha256 != file.sha256 if file.sha256 else blob_id != file.blob_id)
    ]
    if wrong:
        _forget(folder, wrong)
        raise NetworkError(
            f"{len(wrong)} of {len(files)} files are not what the Hub names: {', '.join(wrong[:5])}",
            why="the download was cut or changed on the way; they are removed",
            fix="run the same command again: only they are fetched again",
        )
    return {file.name: sha256 for file, (sha256, _) in zip(files, hashes, strict=True)}


def _hashes(path: Path, size: int) -> tuple[str, str]:
    if not path.is_file():
        return "", ""
    contents = hashlib.sha256()
    blob = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    small = size < 1 << 24  # weights are in LFS and need no blob id
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            contents.update(block)
            if small:
                blob.update(block)
    return contents.hexdigest(), blob.hexdigest()


def _forget(folder: Path, names: Iterable[str]) -> None:
    """Remove files and what huggingface_hub remembers of them, or it would take them for done."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
        (folder / ".cache" / "huggingface" / "download" / f"{name}.metadata").unlink(missing_ok=True)
    (folder / NAME).unlink(missing_ok=True)


def refuse_offline(repository: str) -> None:
    """Raise a `NetworkError` where the environment allows no network."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        raise NetworkError(
            f"cannot fetch {repository}: HF_HUB_OFFLINE is set",
            why="this environment allows no network",
            fix="unset HF_HUB_OFFLINE where a network is allowed, or copy the folder from such a machine",
        )


def _refuse_without_room(folder: Path, files: Sequence[HubFile]) -> None:
    with durable.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    missing = sum(file.size for file in files) - there
    free = shutil.disk_usage(folder).free
    if missing > free:
        raise StorageError(
            f"{folder}: {missing / 1e9:.1f} GB more are needed, {free / 1e9:.1f} GB are free",
            fix="make room, or name another place with --into or DRAFTKILN_CACHE",
        )


@contextlib.contextmanager
def _hub_errors(repository: str, revision: str) -> Iterator[None]:
    """Turn what huggingface_hub raises into errors that say what to do."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        raise TargetError(
            f"{repository}: its owner asks to accept terms first",
            why=_first_line(error),
            fix="accept them on the model's page and set HF_TOKEN",
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise TargetError(
            f"{repository}@{revision} is not on the Hub, or not open to this token",
            why=_first_line(error),
            fix="check the name and the commit, and HF_TOKEN where the repository is private",
        ) from error
    except Exception as error:
        if not isinstance(error, (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError)) and (
            type(error).__module__.split(".")[0] not in _TRANSPORTS
        ):
            raise
        raise NetworkError(
            f"cannot fetch {repository}",
            why=_first_line(error),
            fix="run the same command again: it goes on where it stopped",
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
