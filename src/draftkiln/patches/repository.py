"""A throw-away git repository that nothing of the user's git settings, hooks or surrounding repositories reaches.

Every call names the repository and its work tree explicitly: inside another repository git would else take that one's
root and skip, with exit code 0, the paths outside it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import PatchError, SystemMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_TIMEOUT_S = 60
_NAME, _EMAIL, _SECONDS = "draftkiln", "draftkiln@localhost", 946684800
_MAIL_START = re.compile(r"^(?=From 0{40} Mon Sep 17 00:00:00 2001$)", re.MULTILINE)
_OFFSET = re.compile(r"^Hunk #(\d+) succeeded at \d+ \(offset (-?\d+) lines?\)\.$")
_CHECKING = re.compile(r"^Checking patch (?:.+ => )?(.+)\.\.\.$")
_FAILED = re.compile(r"^error: patch failed: (.+):(\d+)$")
_ABSENT = re.compile(r"^error: (.+): (?:does not exist in index|No such file or directory)$")

_SETTINGS = (
    "core.autocrlf=false",
    "core.safecrlf=false",
    "core.fileMode=false",
    "core.fsync=none",  # the repository does not outlive the run
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.quotePath=false",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
_DIFF_OPTIONS = (
    "--full-index",  # short hashes grow with the repository
    "--no-renames",
    "--unified=3",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--diff-algorithm=myers",
    "--indent-heuristic",
    "--no-ext-diff",
    "--no-textconv",
)
_MAIL_OPTIONS = (
    "--stdout",
    "--keep-subject",  # no [PATCH] in front
    "--no-stat",  # a summary of the diff is noise in a diff of patches
    "--no-signature",  # names git's version
    "--zero-commit",  # a commit's hash changes with everything before it
    "--no-encode-email-headers",
    "--no-base",
    "--no-thread",
    "--no-attach",
)


@dataclass(frozen=True)
class Answer:
    """What a git command answered."""

    returncode: int
    stdout: bytes
    stderr: str


@dataclass(frozen=True)
class Verdict:
    """Whether a patch fits: as written, shifted by some lines (`offsets`), or not and where not."""

    fits: bool
    offsets: tuple[str, ...] = ()
    """Such as `speculators/a.py hunk 2: -6 lines`."""
    failed: tuple[tuple[str, int], ...] = ()
    """File and first line of each hunk that found no place."""
    absent: tuple[str, ...] = ()
    """Files of the patch that are not there."""
    output: str = ""


@dataclass(frozen=True)
class Repository:
    """A repository in `folder`, used by no one else."""

    folder: Path

    @classmethod
    @contextlib.contextmanager
    def throwaway(cls) -> Iterator[Repository]:
        """A new repository that is removed at the end."""
        with tempfile.TemporaryDirectory(prefix="draftkiln-patches-") as name:
            yield cls.create(Path(name).resolve())

    @classmethod
    def create(cls, folder: Path) -> Repository:
        """Make a repository in the existing, empty `folder`."""
        repository = cls(folder)
        repository.git("init", "--quiet", "--template=", "--initial-branch=series")
        info = folder / ".git" / "info"
        info.mkdir(exist_ok=True)
        # Highest rank among attributes: a .gitattributes inside a wheel must not convert line ends.
        (info / "attributes").write_text("* -text -ident -filter -working-tree-encoding\n", encoding="utf-8")
        return repository

    def run(self, *arguments: str, stdin: bytes = b"") -> Answer:
        """Run git and return its answer, whatever it is.

        Raises:
            PatchError: it took too long.
            SystemMissingError: there is no git.
        """
        try:
            done = subprocess.run(
                ["git", *(word for setting in _SETTINGS for word in ("-c", setting)), *arguments],
                cwd=self.folder,
                env=_environment(self.folder),
                capture_output=True,
                check=False,
                timeout=_TIMEOUT_S,
                input=stdin,  # never the terminal's: a prompt would wait for ever
            )
        except FileNotFoundError as error:
            raise SystemMissingError("git is not installed", fix="apt-get install git") from error
        except subprocess.TimeoutExpired as error:
            raise PatchError(
                f"git {arguments[0]} did not end within {_TIMEOUT_S} s", fix="run it again on an idle disk"
            ) from error
        return Answer(done.returncode, done.stdout, done.stderr.decode(errors="replace"))

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run git and return what it printed, stripped.

        Raises:
            PatchError: git refused.
        """
        answer = self.run(*arguments, stdin=stdin)
        if answer.returncode:
            raise PatchError(f"git {arguments[0]} failed ({answer.returncode})", why=answer.stderr.strip())
        return answer.stdout.decode(errors="replace").strip()

    def add_base(self, version: str, files: Mapping[str, bytes]) -> str:
        """Store `files` as a commit without parents and return its ref; the same files give the same commit."""
        stamp = f"{_NAME} <{_EMAIL}> {_SECONDS} +0000"
        ref = f"refs/bases/{version}"
        parts = [f"reset {ref}\ncommit {ref}\ncommitter {stamp}\ndata <<END\n{version}\nEND\n".encode()]
        for name, data in sorted(files.items()):
            parts.append(f"M 100644 inline {name}\ndata {len(data)}\n".encode() + data + b"\n")
        self.git("fast-import", "--quiet", "--force", stdin=b"".join(parts))
        return ref

    def checkout(self, commit: str) -> None:
        """Put `commit` into index and work tree."""
        self.git("checkout", "--quiet", "--force", "-B", "series", commit)

    def trees(self, *commits: str) -> list[str]:
        """Hash of each commit's tree."""
        return self.git("rev-parse", *(f"{commit}^{{tree}}" for commit in commits)).split("\n")

    def head(self) -> str:
        """Hash of the commit that is checked out."""
        return self.git("rev-parse", "HEAD")

    def changed(self, before: str, after: str) -> dict[str, bytes | None]:
        """Files that differ between two commits with their new content, None for a removed one."""
        names = self.git("diff-tree", "-r", "-z", "--no-renames", "--name-only", before, after).split("\0")
        return self._contents(after, [name for name in names if name])

    def newest(self) -> tuple[str, frozenset[str]]:
        """The commit that is checked out and the files that it changed."""
        commit, *names = self.git("diff-tree", "-r", "-z", "--root", "--no-renames", "--name-only", "HEAD").split("\0")
        return commit, frozenset(name for name in names if name)

    def check(self, data: bytes, *, reverse: bool = False) -> Verdict:
        """Whether a patch fits the index, without fuzz and without applying it."""
        options = ["--check", "--verbose", "--index", "--whitespace=nowarn", *(["--reverse"] if reverse else []), "-"]
        answer = self.run("apply", *options, stdin=data)
        return _read_verdict(answer)

    def am(self, data: bytes, *, three_way: bool = False) -> Answer:
        """Apply a mail as a commit; with `three_way` also where only the blobs it was made on are known."""
        mail = self.folder / ".git" / "draftkiln.mail"
        mail.write_bytes(data)
        how = "--3way" if three_way else "--no-3way"
        return self.run(
            "am", "--quiet", "--keep-non-patch", "--keep-cr", "--no-scissors", "--whitespace=nowarn", how, str(mail)
        )

    def export(self, commit: str = "HEAD") -> str:
        """The patch of one commit, the same bytes on every machine."""
        return self._text("format-patch", "-1", *_MAIL_OPTIONS, *_DIFF_OPTIONS, commit).rstrip("\n") + "\n"

    def exports(self, base: str) -> list[str]:
        """The patch of each commit after `base`, oldest first."""
        text = self._text("format-patch", *_MAIL_OPTIONS, *_DIFF_OPTIONS, f"{base}..HEAD")
        return [part.rstrip("\n") + "\n" for part in re.split(_MAIL_START, text) if part]

    def diff(self, before: str, after: str) -> str:
        """The change between two commits, as `export` writes it."""
        return self._text("diff", "--patch", *_DIFF_OPTIONS, before, after)

    def _text(self, *arguments: str) -> str:
        answer = self.run(*arguments)
        if answer.returncode:
            raise PatchError(f"git {arguments[0]} failed ({answer.returncode})", why=answer.stderr.strip())
        try:
            return answer.stdout.decode()
        except UnicodeDecodeError as error:
            raise PatchError("a changed file is not UTF-8", why=str(error), fix="save it as UTF-8") from error

    def _contents(self, commit: str, names: Sequence[str]) -> dict[str, bytes | None]:
        rest = self.run("cat-file", "--batch", stdin="".join(f"{commit}:{name}\n" for name in names).encode()).stdout
        found: dict[str, bytes | None] = {}
        for name in names:
            head, _, rest = rest.partition(b"\n")
            if head.endswith(b" missing"):
                found[name] = None
            else:
                size = int(head.split()[-1])
                found[name], rest = rest[:size], rest[size + 1 :]
        return found


def _environment(folder: Path) -> dict[str, str]:
    # Built from nothing: a git hook, for one, exports GIT_DIR and GIT_INDEX_FILE to whatever it starts.
    git = folder / ".git"
    stamp = f"{_SECONDS} +0000"
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "TZ": "UTC",
        "HOME": str(git),
        "XDG_CONFIG_HOME": str(git),
        "GIT_DIR": str(git),
        "GIT_WORK_TREE": str(folder),
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_EDITOR": "true",
        "GIT_PAGER": "cat",
        "GIT_AUTHOR_NAME": _NAME,
        "GIT_AUTHOR_EMAIL": _EMAIL,
        "GIT_AUTHOR_DATE": stamp,
        "GIT_COMMITTER_NAME": _NAME,
        "GIT_COMMITTER_EMAIL": _EMAIL,
        "GIT_COMMITTER_DATE": stamp,
    }


def _read_verdict(answer: Answer) -> Verdict:
    file = ""
    offsets, failed, absent = [], [], []
    for line in answer.stderr.splitlines():
        if match := _CHECKING.match(line):
            file = match[1]
        elif match := _OFFSET.match(line):
            offsets.append(f"{file} hunk {match[1]}: {int(match[2]):+d} lines")
        elif match := _FAILED.match(line):
            failed.append((match[1], int(match[2])))
        elif match := _ABSENT.match(line):
            absent.append(match[1])
    return Verdict(answer.returncode == 0, tuple(offsets), tuple(failed), tuple(absent), answer.stderr.strip())
