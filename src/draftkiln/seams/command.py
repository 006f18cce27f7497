"""`draftkiln seams extract | check | probe`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import ExitCode, UsageError

if TYPE_CHECKING:
    import argparse

    from draftkiln.seams.model import SeamList


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `draftkiln seams`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    extract = actions.add_parser("extract", help="list the seams of a tree of speculators")
    _add_tree(extract, required=True)
    extract.add_argument("--vllm", metavar="BUILD", help="record this build's signatures as the baseline (as in check)")
    extract.add_argument("--out", type=Path, metavar="FILE", help="write the list there (default: standard output)")
    check = actions.add_parser("check", help="compare seams with the sources of a vLLM build, which is never imported")
    check.add_argument(
        "--vllm",
        default="installed",
        metavar="BUILD",
        help="installed, a wheel, a folder or a version (default: installed)",
    )
    check.add_argument("--stack", help="with --vllm installed: the stack whose environment is read")
    check.add_argument("--seams", type=Path, metavar="FILE", help="a list that extract wrote")
    check.add_argument(
        "--architecture", action="append", metavar="NAME", help="architecture of the target (repeat for several)"
    )
    check.add_argument("--json", action="store_true", help="print JSON")
    _add_tree(check, required=False)
    probe = actions.add_parser("probe", help="drive the real engine parts with a stub model, inside a stack")
    probe.add_argument("--stack", help="the stack to probe (default: the environment that runs this)")
    probe.add_argument("--tree", type=Path, metavar="DIR", help="speculators to probe instead of the stack's own")
    probe.add_argument("--json", action="store_true", help="print JSON")


def _add_tree(parser: argparse.ArgumentParser, *, required: bool) -> None:
    group = parser.add_mutually_exclusive_group(required=required)
    if required:
        group.add_argument(
            "--stack", metavar="NAME", help="the stack's patched wheel and vLLM, into the queue's own list"
        )
    group.add_argument("--tree", type=Path, metavar="DIR", help="unpacked speculators, patched or pristine")
    group.add_argument("--wheel", type=Path, metavar="FILE", help="a wheel of speculators, patched or pristine")
    parser.add_argument(
        "--series", metavar="NAME", help="the series that the tree has applied: names the patch of each line"
    )
    parser.add_argument("--pool", type=Path, metavar="DIR", help="folder of the patches (default: the project's own)")


def main(arguments: argparse.Namespace) -> int:
    """Run one action."""
    if arguments.action == "probe":
        from draftkiln.seams.probe_command import run

        return run(arguments)
    return _extract(arguments) if arguments.action == "extract" else _check(arguments)


def _from_tree(arguments: argparse.Namespace) -> SeamList:
    from draftkiln.patches.queue import queue_folder
    from draftkiln.seams.extract import extract, speculators_version
    from draftkiln.seams.owners import owner_lookup, read_series
    from draftkiln.seams.sources import open_sources

    sources = open_sources(arguments.tree or arguments.wheel, "speculators")
    series = arguments.series or "pristine"
    if arguments.series is None:
        return extract(sources, series=series)
    patches = read_series(arguments.pool or queue_folder(), series, speculators_version(sources))
    return extract(sources, series=series, owner=owner_lookup(sources, patches))


def _extract(arguments: argparse.Namespace) -> int:
    from draftkiln import durable
    from draftkiln.seams.check import with_baseline
    from draftkiln.seams.engines import open_engine
    from draftkiln.seams.model import to_json

    if arguments.stack:
        _fill_in(arguments)
    seams = _from_tree(arguments)
    if arguments.vllm:
        engine = open_engine(arguments.vllm)
        seams = with_baseline(seams, engine.sources, engine.name)
    if arguments.out is None:
        print(to_json(seams), end="")
        return ExitCode.OK
    durable.write_text(arguments.out, to_json(seams))
    print(f"{arguments.out}: {len(seams.seams)} seams of speculators {seams.speculators} ({seams.series})")
    return ExitCode.OK


def _fill_in(arguments: argparse.Namespace) -> None:
    """Set what `--stack` stands for, where it is not given besides."""
    from draftkiln import cache
    from draftkiln.patches import base, queue
    from draftkiln.stack import patched
    from draftkiln.stack.model import read

    stack = read(arguments.stack)
    part = stack.file.speculators
    if part.series is None:
        raise UsageError(f"stack {stack.name} patches nothing", fix="name a stack with a series")
    pristine = base.base_wheel("speculators", part.version, stack.locked().base_wheel_sha256, cache.root())
    arguments.wheel = patched.build(pristine, part.series).path
    arguments.series = arguments.series or part.series
    arguments.vllm = arguments.vllm or stack.file.engine.version
    arguments.out = arguments.out or queue.queue_folder() / "seams" / f"{stack.name}.json"


def _check(arguments: argparse.Namespace) -> int:
    from draftkiln.seams import report
    from draftkiln.seams.check import ARCHITECTURES, check
    from draftkiln.seams.engines import open_engine
    from draftkiln.seams.model import from_json

    if bool(arguments.seams) == bool(arguments.tree or arguments.wheel):
        raise UsageError(
            "seams check: what to check is not clear", fix="give one of --seams FILE, --tree DIR or --wheel FILE"
        )
    engine = open_engine(arguments.vllm, _python(arguments.stack))
    start = time.monotonic()
    seams = from_json(arguments.seams) if arguments.seams else _from_tree(arguments)
    result = check(seams, engine.sources, arguments.architecture or ARCHITECTURES)
    seconds = time.monotonic() - start
    if arguments.json:
        print(json.dumps(report.as_json(result, seams, engine.name, seconds), indent=2))
    else:
        print(report.as_text(result, seams, engine.name, seconds))
    return ExitCode.PATCHES if any(item.breaks for item in result.breaks) else ExitCode.OK


def _python(stack: str | None) -> Path | None:
    if stack is None:
        return None
    from draftkiln.stack.environment import folder_of, python_of
    from draftkiln.stack.model import read

    made = folder_of(read(stack))
    # Where it is made already, the patched wheel, which `python_of` would build, is not asked for.
    return made / "bin" / "python" if (made / "complete").exists() else python_of(stack)
