"""What a refresh came to: for a terminal, as JSON, as Markdown for a pull request."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from draftkiln.errors import StorageError
from draftkiln.refresh.outcome import Outcome

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Step:
    """One step that ran."""

    name: str
    status: str
    """`passed`, `failed` or `skipped`."""
    seconds: float
    note: str


@dataclass(frozen=True)
class Problem:
    """One thing that stands in the way."""

    what: str
    before: str = ""
    """What the patched files do."""
    now: str = ""
    """What the build has there."""
    patch: str | None = None
    """Owner of the line; None for upstream's own."""
    lines: tuple[str, ...] = ()
    log: str = ""
    proposal: str = ""
    """What was or could be tried."""


@dataclass
class Report:
    """A refresh from its question to its end."""

    wanted: str
    speculators: str
    date: str
    outcome: Outcome = Outcome.NEEDS_WORK
    reason: str = ""
    build: dict[str, Any] = field(default_factory=dict)
    twin: dict[str, Any] = field(default_factory=dict)
    """The CPU build that was proved in place of `build`; empty where `build` is one."""
    note: str = ""
    stack: str = ""
    series: str = ""
    """Series of which the stack's one was made."""
    patches: int | None = None
    probe: int | None = None
    """Findings of the probe in the last attempt."""
    min_cosine: float | None = None
    shifted_cosine: float | None = None
    steps: list[Step] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    proposals: list[str] = field(default_factory=list)
    """Patches that were made up, for a person to read."""
    written: list[str] = field(default_factory=list)
    home: str = ""
    """Folder that shows the project with the candidate (`DRAFTKILN_HOME`)."""
    work: str = ""
    """Work tree to go on in: the patched files, where something needs work."""

    @property
    def engine(self) -> str:
        """The build in words, as far as it is known."""
        return f"{self.build.get('package', 'vLLM')} {self.build.get('version', self.wanted)}"


def as_json(report: Report) -> dict[str, Any]:
    """The whole report as a JSON object."""
    return {"schema_version": SCHEMA_VERSION, **asdict(report)}


def from_json(path: Path) -> Report:
    """Read a report.

    Raises:
        StorageError: it is none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value.pop("schema_version") != SCHEMA_VERSION:
            raise StorageError(f"{path}: not a report of version {SCHEMA_VERSION}", fix="run the refresh again")
        value["outcome"] = Outcome(value["outcome"])
        value["steps"] = [Step(**step) for step in value["steps"]]
        value["problems"] = [Problem(**{**item, "lines": tuple(item["lines"])}) for item in value["problems"]]
        return Report(**value)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path}: not a report", why=str(error), fix="run the refresh again") from error


def as_text(report: Report) -> str:
    """The report for a terminal."""
    lines = [f"{report.engine}, speculators {report.speculators}: {report.outcome}"]
    lines += [f"  {report.reason}"] if report.reason else []
    lines += [f"  {report.note}"] if report.note else []
    if report.build.get("sha256"):
        commit = f", commit {report.build['commit']}" if report.build.get("commit") else ""
        lines.append(f"  built {report.build['built'][:10]}{commit}, sha256 {report.build['sha256'][:16]}…")
    lines += [f"  {step.status:8}{step.name:13}{step.seconds:7.1f} s  {step.note}" for step in report.steps]
    for problem in report.problems:
        lines += ["", f"{problem.what}"]
        lines += [f"  used:  {problem.before}"] if problem.before else []
        lines += [f"  there: {problem.now}"] if problem.now else []
        owner = f"patch {problem.patch}" if problem.patch else "no patch: upstream's own line"
        lines += [f"  line:  {line} ({owner})" for line in problem.lines]
        lines += [f"  log:   {problem.log}"] if problem.log else []
        lines += [f"  try:   {problem.proposal}"] if problem.proposal else []
    lines += [f"proposed, to be read by a person: {name}" for name in report.proposals]
    if report.work:
        lines += ["", *going_on(report)]
    lines += [f"wrote {name}" for name in report.written]
    return "\n".join(lines)


def going_on(report: Report) -> list[str]:
    """The commands with which a person goes on after *needs work*."""
    return [
        f"the patched files lie in {report.work}; edit them, then:",
        f"  DRAFTKILN_HOME={report.home} draftkiln patches new SLUG --stack {report.stack} --tree {report.work} \\",
        "    --subject … --why … --check tests/….py::test_…",
        f"  draftkiln refresh --vllm {report.wanted} --speculators {report.speculators}   # goes on with that patch",
    ]


def as_markdown(report: Report) -> str:
    """The report as the text of a pull request or an issue."""
    build = report.build
    lines = [
        f"# {report.engine} with speculators {report.speculators}: {report.outcome}",
        "",
        *([report.reason, ""] if report.reason else []),
        *([report.note, ""] if report.note else []),
    ]
    if build.get("sha256"):
        lines += [
            "| build | |",
            "| --- | --- |",
            f"| version | {build['version']} |",
            f"| commit | {build.get('commit') or 'not told'} |",
            f"| built | {build['built']} |",
            f"| sha256 | `{build['sha256']}` |",
            f"| stack | {report.stack or 'none'} |",
            f"| series made from | {report.series or 'none'} |",
            "",
        ]
    if report.steps:
        lines += ["| step | | seconds | |", "| --- | --- | --- | --- |"]
        lines += [f"| {step.name} | {step.status} | {step.seconds:.1f} | {_cell(step.note)} |" for step in report.steps]
        lines.append("")
    for problem in report.problems:
        lines += [f"## {problem.what}", ""]
        if problem.before or problem.now:
            lines += ["```", f"used:  {problem.before}", f"there: {problem.now}", "```"]
        owner = f"patch `{problem.patch}`" if problem.patch else "upstream's own line"
        lines += [f"- `{line}`, {owner}" for line in problem.lines]
        lines += ["", "```", problem.log, "```"] if problem.log else []
        lines += ["", f"To try: {problem.proposal}"] if problem.proposal else []
        lines.append("")
    if report.proposals:
        lines += ["Patches that were made up and must be read by a person:", ""]
        lines += [*(f"- `{name}`" for name in report.proposals), ""]
    return "\n".join(lines).rstrip() + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "/")
