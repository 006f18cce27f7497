"""The patch queue: a pool of patches and, per series, the order in which they are applied.

Layout:
    FOLDER/<slug>.patch             one concern; the text serves every series that names the slug
    FOLDER/<slug>@<version>.patch   variant for one speculators release, where the text must differ; it also serves
                                    releases with the same first three numbers (0.4.0 and its hotfix 0.4.0.1)
    FOLDER/series/<name>            slugs in order, `#` starts a comment
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln import checkout
from draftkiln.errors import DraftkilnError, PatchError, ProblemsError
from draftkiln.patches import header, mail

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from draftkiln.patches.header import Header

SLUG_RULE = "use lower-case words joined by `-`, starting with a letter"
_ORDER = "order lives in the series file, not in a number in front of the name"
_SLUG = re.compile(r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")
_SERIES_NAME = re.compile(r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$")
_FILE_NAME = re.compile(r"^(?P<slug>[^@]+?)(?:@(?P<version>[^@]+))?\.patch$")
_PATHS = re.compile(r"^diff --git a/(?P<old>.+) b/(?P<new>.+)$", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Patch:
    """One patch file, read and valid."""

    path: Path
    slug: str
    version: str | None
    """Release that a variant is for; None for the text that serves all others."""
    header: Header
    text: str
    """Content with LF line ends, also where the file is a CRLF copy."""
    has_crlf: bool

    @property
    def data(self) -> bytes:
        """What git is given."""
        return self.text.encode()

    @property
    def files(self) -> tuple[str, ...]:
        """Paths that the diff touches, such as `speculators/data_generation/custom_worker.py`."""
        return tuple(sorted({match[side] for match in _PATHS.finditer(self.text) for side in ("old", "new")}))

    @property
    def diff_sha256(self) -> str:
        """Hash of the change alone: neither the message nor what other patches do to the same file alters it."""
        lines = mail.diff_of(self.text).split("\n")
        return hashlib.sha256("\n".join(line for line in lines if not line.startswith("index ")).encode()).hexdigest()

    @property
    def name(self) -> str:
        """File name without the ending: `slug` or `slug@version`."""
        return self.path.name.removesuffix(".patch")


@dataclass(frozen=True)
class Entry:
    """One line of a series file and the patches that bear its slug, by the version they are for."""

    slug: str
    line: int
    variants: Mapping[str | None, Patch]

    def variant(self, version: str) -> Patch | None:
        """The text made for speculators `version` or for a hotfix of it; None where the plain text serves it."""
        hotfixes = (key for key in self.variants if key is not None and _release(key) == _release(version))
        return self.variants.get(version) or next((self.variants[key] for key in sorted(hotfixes)), None)


@dataclass(frozen=True)
class Series:
    """Patches in the order in which they are applied."""

    name: str
    path: Path
    entries: tuple[Entry, ...]

    def patches(self, version: str) -> tuple[Patch, ...]:
        """The patches for speculators `version`, each slug's variant where it has one.

        Raises:
            ProblemsError: slugs that have variants only, none of them for `version`.
        """
        chosen, problems = [], []
        for entry in self.entries:
            patch = entry.variant(version) or entry.variants.get(None)
            if patch is not None:
                chosen.append(patch)
                continue
            known = ", ".join(sorted(str(key) for key in entry.variants))
            problems.append(
                PatchError(
                    f"{self.path}:{entry.line}: {entry.slug} has no text for {header.PACKAGE} {version}",
                    why=f"it exists only for {known}",
                    fix=f"add {entry.slug}@{version}.patch, or take the slug out of this series",
                )
            )
        if problems:
            raise ProblemsError(problems)
        return tuple(chosen)

    @property
    def newest_base(self) -> str | None:
        """Newest `Base:` among its patches; None for an empty series."""
        from packaging.version import Version

        bases = {patch.header.base for entry in self.entries for patch in entry.variants.values()}
        return max(bases, key=Version, default=None)


@dataclass(frozen=True)
class Queue:
    """The whole folder: every patch and every series."""

    folder: Path
    pool: tuple[Patch, ...]
    series: Mapping[str, Series]


def queue_folder() -> Path:
    """The project's own queue."""
    return checkout.root() / "patches" / header.PACKAGE


def load(folder: Path) -> Queue:
    """Read the whole queue.

    Raises:
        ProblemsError: everything that is wrong in any of its files.
    """
    queue, problems = survey(folder)
    if problems:
        raise ProblemsError(problems)
    return queue


def load_series(folder: Path, name: str) -> Series:
    """Read one series; a fault in a patch that it does not name is no hindrance.

    Raises:
        ProblemsError: everything that is wrong with the series file or its patches.
    """
    path = folder / "series" / name
    if not path.is_file():
        known = ", ".join(file.name for file in _series_files(folder)) or "none"
        raise PatchError(f"{path}: no such series", why=f"series there: {known}", fix="name one of them")
    slugs = {slug for slug, _ in _slug_lines(path.read_text(encoding="utf-8", errors="replace"))}
    pool, problems = _read_pool(file for file in _pool_files(folder) if _slug_of(file) in slugs)
    series, series_problems = _read_series(path, pool, _broken_slugs(folder, pool))
    if problems or series_problems:
        raise ProblemsError([*problems, *series_problems])
    return series


def survey(folder: Path) -> tuple[Queue, list[DraftkilnError]]:
    """Read what can be read of the queue, and everything that is wrong with the rest."""
    if not folder.is_dir():
        raise PatchError(f"{folder}: no such folder", fix="run this in the project's root, or name it with --patches")
    pool, problems = _read_pool(_pool_files(folder))
    broken = _broken_slugs(folder, pool)
    series = {}
    for path in _series_files(folder):
        series[path.name], found = _read_series(path, pool, broken)
        problems.extend(found)
    return Queue(folder, tuple(pool), series), problems


def read_patch(path: Path) -> Patch:
    """Read one patch file.

    Raises:
        ProblemsError: everything that is wrong with its name, bytes, header or paths.
    """
    problems = mail.Problems(path)
    slug, version = _read_name(path, problems)
    text, has_crlf = _read_text(path, problems)
    parsed = None
    try:
        parsed = header.parse(text, path)
    except ProblemsError as error:
        problems.found.extend(problem for problem in error.problems if isinstance(problem, PatchError))
    _check_paths(text, problems)
    if parsed is None or problems.found:
        raise ProblemsError(problems.found)
    return Patch(path, slug, version, parsed, text, has_crlf)


def _read_name(path: Path, problems: mail.Problems) -> tuple[str, str | None]:
    match = _FILE_NAME.match(path.name)
    slug, version = (match["slug"], match["version"]) if match else (path.stem, None)
    if not is_slug(slug):
        problems.add(1, f"{slug!r} is no slug", why=_ORDER, fix=SLUG_RULE)
    if version is not None and not _is_version(version):
        problems.add(1, f"{version!r} is no version of {header.PACKAGE}", fix="write it as in slug@0.4.0.1.patch")
    return slug, version


def is_slug(text: str) -> bool:
    """Whether `text` can be the name of a patch: `SLUG_RULE`."""
    return _SLUG.match(text) is not None


def _is_version(text: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(text)) == text
    except InvalidVersion:
        return False


def _read_text(path: Path, problems: mail.Problems) -> tuple[str, bool]:
    data = path.read_bytes()
    lines = data.count(b"\n")
    has_crlf = lines > 0 and data.count(b"\r\n") == lines
    if has_crlf:
        data = data.replace(b"\r\n", b"\n")
    for number, line in enumerate(data.split(b"\n"), 1):
        if b"\r" in line:
            problems.add(
                number,
                "carriage return in the line",
                why="some lines end in CRLF and some in LF, so an editor or a checkout changed the patch",
                fix="restore the file with git; .gitattributes keeps patches on LF",
            )
            break
    if data and not data.endswith(b"\n"):
        problems.add(
            lines + 1, "no newline at the end of the file", why="the patch is cut off", fix="restore it with git"
        )
    try:
        return data.decode(), has_crlf
    except UnicodeDecodeError as error:
        number = data[: error.start].count(b"\n") + 1
        problems.add(number, "not UTF-8", why=str(error), fix="save the patch as UTF-8")
        return data.decode(errors="replace"), has_crlf


def _check_paths(text: str, problems: mail.Problems) -> None:
    found = False
    for number, line in enumerate(text.split("\n"), 1):
        match = _PATHS.match(line)
        if match is None:
            continue
        found = True
        for path in sorted({match["old"], match["new"]}):
            if not path.startswith(f"{header.PACKAGE}/") or ".." in path.split("/"):
                problems.add(
                    number,
                    f"{path} is outside {header.PACKAGE}/",
                    fix=f"make the diff on the wheel's layout, a/{header.PACKAGE}/…",
                )
    if not found:
        problems.add(1, "no diff in the patch", fix="make it with `draftkiln patches new`")


def _pool_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.patch"))


def _series_files(folder: Path) -> list[Path]:
    series = folder / "series"
    return (
        sorted(path for path in series.iterdir() if path.is_file() and _SERIES_NAME.match(path.name))
        if series.is_dir()
        else []
    )


def _release(version: str) -> tuple[int, ...]:
    from packaging.version import Version

    return (*Version(version).release, 0, 0)[:3]


def _slug_of(path: Path) -> str:
    match = _FILE_NAME.match(path.name)
    return match["slug"] if match else path.stem


def _broken_slugs(folder: Path, pool: Iterable[Patch]) -> set[str]:
    read = {patch.path for patch in pool}
    return {_slug_of(path) for path in _pool_files(folder) if path not in read}


def _read_pool(paths: Iterable[Path]) -> tuple[list[Patch], list[DraftkilnError]]:
    pool: list[Patch] = []
    problems: list[DraftkilnError] = []
    for path in paths:
        try:
            pool.append(read_patch(path))
        except ProblemsError as error:
            problems.extend(error.problems)
    return pool, problems


def _slug_lines(text: str) -> list[tuple[str, int]]:
    lines = (
        (re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip(), number) for number, line in enumerate(text.split("\n"), 1)
    )
    return [(slug, number) for slug, number in lines if slug]


def _read_series(path: Path, pool: Iterable[Patch], broken: set[str]) -> tuple[Series, list[DraftkilnError]]:
    by_slug: dict[str, dict[str | None, Patch]] = {}
    for patch in pool:
        by_slug.setdefault(patch.slug, {})[patch.version] = patch
    problems = mail.Problems(path)
    seen: dict[str, int] = {}
    entries = []
    for slug, number in _slug_lines(path.read_text(encoding="utf-8", errors="replace")):
        if slug in seen:
            problems.add(number, f"{slug} stands twice", why=f"first in line {seen[slug]}", fix="keep one")
        elif slug in by_slug:
            entries.append(Entry(slug, number, by_slug[slug]))
        elif slug not in broken:
            problems.add(
                number, f"no patch {slug!r} in the pool", fix=f"add {path.parent.parent / slug}.patch, or mend the name"
            )
        seen.setdefault(slug, number)
    return Series(path.name, path, tuple(entries)), list(problems.found)
