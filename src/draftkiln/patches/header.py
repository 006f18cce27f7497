"""The header of a patch: a git mail whose commit message says why the patch exists, closed by checked trailers.

Format: `git format-patch` (From, Date, Subject, blank line, message, diff). The message's last paragraph holds the
trailers; `TRAILERS` says which ones and what their values look like.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from draftkiln.errors import ProblemsError
from draftkiln.patches import mail
from draftkiln.patches.mail import Line, Problems

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

PACKAGE = "speculators"
_BREAKS_MAIL = re.compile(r"^(diff -|Index: |---(\s|$)|\+\+\+ |@@ )")
_IN_BODY_HEADER = re.compile(r"^(From|Date|Subject): ")
_TRAILER = re.compile(r"^(?P<key>[A-Z][A-Za-z-]*): (?P<value>\S.*)$")
_VALUE_AND_NOTE = re.compile(r"^(?P<value>[^\[\]]+?)(?: \[(?P<note>.+)\])?$")
_AUTHOR = re.compile(r"^[^<>]*[^<>\s] <[^<>\s]+@[^<>\s]+>$")
_CHECK = re.compile(r"^tests/[\w./-]+\.py(::\w+)+$")


class UpstreamState(StrEnum):
    """Where a patch stands with the project it patches (the words of Yocto's Upstream-Status)."""

    PENDING = "Pending"
    SUBMITTED = "Submitted"
    BACKPORT = "Backport"
    DENIED = "Denied"
    INAPPROPRIATE = "Inappropriate"
    INACTIVE_UPSTREAM = "Inactive-Upstream"


_NEEDS_NOTE = frozenset({UpstreamState.SUBMITTED, UpstreamState.BACKPORT, UpstreamState.DENIED})


class Trailer(NamedTuple):
    """How often a trailer may stand in a patch, and an example of its value."""

    required: bool
    repeatable: bool
    example: str


TRAILERS = {
    "Upstream-Status": Trailer(required=True, repeatable=False, example="Inappropriate [upstream removed the file]"),
    "Origin": Trailer(required=True, repeatable=False, example="draftkiln"),
    "Bug": Trailer(required=False, repeatable=True, example="https://github.com/vllm-project/speculators/issues/279"),
    "Base": Trailer(required=True, repeatable=False, example="speculators==0.3.0"),
    "Needs-Vllm": Trailer(required=False, repeatable=False, example=">=0.16 [is_encoder_decoder became required]"),
    "Check": Trailer(required=True, repeatable=True, example="tests/engine/test_generator.py::test_batches_of_40"),
    "Drop-When": Trailer(required=True, repeatable=False, example="no stack uses speculators 0.3.0"),
    "Signed-off-by": Trailer(required=False, repeatable=True, example="A Name <name@example.org>"),
    "Co-authored-by": Trailer(required=False, repeatable=True, example="A Name <name@example.org>"),
}


@dataclass(frozen=True)
class Header:
    """What a patch says of itself."""

    subject: str
    author: str
    date: datetime
    prose: str
    upstream_state: UpstreamState
    upstream_note: str
    origin: str
    bugs: tuple[str, ...]
    base: str
    """Version of speculators that the text was made on."""
    needs_vllm: SpecifierSet | None
    needs_vllm_note: str
    checks: tuple[str, ...]
    """Tests that fail without the patch, `tests/path.py::test_name`."""
    drop_when: str


def parse(text: str, path: Path) -> Header:
    """Parse the header of the patch `text`; `path` only names it in messages.

    Raises:
        ProblemsError: all that is wrong with it, each with file and line.
    """
    problems = Problems(path)
    head, message = mail.split(text)
    fields = mail.fields(head, problems)
    prose, trailers = _message_parts(message)
    _check_prose(prose, problems)
    if not trailers:
        problems.add(
            message[-1].number if message else 1,
            "no trailers",
            why="the last paragraph of the message is not made of `Key: value` lines",
            fix="close the message with a paragraph of trailers: "
            + ", ".join(k for k, t in TRAILERS.items() if t.required),
        )
    values = _trailer_values(trailers, problems)
    last = (message or head or [Line(1, "")])[-1].number
    header = _build(fields, prose, values, last, problems, report_missing=bool(trailers))
    if header is None or problems.found:
        raise ProblemsError(problems.found)
    return header


def _message_parts(message: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    start = max((index + 1 for index, line in enumerate(message) if not line.text.strip()), default=0)
    last_paragraph = list(message[start:])
    first_is_trailer = bool(last_paragraph) and _TRAILER.match(last_paragraph[0].text)
    if first_is_trailer and all(
        _TRAILER.match(line.text) or line.text.startswith((" ", "\t")) for line in last_paragraph
    ):
        return list(message[:start]), last_paragraph
    return list(message), []


def _check_prose(prose: Sequence[Line], problems: Problems) -> None:
    written = [line for line in prose if line.text.strip()]
    if not written:
        problems.add(
            prose[0].number if prose else 1,
            "the message is empty",
            fix="say the symptom, the cause, and why a patch is the only way",
        )
    elif _IN_BODY_HEADER.match(written[0].text):
        problems.add(written[0].number, "git reads this first line as a mail header", fix="start with a sentence")
    for number, text in written:
        if _BREAKS_MAIL.match(text):
            problems.add(number, f"git takes {text[:20]!r} for the start of the diff", fix="indent the line")


def _trailer_values(trailers: Sequence[Line], problems: Problems) -> dict[str, list[Line]]:
    values: dict[str, list[Line]] = {}
    last = ""
    for number, text in trailers:
        match = _TRAILER.match(text)
        if match is None:
            values[last][-1] = Line(values[last][-1].number, f"{values[last][-1].text} {text.strip()}")
            continue
        last = match["key"]
        known = TRAILERS.get(last)
        if known is None:
            problems.add(number, f"unknown trailer {last}", fix=f"known are {', '.join(TRAILERS)}")
        elif last in values and not known.repeatable:
            problems.add(number, f"{last} stands twice", fix="keep one")
        values.setdefault(last, []).append(Line(number, match["value"].strip()))
    return values


def _build(
    fields: dict[str, Line],
    prose: Sequence[Line],
    values: dict[str, list[Line]],
    last: int,
    problems: Problems,
    *,
    report_missing: bool,
) -> Header | None:
    for key in ("From", "Date", "Subject"):
        if not fields.get(key, Line(0, "")).text.strip():
            problems.add(
                1, f"no {key} in the mail header", fix="make the patch with `draftkiln patches new` or `export`"
            )
    author = fields.get("From")
    if author is not None and author.text.strip() and not _AUTHOR.match(author.text):
        problems.add(
            author.number, f"From {author.text!r} is no author", fix="write it as `From: A Name <a@b.example>`"
        )
    for key, trailer in TRAILERS.items():
        if report_missing and trailer.required and key not in values:
            problems.add(last, f"{key} is missing", fix=f"add a trailer such as `{key}: {trailer.example}`")
    date = _date(fields.get("Date"), problems)
    state, state_note = _upstream(values.get("Upstream-Status"), problems)
    base = _base(values.get("Base"), problems)
    needs, needs_note = _needs_vllm(values.get("Needs-Vllm"), problems)
    checks = _checks(values.get("Check", []), problems)
    if problems.found or date is None or state is None or base is None:
        return None
    return Header(
        subject=fields["Subject"].text,
        author=fields["From"].text,
        date=date,
        prose="\n".join(line.text for line in prose).strip(),
        upstream_state=state,
        upstream_note=state_note,
        origin=values["Origin"][0].text,
        bugs=tuple(line.text for line in values.get("Bug", [])),
        base=base,
        needs_vllm=needs,
        needs_vllm_note=needs_note,
        checks=checks,
        drop_when=values["Drop-When"][0].text,
    )


def _date(line: Line | None, problems: Problems) -> datetime | None:
    if line is None:
        return None
    try:
        date = parsedate_to_datetime(line.text)
    except (ValueError, TypeError, IndexError, OverflowError):
        date = None
    if date is None or date.tzinfo is None:
        problems.add(
            line.number, f"{line.text!r} is not a mail date", fix="write it as `Thu, 1 Jan 2026 12:00:00 +0000`"
        )
        return None
    return date


def _upstream(lines: Sequence[Line] | None, problems: Problems) -> tuple[UpstreamState | None, str]:
    if not lines:
        return None, ""
    number, text = lines[0]
    match = _VALUE_AND_NOTE.match(text)
    word, note = (match["value"], match["note"] or "") if match else (text, "")
    states = [state.value for state in UpstreamState]
    if word not in states:
        problems.add(
            number,
            f"Upstream-Status {text!r} is none of {', '.join(states)}",
            fix="write one of them, then `[why or link]`",
        )
        return None, ""
    state = UpstreamState(word)
    if state in _NEEDS_NOTE and not note:
        problems.add(number, f"Upstream-Status {word} does not say where", fix=f"write `{word} [link or why]`")
    return state, note


def _base(lines: Sequence[Line] | None, problems: Problems) -> str | None:
    if not lines:
        return None
    number, text = lines[0]
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        requirement = None
    pins = list(requirement.specifier) if requirement else []
    if requirement is None or requirement.name != PACKAGE or [pin.operator for pin in pins] != ["=="] or "*" in text:
        problems.add(number, f"Base {text!r} does not pin {PACKAGE}", fix=f"write `Base: {TRAILERS['Base'].example}`")
        return None
    return pins[0].version


def _needs_vllm(lines: Sequence[Line] | None, problems: Problems) -> tuple[SpecifierSet | None, str]:
    if not lines:
        return None, ""
    number, text = lines[0]
    match = _VALUE_AND_NOTE.match(text)
    try:
        return SpecifierSet(match["value"] if match else text), (match["note"] or "") if match else ""
    except InvalidSpecifier:
        problems.add(
            number, f"Needs-Vllm {text!r} is no version range", fix=f"write `{TRAILERS['Needs-Vllm'].example}`"
        )
        return None, ""


def _checks(lines: Sequence[Line], problems: Problems) -> tuple[str, ...]:
    for number, text in lines:
        if not _CHECK.match(text):
            problems.add(number, f"Check {text!r} names no test", fix=f"write `Check: {TRAILERS['Check'].example}`")
    return tuple(line.text for line in lines)
