"""One attempt: a candidate made from one stack's settings and series, locked, installed, probed and compared."""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from draftkiln import cache, durable
from draftkiln.errors import DraftkilnError, ExitCode, ProblemsError, StackError, StorageError
from draftkiln.refresh import candidate
from draftkiln.refresh.outcome import UnansweredError
from draftkiln.refresh.report import Problem, Step
from draftkiln.stack import fetching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from draftkiln.refresh.build import Build
    from draftkiln.refresh.home import Home
    from draftkiln.refresh.ranking import Fit
    from draftkiln.stack.environment import Environment
    from draftkiln.stack.model import Stack

ROOM_BYTES = 8_000_000_000
"""An environment takes up to 7 GB where nothing of it is in the package cache."""
NOT_THE_BUILDS = frozenset({ExitCode.USAGE, ExitCode.SYSTEM, ExitCode.STORAGE, ExitCode.NETWORK, ExitCode.PIN})
"""Codes of errors that say nothing of the build: no patch mends them, and another machine or day may not have them."""
STEPS = ("seams", "lock", "environment", "probe", "numbers", "image")


class StoppedError(Exception):
    """A step failed: what stands in the way is in the attempt."""


@dataclass
class Attempt:
    """What an attempt made of each step."""

    home: Home
    build: Build
    fit: Fit
    work: Path
    """Folder for logs, the run, and what earlier attempts of the same candidate passed."""
    tell: Callable[[str], None]
    target: str
    last: str = STEPS[-1]
    """Step after which to stop."""
    image: bool = False
    steps: list[Step] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    findings: int | None = None
    results: dict[str, Any] = field(default_factory=dict)
    _began: float = 0.0
    _before: float | None = None
    """Seconds that the present step took when it passed before."""

    def run(self, extra: list[str], borrow: Callable[[Stack], object]) -> bool:
        """Take the steps in order until one fails or `last` is done; whether all passed.

        Args:
            extra: slugs that go behind the series: patches in the candidate's own folder.
            borrow: makes sure that the stack's environment is removed again when the refresh ends.
        """
        slugs = [slug for slug in series_lines(self.fit, self.build.version) if slug not in extra]
        try:
            with self.home.entered():
                self._lock([*slugs, *extra])
                if self._goes_on("environment"):
                    environment = self._environment(borrow)
                    if self._goes_on("probe"):
                        self._probe(environment)
                    if self._goes_on("numbers"):
                        self._numbers(environment)
                    if self.image and self._goes_on("image"):
                        self._image()
        except StoppedError:
            return False
        return True

    def _goes_on(self, step: str) -> bool:
        return STEPS.index(step) <= STEPS.index(self.last)

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[list[str]]:
        """Time a step; the list takes its note. An error of draftkiln is the step's failure.

        A step that passed in an earlier run counts with the seconds that it took then: the sum is that of one run.

        An error of `NOT_THE_BUILDS` ends the refresh.
        """
        note: list[str] = []
        self._began, self._before = time.monotonic(), None
        known = len(self.problems)
        status = "failed"
        try:
            yield note
            status = "passed"
        except DraftkilnError as error:
            if error.code in NOT_THE_BUILDS:
                raise
            again = "then run the same command again"
            if is_full(error):
                raise StorageError(error.what, why=error.why, fix=f"make room, {again}") from error
            # Only who fetches says it so: in a patch's or a probe's words a 429 is a line.
            if isinstance(error, StackError) and fetching.unanswered(error.why):
                raise UnansweredError(error.what, why=error.why, fix=f"check the network, {again}") from error
            if len(self.problems) == known:
                self.problems += problems_of(error, str(self.work))
            note.append(error.what)
            raise StoppedError from error
        finally:
            if self._before is not None:
                note.append(f"passed before, in {self._before:.1f} s")
            self.steps.append(Step(name, status, round(self._seconds(), 1), "; ".join(note)))
            self.tell(f"{name}: {status} ({self.steps[-1].seconds:.1f} s) {self.steps[-1].note}")

    def _seconds(self) -> float:
        return time.monotonic() - self._began + (self._before or 0.0)

    def _lock(self, slugs: list[str]) -> None:
        from draftkiln.refresh.relist import list_seams
        from draftkiln.stack import locking
        from draftkiln.stack.model import read

        with self._step("lock") as note:
            candidate.write(self.home, self.build, self.fit.stack, slugs)
            stack = read(self.home.stack)
            fresh = stack.lock is None or stack.lock.inputs_sha256 != locking.inputs_sha256(stack.file)
            if fresh:
                durable.write_text(stack.requirements, locking.resolve(stack.file, stack.name))
                # The pristine speculators is the template's, hash and all: the index is not asked for another one.
                candidate.write_provisional_lock(self.home, self.fit.stack)
            locked = locking.lock(self.home.stack, refresh=False)
            seams, broken = list_seams(self.home, locked, self.build)
            self.results["patches"] = len(slugs)
            note.append(f"{locked.locked().packages} packages as of {locked.file.as_of:%Y-%m-%d}")
            identity = str(locked.locked().inputs_sha256)
            if fresh or self._passed("lock", identity) is None:
                self._keep("lock", identity, {})
            if broken:
                self.problems += seam_problems(broken)
                note.append(f"{len(broken)} of {seams} seams break")
                raise StackError("a seam of the candidate breaks")

    def _environment(self, borrow: Callable[[Stack], object]) -> Environment:
        from draftkiln.stack import environment
        from draftkiln.stack.model import read

        with self._step("environment") as note:
            stack = read(self.home.stack)
            room = shutil.disk_usage(_existing(cache.root())).free
            made = (environment.folder_of(stack) / "complete").exists()
            if not made and room < ROOM_BYTES:
                raise StorageError(
                    f"{cache.root()}: {room / 1e9:.1f} GB free, an environment takes up to {ROOM_BYTES / 1e9:.0f}",
                    fix="make room or set DRAFTKILN_CACHE, then run the same command again",
                )
            borrow(stack)
            found = environment.ensure(self.home.stack)
            identity = found.python.parents[1].name
            if not made or self._passed("environment", identity) is None:
                self._keep("environment", identity, {})
            note.append("made before" if made else "made")
        return found

    def _probe(self, environment: Environment) -> None:
        from draftkiln.seams.probe_command import probe

        with self._step("probe") as note:
            identity = self._identity(environment)
            if self._passed("probe", identity) is not None:
                self.findings = 0
                return
            found = probe(environment.python, environment.variables())
            self.findings = len(found.findings)
            note.append(f"{self.findings} findings, vLLM imports in {found.import_seconds:.0f} s")
            if found.findings:
                self.problems += [
                    Problem(f"probe: {item.what}", log=f"with {item.scenario}: {item.seen}", proposal=item.fix)
                    for item in found.findings
                ]
                raise StackError(f"{self.findings} findings: {found.findings[0].what}")
            self._keep("probe", identity, {})

    def _numbers(self, environment: Environment) -> None:
        from draftkiln.matrix import prove

        with self._step("numbers") as note:
            identity = self._identity(environment)
            passed = self._passed("numbers", identity)
            if passed is None:
                folder = self.work / "numbers"
                shutil.rmtree(folder, ignore_errors=True)
                failed = prove.numbers(self.home.stack, self.target, environment, folder, self.results, self.tell)
                if failed:
                    raise StackError(failed)
                passed = self._keep("numbers", identity, dict(self.results))
                shutil.rmtree(folder, ignore_errors=True)
            self.results |= passed
            right, shifted = passed["min_cosine"], passed["shifted_cosine"]
            note.append(f"least cosine {right:.5f} to transformers, {shifted:.3f} with shifted ids")

    def _image(self) -> None:
        import sys

        from draftkiln.matrix import prove

        with self._step("image") as note:
            log = self.work / "image.log"
            command = [sys.executable, "-m", "draftkiln", "image", "build", "--stack", self.home.stack]
            prove.run_logged("image build", command, log, None)
            note.append("built")

    def _identity(self, environment: Environment) -> str:
        """What a passed step depends on: the locked packages and the patched files, and the target."""
        lock, file = environment.stack.locked(), environment.stack.file
        return durable.sha256_json(
            [lock.requirements_sha256, environment.overlay.name, file.environment, file.preload, self.target]
        )

    def _passed(self, step: str, identity: str) -> dict[str, Any] | None:
        """What the step came to where it passed before with the same identity; its seconds then count again."""
        from draftkiln.rundir import read_json

        file = self.work / f"{step}.json"
        found = read_json(file) if file.exists() else {}
        if found.get("identity") != identity:
            return None
        self._before = float(found.get("seconds", 0.0))
        results: dict[str, Any] = found["results"]
        return results

    def _keep(self, step: str, identity: str, results: dict[str, Any]) -> dict[str, Any]:
        value = {"identity": identity, "results": results, "seconds": round(self._seconds(), 1)}
        durable.write_json(self.work / f"{step}.json", value)
        return results


def series_lines(fit: Fit, version: str) -> list[str]:
    """Slugs for `version`: a stack's series without patches that say (`Needs-Vllm:`) that they are not for it.

    Behind them stand the patches of other series that say they are: they ask the engine what it has.
    """
    from packaging.version import Version

    from draftkiln.patches import queue

    series = queue.load_series(queue.queue_folder(), fit.series)
    public = Version(version).base_version
    own = [
        patch.slug
        for patch in series.patches(fit.stack.file.speculators.version)
        if patch.header.needs_vllm is None or patch.header.needs_vllm.contains(public, prereleases=True)
    ]
    return [*own, *fit.missing]


def is_full(error: DraftkilnError) -> bool:
    """Whether an error of a tool means that the disk is full."""
    return any(word in f"{error.what} {error.why}".lower() for word in ("no space left", "quota exceeded", "errno 28"))


def problems_of(error: DraftkilnError, work: str) -> list[Problem]:
    """An error as what stands in the way; several where it holds several."""
    each = error.problems if isinstance(error, ProblemsError) else [error]
    return [Problem(one.what, log=one.why, proposal=one.fix or f"logs are in {work}") for one in each]


def seam_problems(broken: list[Any] | tuple[Any, ...]) -> list[Problem]:
    """Breaks that say the same of several lines as one problem each."""
    found: dict[tuple[str, str, str | None], Problem] = {}
    for item in broken:
        key = (item.what, item.now, item.seam.owner)
        line = f"{item.seam.file}:{item.seam.line}"
        before = found.get(key)
        lines = (*before.lines, line) if before else (line,)
        found[key] = Problem(f"{item.severity}: {item.what}", item.before, item.now, item.seam.owner, lines)
    return list(found.values())


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())
