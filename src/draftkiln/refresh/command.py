"""`draftkiln refresh`: take a vLLM build nobody here has seen and prove it, or say what stands in the way."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln import durable
from draftkiln.counts import positive
from draftkiln.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from draftkiln.refresh.report import Report
    from draftkiln.refresh.wanted import Question

_EPILOG = """\
ends in exactly one of: proven, needs work, no newer build, gone, no network
examples:
  draftkiln refresh --vllm 0.24.0
  draftkiln refresh --vllm latest
  draftkiln refresh --vllm nightly --index URL
  draftkiln refresh --vllm vllm-0.33.0.dev5-cp38-abi3-linux_x86_64.whl --sha256 HASH
  draftkiln refresh --vllm 0.24.0 --until seams          # seconds, nothing installed
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from draftkiln.refresh.attempt import STEPS

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("--vllm", metavar="BUILD", help="version, latest, nightly, commit, wheel file or URL")
    parser.add_argument("--index", metavar="URL", help="index of nightly and per-commit wheels")
    parser.add_argument("--sha256", metavar="HASH", help="what the wheel must hash to")
    parser.add_argument("--speculators", default="0.4.0.1", metavar="VERSION", help="default: %(default)s")
    parser.add_argument("--target", default="small", choices=("small", "kimi-tiny"), help="default: %(default)s")
    parser.add_argument("--until", default=STEPS[-1], choices=STEPS, help="stop after this step")
    parser.add_argument("--image", action="store_true", help="build the candidate's image as well")
    parser.add_argument("--tries", type=positive, default=3, metavar="N", help="series that are tried (default: 3)")
    parser.add_argument("--again", action="store_true", help="also a build that has a stack already")
    parser.add_argument("--keep", action="store_true", help="leave the environment that is made for this")
    parser.add_argument(
        "--write",
        default="proven",
        choices=("proven", "always", "never"),
        help="when the candidate goes into the repository (default: %(default)s)",
    )
    parser.add_argument("--record", action="store_true", help="list the result in docs/refresh.md whatever it is")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the report for a pull request or an issue")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--badges", action="store_true", help="only write the README's table from the matrix")


def main(arguments: argparse.Namespace) -> int:
    """Refresh, report, and keep what was proven.

    Raises:
        DraftkilnError: a fault of the input or of this machine.
    """
    from draftkiln.refresh import badges, keeping
    from draftkiln.refresh import refresh as work
    from draftkiln.refresh.indexes import VARIABLE
    from draftkiln.refresh.outcome import EXIT_CODES, Outcome
    from draftkiln.refresh.wanted import Question

    if arguments.badges:
        badges.refresh()
        return ExitCode.OK
    if not arguments.vllm:
        raise UsageError("refresh: no build is named", fix="add --vllm VERSION, latest, nightly, COMMIT or FILE")
    question = Question(arguments.vllm, arguments.index or os.environ.get(VARIABLE), arguments.sha256)
    _refuse(question, arguments)
    options = work.Options(
        speculators=arguments.speculators,
        target=arguments.target,
        until=arguments.until,
        image=arguments.image,
        again=arguments.again,
        keep=arguments.keep,
        tries=max(1, arguments.tries),
    )
    report = work.refresh(question, options, _tell)
    writes = arguments.write == "always" or (arguments.write == "proven" and report.outcome is Outcome.PROVEN)
    try:
        if writes and report.home:
            report.written = keeping.keep(report, Path(report.home))
        if arguments.record or (writes and report.home):
            report.written += keeping.note(report)
    finally:
        _show(report, arguments)
    return EXIT_CODES[report.outcome]


def _refuse(question: Question, arguments: argparse.Namespace) -> None:
    """Refuse wrong arguments at once, before another refresh is waited for and hours of work are reported nowhere."""
    from packaging.version import InvalidVersion, Version

    from draftkiln.refresh import ranking, wanted

    wanted.refuse(question)
    try:
        Version(arguments.speculators)
    except InvalidVersion as error:
        raise UsageError(
            f"--speculators {arguments.speculators}: not a version", fix="name a release, such as 0.4.0.1"
        ) from error
    ranking.known(arguments.speculators)
    for option, file in (("--markdown", arguments.markdown), ("--report", arguments.report)):
        if file is not None and (file.is_dir() or durable.unwritable(file.parent)):
            why = "it is a folder" if file.is_dir() else f"{durable.unwritable(file.parent)} cannot be written"
            raise UsageError(f"{option} {file}: no report can be written there", why=why, fix="name another file")


def _show(report: Report, arguments: argparse.Namespace) -> None:
    from draftkiln.refresh import report as reports

    if arguments.markdown:
        durable.write_text(arguments.markdown, reports.as_markdown(report))
    if arguments.report:
        durable.write_json(arguments.report, reports.as_json(report))
    print(json.dumps(reports.as_json(report), indent=2) if arguments.json else reports.as_text(report))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
