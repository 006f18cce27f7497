"""`draftkiln matrix`: prove every pair of speculators and vLLM on the real engine and write the table in docs/."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from draftkiln import cache, durable
from draftkiln.errors import ExitCode, PatchError, ProblemsError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from draftkiln.matrix.pairs import Pair
    from draftkiln.matrix.record import Row

TARGETS = ("small", "kimi-tiny")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--only", action="append", default=[], metavar="STACK", help="this pair; repeat for several")
    parser.add_argument("--again", action="store_true", help="prove pairs anew whose proof still stands")
    parser.add_argument("--target", choices=TARGETS, default=TARGETS[0], help="made target (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave environments that are made for this")
    parser.add_argument("--dry-run", action="store_true", help="say what stands and what would be proved, run nothing")


def main(arguments: argparse.Namespace) -> int:
    """Prove the pairs that are due, one after the other; each result is written before the next begins.

    Raises:
        ProblemsError: every pair that does not hold.
    """
    from draftkiln.matrix import environments, pairs, prove, record
    from draftkiln.stack.model import read

    every = pairs.every_pair()
    rows = record.load(record.json_file())
    for pair in pairs.chosen(arguments.only, every):
        due = "asked for" if arguments.again else why_due(pair, rows)
        if arguments.dry_run or not due:
            _tell(f"{pair.stack}: {'to do, ' + due if due else f'holds since {rows[pair.stack].date}'}")
            continue
        with environments.borrowed(read(pair.stack), keep=arguments.keep):
            row = prove.prove(pair, arguments.target, cache.root() / "matrix" / pair.stack, _tell)
        rows[pair.stack] = row
        _write(rows, [one.stack for one in every])
        _tell(f"{pair.stack}: {f'FAILS, {row.failed}' if row.failed else 'holds'} ({row.seconds:.0f} s)")
    broken = [] if arguments.dry_run else [_problem(rows[pair.stack]) for pair in every if _fails(pair, rows)]
    if broken:
        raise ProblemsError(broken)
    return ExitCode.OK


def why_due(pair: Pair, rows: Mapping[str, Row]) -> str:
    """Why a pair must be proved (again); empty where its proof stands."""
    row = rows.get(pair.stack)
    if row is None:
        return "never proved"
    if row.failed:
        return f"failed on {row.date}"
    return "" if row.identity == pair.identity else "its lock changed since"


def _fails(pair: Pair, rows: Mapping[str, Row]) -> bool:
    return pair.stack in rows and bool(rows[pair.stack].failed)


def _problem(row: Row) -> PatchError:
    return PatchError(
        f"{row.stack} does not hold",
        why=row.failed,
        fix=f"logs are in {cache.root() / 'matrix' / row.stack}; once mended: nox -s matrix",
    )


def _write(rows: Mapping[str, Row], order: list[str]) -> None:
    from draftkiln.matrix import record

    record.save(record.json_file(), rows, order)
    page = record.table_file()
    kept = [rows[stack] for stack in order if stack in rows]
    durable.write_text(page, record.page(page.read_text(encoding="utf-8"), kept))


def _tell(text: str) -> None:
    print(text, file=sys.stdout, flush=True)
