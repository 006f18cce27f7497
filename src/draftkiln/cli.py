"""The command line. Each command is a module of its room, imported only when it is asked for."""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

from draftkiln import __version__
from draftkiln.errors import DraftkilnError, ExitCode, StorageError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No room, which a write tells without the name of a file."""


class Command(NamedTuple):
    """One command: its line in `--help` and the module with `add_arguments(parser)` and `main(arguments) -> int`."""

    help: str
    module: str


COMMANDS = {
    "run": Command("run all stages of a recipe and print what came out", "draftkiln.pipeline"),
    "prepare": Command("conversations -> token ids and loss masks", "draftkiln.prepare.command"),
    "show": Command("show a sample with its trained tokens coloured", "draftkiln.prepare.show"),
    "regenerate": Command("have the target answer prompts, write conversations", "draftkiln.prepare.regenerate"),
    "extract": Command("token ids -> hidden states of the target", "draftkiln.extract.command"),
    "replica": Command("one engine of `extract --ray`; started by it", "draftkiln.scale.replica_command"),
    "copy": Command("copy an extracted run to an object store, or from one", "draftkiln.scale.copy_command"),
    "launch": Command("print the job that runs a stage on a cluster", "draftkiln.scale.launch_command"),
    "merge": Command("make one run of the shards that several hosts extracted", "draftkiln.extract.merge"),
    "validate": Command("check extracted states, also against a reference", "draftkiln.validate.command"),
    "convert": Command("samples of speculators 0.3 and 0.4 -> a run directory", "draftkiln.convert.command"),
    "train": Command("hidden states -> draft", "draftkiln.train.command"),
    "export": Command("trained draft -> what vLLM and SGLang load", "draftkiln.export.command"),
    "evaluate": Command("serve target and draft, measure the acceptance length", "draftkiln.evaluate.command"),
    "report": Command("write one page that says what a run was", "draftkiln.report.command"),
    "diff": Command("what differs between two runs, inputs first", "draftkiln.report.diff"),
    "inspect": Command("print what a draft is", "draftkiln.export.inspect"),
    "status": Command("show how far a run is", "draftkiln.extract.status"),
    "bench": Command("measure extraction beside plain prefill", "draftkiln.extract.bench"),
    "bench-prepare": Command("measure preparation beside speculators' own", "draftkiln.prepare.bench"),
    "bench-train": Command("measure training beside speculators' own command", "draftkiln.train.bench"),
    "make-target": Command("write a small made-up target from a seed", "draftkiln.target.make_command"),
    "fetch-target": Command("fetch a pinned target, hash-checked", "draftkiln.target.fetch_command"),
    "recipes": Command("list, copy and validate recipes", "draftkiln.recipe.command"),
    "stack": Command("list, lock and install stacks", "draftkiln.stack.command"),
    "image": Command("build, verify, compare, run and ship images", "draftkiln.containers.command"),
    "bundle": Command("write an offline bundle for hosts without a network", "draftkiln.containers.bundle_command"),
    "patches": Command("list, check, apply and move the patches to speculators", "draftkiln.patches.command"),
    "seams": Command("find what a vLLM build changed under the patched files", "draftkiln.seams.command"),
    "matrix": Command("prove every pair of speculators and vLLM on the real engine", "draftkiln.matrix.command"),
    "refresh": Command("take a new vLLM build and prove it, or say what breaks", "draftkiln.refresh.command"),
    "bisect": Command("find the first vLLM build at which something breaks", "draftkiln.refresh.bisect_command"),
    "preflight": Command("all that can be known before weights load", "draftkiln.preflight.command"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; errors go to stderr as what / why / do."""
    if sys.stdout is None:  # closed by the caller: what is asked for is done all the same
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open as long as the program
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or stream.encoding != "utf-8"):
            stream.reconfigure(errors="replace")  # a locale that lacks a character shows `?` for it
    parser = argparse.ArgumentParser(prog="draftkiln", description="Train EAGLE-3 drafts from a pinned, patched vLLM.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    arguments = sys.argv[1:] if argv is None else argv
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.help, description=command.help)
        if name == chosen:
            module = importlib.import_module(command.module)
            module.add_arguments(subparser)
            subparser.set_defaults(main=module.main)
    parsed = parser.parse_args(arguments)
    try:
        code = int(parsed.main(parsed))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.filename is None and error.errno not in _FULL:
            raise
        what = "cannot write" if error.filename is None else f"cannot use {error.filename}"
        fix = "free some room" if error.errno in _FULL else "name another place"
        problem = StorageError(what, why=error.strerror or str(error), fix=f"{fix}; what is written stays")
        _drop_unwritten()
        print(f"draftkiln {parsed.command}: {problem}", file=sys.stderr)
        return problem.code
    except DraftkilnError as error:
        print(f"draftkiln {parsed.command}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print(f"draftkiln {parsed.command}: interrupted; what is written stays, run it again to go on", file=sys.stderr)
        return ExitCode.INTERRUPTED
    return code


def _drop_unwritten() -> None:
    """Give up what standard output does not take, or Python tries once more at its end and changes the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
