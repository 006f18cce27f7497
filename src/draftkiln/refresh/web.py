"""Asking an index by HTTP, with every way in which it may not answer told apart."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from draftkiln import cache, durable
from draftkiln.errors import PinError, UsageError
from draftkiln.refresh.outcome import GoneError, UnansweredError

if TYPE_CHECKING:
    import datetime as dt

SILENCE_S = 30.0
"""An index that sends nothing for so long hangs."""
PAGE_DEADLINE_S = 120.0
WHEEL_DEADLINE_S = 1800.0
_BLOCK = 1 << 20
_PAGE_LIMIT = 64 << 20
_GONE = {404, 410}
_TOO_MANY = 429


@dataclass(frozen=True)
class Fetched:
    """A downloaded file, kept under its hash, and when the server says it was made."""

    path: Path
    sha256: str
    modified: dt.datetime | None


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object:
        """Take the next bytes."""


def page(url: str) -> str:
    """Text of a page.

    Raises:
        GoneError: there is none (404, 410).
        UnansweredError: a rate limit, a failing or silent server, no network.
    """
    parts: list[bytes] = []

    class Page:
        def write(self, data: bytes, /) -> None:
            parts.append(data)
            if sum(map(len, parts)) > _PAGE_LIMIT:
                raise UnansweredError(f"{url}: not the page of an index", why="longer than 64 MB", fix="check the URL")

    _read(url, Page(), PAGE_DEADLINE_S)
    return b"".join(parts).decode("utf-8", errors="replace")


def wheel(url: str, sha256: str | None) -> Fetched:
    """Download a wheel into the cache (`wheels/<sha256>/`), or find it there.

    Args:
        url: of the file; its last part is the wheel's name.
        sha256: what it must hash to, where that is known before.

    Raises:
        GoneError, UnansweredError: as `page`; a cut download is the latter.
        PinError: it has other bytes than `sha256` says.
        StorageError: no room.
    """
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
    folder = cache.root() / "wheels"
    kept = folder / (sha256 or "none") / name
    if sha256 and kept.is_file() and durable.sha256_file(kept) == sha256:
        return Fetched(kept, sha256, None)
    with durable.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                modified = _read(url, file, WHEEL_DEADLINE_S)
            got = durable.sha256_file(Path(temporary))
            if sha256 and got != sha256:
                raise PinError(
                    f"{name}: not the bytes that were asked for",
                    why=f"expected sha256 {sha256}, got {got} from {url}: other bytes, or a cut download",
                    fix="run it again; if it stays so, ask who published the hash. The check is never left out",
                )
            place = folder / got / name
            place.parent.mkdir(parents=True, exist_ok=True)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(place)
        finally:
            Path(temporary).unlink(missing_ok=True)
    return Fetched(place, got, modified)


def _read(url: str, sink: _Sink, deadline_s: float) -> dt.datetime | None:
    """Read a URL into `sink` and return its Last-Modified."""
    if urllib.parse.urlsplit(url).scheme not in {"http", "https", "file"}:
        raise UsageError(f"{url}: not a URL that can be asked", fix="name one that starts with https:// or file://")
    began = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=SILENCE_S) as answer:  # noqa: S310 (the scheme is checked above)
            length, taken = answer.headers.get("Content-Length"), 0
            while block := answer.read1(_BLOCK) if hasattr(answer, "read1") else answer.read(_BLOCK):
                sink.write(block)
                taken += len(block)
                if time.monotonic() - began > deadline_s:
                    raise _unanswered(url, f"not done after {deadline_s:.0f} s", "try again on a faster network")
            if length is not None and taken != int(length):
                raise _unanswered(url, f"the download was cut: {taken} of {length} bytes", "run it again")
            return _date(answer.headers.get("Last-Modified"))
    except urllib.error.HTTPError as error:
        error.close()
        raise _refused(url, error) from error
    except TimeoutError as error:
        raise _unanswered(url, f"it hangs: nothing for {SILENCE_S:.0f} s", "try again later") from error
    except http.client.HTTPException as error:
        raise _unanswered(url, f"the answer was cut: {error!r}", "run it again") from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, FileNotFoundError):
            raise GoneError(f"{url}: no such file", fix="check the path") from error
        hangs = isinstance(error.reason, TimeoutError)
        why = f"it hangs: nothing for {SILENCE_S:.0f} s" if hangs else str(error.reason)
        raise _unanswered(url, why, "check the network and the URL") from error
    except ConnectionError as error:
        raise _unanswered(url, f"the connection broke: {error}", "run it again") from error


def _refused(url: str, error: urllib.error.HTTPError) -> GoneError | UnansweredError:
    if error.code in _GONE:
        return GoneError(
            f"{url}: not there (HTTP {error.code})",
            why="old nightlies and per-commit wheels are removed after some weeks",
            fix="name a build that exists; no other one is taken in its place",
        )
    if error.code == _TOO_MANY:
        after = error.headers.get("Retry-After")
        wait = f"in {after} s" if after and after.isdigit() else "later"
        return _unanswered(url, "it limits how often it may be asked (HTTP 429)", f"ask again {wait}")
    return _unanswered(url, f"HTTP {error.code} {error.reason}", "try again later, or check the URL and the access")


def _unanswered(url: str, why: str, fix: str) -> UnansweredError:
    return UnansweredError(f"no answer from {url}", why=why, fix=fix)


def _date(text: str | None) -> dt.datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except ValueError:
        return None


def sha256_of_url(url: str) -> str | None:
    """The hash in a URL's fragment (`…whl#sha256=…`), as pages of an index write it."""
    fragment = urllib.parse.urlsplit(url).fragment
    found = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
    return found.lower() if len(found) == hashlib.sha256().digest_size * 2 else None
