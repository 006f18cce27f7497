"""`draftkiln patches`: list, check, apply, export, rebase, new, drop."""

from __future__ import annotations

import argparse
from pathlib import Path

_WHEEL_HELP = "a pristine speculators wheel to use instead of the cache; repeatable"

_EXAMPLES = """\
examples:
  draftkiln patches list
  draftkiln patches check
  draftkiln patches apply --stack spec0.3.0-vllm0.16.0-cpu --out dist
  draftkiln patches apply --stack spec0.3.0-vllm0.16.0-cpu unpacked-wheel/
  draftkiln patches export
  draftkiln patches rebase --stack spec0.3.0-vllm0.16.0-cpu --to speculators==0.4.0.1 --as spec0.4.0.1-vllm0.16.0-cpu
  draftkiln patches rebase --continue
  draftkiln patches drop request-block-hasher
"""
_NEW_EXAMPLES = """\
examples, in this order:
  draftkiln patches new pass-block-size --stack spec0.3.0-vllm0.16.0-cpu --tree edit   # hands out the patched tree
  $EDITOR edit/speculators/data_generation/vllm_hidden_states_generator.py
  draftkiln patches new pass-block-size --stack spec0.3.0-vllm0.16.0-cpu --tree edit \\
      --subject "Pass block_size to the scheduler" --why "Scheduler() has no default for it since vLLM 0.15." \\
      --check tests/engine/extract/test_series.py::test_scheduler_starts --needs-vllm ">=0.15 [block_size]"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="one line a patch: stacks, Upstream-Status, age, lines, test")
    listing.add_argument("--json", action="store_true", help="as JSON")

    check = actions.add_parser("check", help="every series applies, every text, trailer, test and lock is right")
    check.add_argument("--json", action="store_true", help="as JSON")
    _wheel(check)

    apply = actions.add_parser("apply", help="apply a stack's series to an unpacked wheel or to the pristine wheel")
    apply.add_argument("folder", nargs="?", type=Path, help="folder that holds speculators/; none: the pristine wheel")
    _stack(apply)
    apply.add_argument("--out", type=Path, default=Path("dist"), help="folder for the patched wheel (default: dist)")
    apply.add_argument(
        "--accept-offsets", action="store_true", help="take hunks at other lines although no lock confirms them"
    )
    apply.add_argument("--json", action="store_true", help="as JSON: applied, already applied, built or refused")
    _wheel(apply)

    export = actions.add_parser("export", help="rewrite patches as git writes them on their own base")
    export.add_argument(
        "--dry-run", action="store_true", help="only name the files that would change; exit code 5 if any"
    )
    _wheel(export)

    rebase = actions.add_parser("rebase", help="move a series to another speculators release, three-way")
    rebase.add_argument("--to", metavar="speculators==VERSION", help="the release to move to")
    rebase.add_argument("--stack", help="stack whose series moves; needed where there are several")
    rebase.add_argument("--as", dest="written_as", metavar="SERIES", help="write a new series and leave the old one")
    rebase.add_argument("--continue", dest="go_on", action="store_true", help="after a conflict was resolved")
    rebase.add_argument("--abort", action="store_true", help="drop an open rebase")
    rebase.add_argument("--json", action="store_true", help="as JSON")
    _wheel(rebase)

    new = actions.add_parser(
        "new",
        help="start a patch from an edited tree",
        epilog=_NEW_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    new.add_argument("slug", help="name of the patch: lower-case words joined by -")
    _stack(new)
    new.add_argument(
        "--tree", type=Path, required=True, help="absent: hand the patched tree out there; else take it in"
    )
    new.add_argument("--subject", help="one line: what the patch does")
    new.add_argument("--why", help="symptom, cause, and why a patch is the only way")
    new.add_argument(
        "--check", action="append", default=[], help="test that fails without it: tests/path.py::test_name"
    )
    new.add_argument("--upstream-status", default="Pending", help="default: Pending")
    new.add_argument("--origin", default="draftkiln", help="default: draftkiln")
    new.add_argument("--bug", action="append", default=[], help="report that it mends")
    new.add_argument("--needs-vllm", help='such as ">=0.16 [what changed]"')
    new.add_argument("--drop-when", default="upstream has it", help="default: upstream has it")
    new.add_argument("--author", help='"Name <mail>"; default: who git says you are')
    _wheel(new)

    drop = actions.add_parser("drop", help="take out a patch that upstream has")
    drop.add_argument("slug", help="name of the patch")
    drop.add_argument("--force", action="store_true", help="although no release has the change")
    _wheel(drop)


def main(arguments: argparse.Namespace) -> int:
    """Run one subcommand."""
    if arguments.action in {"new", "drop", "rebase"}:
        from draftkiln.patches import changes

        return {"new": changes.new, "drop": changes.drop, "rebase": changes.rebase}[arguments.action](arguments)
    from draftkiln.patches import actions

    run = {"list": actions.list_patches, "check": actions.check, "apply": actions.apply, "export": actions.export}
    return run[arguments.action](arguments)


def _stack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stack", required=True, help="stack whose release, series and lock are meant")


def _wheel(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wheel", type=Path, action="append", default=[], help=_WHEEL_HELP)
