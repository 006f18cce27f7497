"""One row a patch: who applies it, where it stands upstream, how old and how long it is, which test proves it."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln.patches import mail, uses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.patches.queue import Queue
    from draftkiln.patches.uses import Use


_NO_LIMIT = 1000
"""Columns: nothing is folded, since a name that is cut cannot be copied."""


@dataclass(frozen=True)
class Row:
    """A patch, for `draftkiln patches list`."""

    patch: str
    subject: str
    stacks: tuple[str, ...]
    upstream_status: str
    upstream_note: str
    base: str
    needs_vllm: str
    age_days: int
    lines_added: int
    lines_removed: int
    checks: tuple[str, ...]
    drop_when: str


def rows(queue: Queue, every_use: Sequence[Use], now: dt.datetime) -> list[Row]:
    """A row for each patch of the pool, in the pool's order."""
    stacks: dict[str, list[str]] = {}
    for use in every_use:
        for patch in uses.patches_of(use, queue.series):
            stacks.setdefault(patch.name, []).append(use.stack)
    found = []
    for patch in queue.pool:
        header = patch.header
        diff = mail.diff_of(patch.text)
        found.append(
            Row(
                patch=patch.name,
                subject=header.subject,
                stacks=tuple(stacks.get(patch.name, ())),
                upstream_status=header.upstream_state.value,
                upstream_note=header.upstream_note,
                base=header.base,
                needs_vllm=str(header.needs_vllm or ""),
                age_days=max(0, (now - header.date.astimezone(dt.UTC)).days),
                lines_added=len(re.findall(r"^\+(?!\+\+ )", diff, re.MULTILINE)),
                lines_removed=len(re.findall(r"^-(?!-- )", diff, re.MULTILINE)),
                checks=header.checks,
                drop_when=header.drop_when,
            )
        )
    return found


def table(found: Sequence[Row], *, color: bool) -> str:
    """The rows as text, a column each; a test is named by its file, whose name no other test file has."""
    from rich.console import Console
    from rich.table import Table

    every_stack = sorted({stack for row in found for stack in row.stacks})
    printed = Table(box=None, pad_edge=False)
    for title in ("patch", "stacks", "Upstream-Status", "age", "lines", "test"):
        printed.add_column(title, no_wrap=True)
    for row in found:
        marks = "".join(str(number) if stack in row.stacks else "·" for number, stack in enumerate(every_stack, 1))
        lines = f"+{row.lines_added} -{row.lines_removed}"
        tests = "\n".join(check.rpartition("/")[2] for check in row.checks)
        printed.add_row(row.patch, marks, row.upstream_status, f"{row.age_days} d", lines, tests)
    console = Console(width=_NO_LIMIT, no_color=not color, highlight=False)
    with console.capture() as capture:
        console.print(printed)
        for number, stack in enumerate(every_stack, 1):
            console.print(f"{number} {stack}", markup=False)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
