"""`draftkiln seams probe`: run the probe in a stack's environment and show what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln.errors import EngineError, ExitCode
from draftkiln.seams.probe_findings import Finding

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_PATIENCE = 600
_TAIL = 15


@dataclass(frozen=True)
class Report:
    """What a probe found and how long it took."""

    engine: str
    tree: str
    findings: tuple[Finding, ...]
    import_seconds: float
    probe_seconds: float


def run(arguments: argparse.Namespace) -> int:
    """Probe, print, and tell by the exit code whether anything was found."""
    python, variables = Path(sys.executable), dict(os.environ)
    if arguments.stack is not None:
        from draftkiln.stack.environment import ensure

        environment = ensure(arguments.stack)
        python, variables = environment.python, environment.variables()
    report = probe(python, variables, arguments.tree)
    if arguments.json:
        print(json.dumps(as_json(report), indent=2))
    else:
        print(as_text(report))
    return ExitCode.PATCHES if report.findings else ExitCode.OK


def probe(python: Path, variables: Mapping[str, str], tree: Path | None = None) -> Report:
    """Run the probe with an interpreter that has vLLM.

    Args:
        python: the interpreter.
        variables: its environment; a stack's PYTHONPATH holds the patched speculators and draftkiln.
        tree: speculators to probe instead.

    Raises:
        EngineError: the probe itself did not run to its end.
    """
    command = [str(python), "-m", "draftkiln.seams.probe", *(["--tree", str(tree)] if tree else [])]
    fix = f"run it by hand: {' '.join(command)}"
    try:
        # Files, not pipes: a process that outlives the probe would hold a pipe open, and we would wait for it.
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as log:
            done = subprocess.run(
                command,
                env=dict(variables),
                stdout=output,
                stderr=log,
                stdin=subprocess.DEVNULL,
                timeout=_PATIENCE,
                check=False,
            )
            output.seek(0)
            log.seek(0)
            answer, tail = output.read(), "\n".join(log.read().strip().splitlines()[-_TAIL:])
        value = json.loads(answer.strip().splitlines()[-1])
    except subprocess.TimeoutExpired as error:
        raise EngineError("the probe hangs", why=f"no result in {_PATIENCE} s", fix=fix) from error
    except (ValueError, IndexError) as error:
        raise EngineError(
            "the probe did not run to its end", why=tail or f"exit code {done.returncode}", fix=fix
        ) from error
    except OSError as error:
        raise EngineError(f"cannot run {python}", why=str(error), fix="install the stack again") from error
    findings = tuple(Finding(**item) for item in value["findings"])
    return Report(value["engine"], value["tree"], findings, value["seconds"]["import"], value["seconds"]["probe"])


def as_json(report: Report) -> dict[str, Any]:
    """The report as a JSON object."""
    return {
        "engine": report.engine,
        "tree": report.tree,
        "seconds": {"import": report.import_seconds, "probe": report.probe_seconds},
        "findings": [item.as_json() for item in report.findings],
    }


def as_text(report: Report) -> str:
    """The report for people: a paragraph for each finding, one closing line."""
    lines = []
    for item in report.findings:
        number = f"  [break {item.number}]" if item.number is not None else ""
        lines += [f"{item.what}{number}", f"  with: {item.scenario}", f"  seen: {item.seen}", f"  do:   {item.fix}", ""]
    lines.append(
        f"vLLM {report.engine}: {len(report.findings)} findings; import {report.import_seconds:.1f} s, "
        f"probe {report.probe_seconds:.1f} s"
    )
    return "\n".join(lines)
