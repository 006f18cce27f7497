"""`draftkiln report`: one page that says what a run was."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from draftkiln import durable
from draftkiln.errors import ExitCode
from draftkiln.printable import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

FILE = "report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run directory, the page's name and whether it is opened."""
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="run directory, finished or not")
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"where to write the page (default: RUN/{FILE})")
    parser.add_argument(
        "--open",
        choices=("never", "browser"),
        default="never",
        help="open the page when it is written (default: never)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Write the page of a run and print where it lies."""
    page, damaged = write(arguments.run, arguments.out)
    print(f"report: {page} ({page.stat().st_size / 1e3:.0f} kB)")
    tell(damaged)
    if arguments.open == "browser":
        import webbrowser

        webbrowser.open(page.absolute().as_uri())
    return ExitCode.OK


def tell(damaged: Mapping[str, str]) -> None:
    """Name damaged files on the terminal; the page has them too."""
    for file, why in damaged.items():
        print(f"report: {printable(file)} is damaged: {printable(why)}", file=sys.stderr)


def write(run: Path, out: Path | None = None) -> tuple[Path, dict[str, str]]:
    """Write the page of the run directory `run`; gives its path, and what is wrong with damaged files, by their path.

    A page inside the run links to the run's files; one elsewhere goes without, as it may be sent to others.

    Raises:
        RunDirectoryError: `run` is no run directory.
        StorageError: the page cannot be written.
    """
    from draftkiln.report.page import render
    from draftkiln.report.records import Records

    records = Records.open(run)
    page = out or run / FILE
    inside = page.absolute().parent.resolve().is_relative_to(run.resolve())
    above = quote(os.path.relpath(run.resolve(), page.absolute().parent.resolve()))
    linked = ("" if above == "." else f"{above}/") if inside else None
    durable.write_text(page, render(records, linked))
    return page, {str(run / file): why for file, why in sorted(records.damaged.items())}
