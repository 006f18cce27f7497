"""A refresh: the build, the series that fit it, attempts one after the other, and what came out."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln import cache, checkout, durable
from draftkiln.errors import DraftkilnError
from draftkiln.lock import held
from draftkiln.matrix import environments
from draftkiln.refresh import candidate, proposals, ranking, wanted, worktree
from draftkiln.refresh.attempt import Attempt, seam_problems, series_lines
from draftkiln.refresh.home import Home
from draftkiln.refresh.outcome import NoNewerError, Outcome, outcome_of
from draftkiln.refresh.report import Report, Step, as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from draftkiln.refresh.build import Build
    from draftkiln.refresh.ranking import Fit
    from draftkiln.refresh.wanted import Question
    from draftkiln.stack.model import Stack


@dataclass(frozen=True)
class Options:
    """How a refresh goes about it."""

    speculators: str
    target: str = "small"
    until: str = "image"
    """Step after which to stop: one of `attempt.STEPS`."""
    image: bool = False
    again: bool = False
    """Prove a build that a stack has already."""
    keep: bool = False
    """Leave the environment."""
    tries: int = 3
    """Series that are tried, each on the real engine."""
    only: str | None = None
    """Stack whose series alone is tried."""
    propose: bool = True
    """Whether patches may be made up."""


def refresh(question: Question, options: Options, tell: Callable[[str], None]) -> Report:
    """Prove a build, or say what stands in the way. The repository is read, never written.

    Raises:
        DraftkilnError: a fault of the input or of this machine, which no report can be made of.
    """
    report = Report(question.vllm, options.speculators, dt.datetime.now(dt.UTC).date().isoformat())
    with held(root() / "lock", announce=tell):
        stacks = ranking.known(options.speculators)
        try:
            found = _find(report, question, stacks, tell)
            _prove(report, found, stacks, options, tell)
        except DraftkilnError as error:
            outcome = outcome_of(error)
            if outcome is None:
                raise
            report.outcome = outcome
            report.reason = " ".join(part for part in (error.what, error.why and f"({error.why})", error.fix) if part)
    return report


def _find(report: Report, question: Question, stacks: Sequence[Stack], tell: Callable[[str], None]) -> wanted.Found:
    began = time.monotonic()
    found = wanted.find(question, stacks)
    report.build, report.note = found.build.as_json(), found.note
    report.twin = found.twin.as_json() if found.twin else {}
    report.steps.append(Step("build", "passed", _since(began), f"{found.build.name} of {found.build.built:%Y-%m-%d}"))
    tell(f"{found.build.name}, built {found.build.built:%Y-%m-%d}: {found.build.wheel}")
    return found


def root() -> Path:
    """Where candidates, work trees and reports lie."""
    return cache.root() / "refresh"


def folder_of(build: Build, speculators: str) -> Path:
    """Folder of one build's refresh: the same build finds what it passed before."""
    return root() / f"spec{speculators}-{build.package}-{build.version}-{build.sha256[:12]}"


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


def _prove(
    report: Report, found: wanted.Found, stacks: Sequence[Stack], options: Options, tell: Callable[[str], None]
) -> None:
    began = time.monotonic()
    fits = ranking.rank(found.build, [stack for stack in stacks if options.only in {None, stack.name}])
    clean = [fit for fit in fits if fit.holds]
    note = f"{len(clean)} of {len(fits)} series hold; best {fits[0].series}"
    report.steps.append(Step("seams", "passed" if clean else "failed", _since(began), note))
    tell(f"seams: {note}")
    proved = found.twin or (found.build if found.build.is_cpu else None)
    if proved is None:
        report.problems = seam_problems(fits[0].breaks)
        report.reason = (
            "its seams hold, but nothing can be proved: no CPU twin" if clean else f"{_count(fits[0])} break"
        )
        return
    work = folder_of(proved, options.speculators)
    report.stack = candidate.name_of(proved, options.speculators)
    held_already = [stack for stack in stacks if stack.name == report.stack]
    if held_already and not options.again:
        _set_known(report)
        return
    home = Home.make(work / "home", checkout.root(), report.stack)
    report.home = str(home.folder)
    if options.until == "seams":
        report.series, report.problems = fits[0].series, seam_problems(fits[0].breaks)
        report.reason = "stopped after its seams, as asked"
        return
    with contextlib.ExitStack() as borrowed:
        seen: set[str] = set()

        def borrow(stack: Stack) -> None:
            if stack.locked().requirements_sha256 not in seen:
                seen.add(stack.locked().requirements_sha256)
                borrowed.enter_context(environments.borrowed(stack, keep=options.keep))

        attempts = _attempts(report, proved, home, fits, clean, options, work, tell, borrow)
    _conclude(report, attempts, fits, options)
    if report.outcome is Outcome.NEEDS_WORK:
        report.work = str(worktree.hand_out(home, proved, fits[0] if not attempts else attempts[-1].fit))
    durable.write_json(work / "report.json", as_json(report))


def _set_known(report: Report) -> None:
    """Set the end of a refresh of a build that a stack has."""
    error = NoNewerError(f"no newer build: {report.stack} is that build's stack", fix="prove it anew with --again")
    report.outcome, report.reason = Outcome.NO_NEWER, f"{error.what}; {error.fix}"


def _attempts(
    report: Report,
    build: Build,
    home: Home,
    fits: Sequence[Fit],
    clean: Sequence[Fit],
    options: Options,
    work: Path,
    tell: Callable[[str], None],
    borrow: Callable[[Stack], object],
) -> list[Attempt]:
    """Attempts until one passes: series whose seams hold, else the best one with patches made up for its breaks."""
    own = _own_patches(home)
    if not clean and not own and not options.propose:
        return []
    if not clean and not own:
        made = proposals.propose(fits[0], build, home)
        report.proposals = [str(path) for path in made.written]
        own = _own_patches(home)
        if not made.complete:
            return []
    done = []
    for fit in (clean or fits[:1])[: options.tries]:
        attempt = Attempt(home, build, fit, work, tell, options.target, options.until, image=options.image)
        tell(
            f"series of {fit.stack.name}, {len(series_lines(fit, build.version))} patches"
            + (f" and {', '.join(own)}" if own else "")
        )
        try:
            passed = attempt.run(own, borrow)
        finally:  # also of one that the network ended
            report.steps += [
                Step(step.name, step.status, step.seconds, f"{step.note} [{fit.series}]") for step in attempt.steps
            ]
        done.append(attempt)
        if passed or attempt.steps[-1].name in {"lock", "environment"}:
            break  # another series has the same packages
    return done


def _own_patches(home: Home) -> list[str]:
    """Slugs of patches that are in the candidate's folder only: made by a person or proposed."""
    files = [path for path in home.patches.glob("*.patch") if not path.is_symlink()]
    return sorted({path.name.removesuffix(".patch").partition("@")[0] for path in files})


def _conclude(report: Report, attempts: Sequence[Attempt], fits: Sequence[Fit], options: Options) -> None:
    last = attempts[-1] if attempts else None
    report.series = last.fit.series if last else fits[0].series
    if last is None:
        report.problems = seam_problems(fits[0].breaks)
        report.reason = f"{_count(fits[0])} of the nearest series break"
    else:
        results = last.results
        report.patches, report.probe = results.get("patches"), last.findings
        report.min_cosine, report.shifted_cosine = results.get("min_cosine"), results.get("shifted_cosine")
        names = {step.name for step in last.steps if step.status == "passed"}
        if "numbers" in names and last.steps[-1].status == "passed":
            report.outcome = Outcome.PROVEN
            return
        report.problems = [problem for attempt in attempts for problem in attempt.problems]
        failed = last.steps[-1]
        stopped = f"stopped after {options.until}, as asked" if failed.status == "passed" else ""
        report.reason = stopped or f"{failed.name}: {failed.note}"


def _count(fit: Fit) -> str:
    return f"{len(fit.breaks)} seam{'' if len(fit.breaks) == 1 else 's'}"
