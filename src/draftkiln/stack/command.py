"""`draftkiln stack`: list, lock and install stacks."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from draftkiln.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="one line a stack: engine, speculators, series, lock")
    listing.add_argument("--json", action="store_true")
    lock = actions.add_parser("lock", help="resolve as of the stack's date and write its locks")
    lock.add_argument("names", nargs="*", metavar="STACK", help="default: all")
    lock.add_argument("--keep", action="store_true", help="keep requirements.lock; record only the patched wheel")
    install = actions.add_parser("install", help="make the environment from the lock and print its interpreter")
    install.add_argument("name", metavar="STACK")
    execute = actions.add_parser("exec", help="run the stack's Python: draftkiln stack exec STACK -- -c 'import vllm'")
    execute.add_argument("--path", type=Path, action="append", default=[], help="one more folder for PYTHONPATH")
    execute.add_argument("name", metavar="STACK")
    execute.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- ARGUMENT …", help="of Python")


def main(arguments: argparse.Namespace) -> int:
    """Run one subcommand."""
    return {"list": _list, "lock": _lock, "install": _install, "exec": _exec}[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    from draftkiln.stack.model import names, read

    stacks = [read(name) for name in names()]
    if arguments.json:
        rows = {s.name: {**s.file.model_dump(mode="json"), "lock": s.lock and s.lock.model_dump()} for s in stacks}
        print(json.dumps(rows, indent=2))
    else:
        for stack in stacks:
            file, lock = stack.file, stack.lock
            locked = f"{lock.packages} packages as of {file.as_of:%Y-%m-%d}" if lock else "not locked"
            engine = f"{file.engine.package} {file.engine.version}"
            print(f"{stack.name:30} {engine:18} speculators {file.speculators.version:8} {file.device:5} {locked}")
    return ExitCode.OK


def _lock(arguments: argparse.Namespace) -> int:
    from draftkiln.stack.locking import lock
    from draftkiln.stack.model import names

    for name in arguments.names or names():
        values = lock(name, refresh=not arguments.keep).locked()
        print(f"{name}: {values.packages} packages, patched tree {values.patched_tree}")
    return ExitCode.OK


def _install(arguments: argparse.Namespace) -> int:
    from draftkiln.stack.environment import ensure

    print(ensure(arguments.name).python)
    return ExitCode.OK


def _exec(arguments: argparse.Namespace) -> int:
    from draftkiln.stack.environment import ensure

    environment = ensure(arguments.name)
    program = arguments.arguments[1:] if arguments.arguments[:1] == ["--"] else arguments.arguments
    variables = environment.variables()
    paths = [variables["PYTHONPATH"], *(str(path.resolve()) for path in arguments.path)]
    variables["PYTHONPATH"] = os.pathsep.join(paths)
    os.execve(environment.python, [str(environment.python), *program], variables)
