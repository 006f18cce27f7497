"""Engines as processes: each answers one job and ends; what it wrote on the way is its log."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, NoReturn

from draftkiln import durable
from draftkiln.cause import last_error
from draftkiln.errors import EngineError, ExitCode
from draftkiln.evaluate.serve import Answers, Job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from draftkiln.stagelog import Terminal

_KEPT_VERSION = 3
"""Of the file that keeps the target's own answers."""


def alone(job: Job, folder: Path, terminal: Terminal, *, environment: str, timeout: float | None = None) -> Answers:
    """Answers of the target alone; kept in `folder`, for they are the same whatever draft is measured.

    Args:
        job: with or without a draft.
        folder: that keeps them.
        terminal: of the stage.
        environment: what the engine is made of; answers of another one are not taken.
        timeout: longest time for the engine in seconds.

    Raises:
        EngineError: the engine did not start, died, or took too long.
    """
    job = replace(job, draft=None)
    file = folder / "alone.json"
    key = durable.sha256_json([_KEPT_VERSION, asdict(job), environment])
    if file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept.get("job_sha256") == key:
            return Answers.of_json(kept["answers"])
    answers = answer("alone", job, folder / "target.json", terminal, timeout=timeout)
    durable.write_json(file, {"job_sha256": key, "answers": asdict(answers)})
    return answers


def answer(what: str, job: Job, answers: Path, terminal: Terminal, *, timeout: float | None = None) -> Answers:
    """Have an engine of its own process answer `job` and write `answers`.

    Raises:
        EngineError: it did not start, died, or took longer than `timeout` seconds; nothing is written then.
    """
    ways = f", {len(job.samplings)} times" if len(job.samplings) > 1 else ""
    terminal.line(f"evaluate: {sum(len(prompts) for _, prompts in job.sets)} prompts{ways}, the target {what}")
    request = answers.with_name(f"{answers.stem}-job.json")
    durable.write_json(request, asdict(job))
    answers.unlink(missing_ok=True)
    command = [sys.executable, "-m", "draftkiln.evaluate.serve", str(request), str(answers)]
    # A file, not a pipe: a worker that outlives its engine would hold a pipe open, and we would wait for it.
    log = answers.with_suffix(".log")
    ended = _run(command, log, timeout)
    printed = log.read_text(encoding="utf-8", errors="replace")
    sys.stderr.write(printed)
    if ended or not answers.exists():
        raise EngineError(
            f"the engine with the target {what} failed: {last_error(printed)}",
            why=f"its process {ended or 'wrote no answers'}; its whole output is in {log}",
            fix="mend the cause and run the same command again",
        )
    return Answers.of_json(json.loads(answers.read_text(encoding="utf-8")))


def _run(command: list[str], log: Path, timeout: float | None) -> str:
    """Run an engine to its end, its workers included; gives how it ended where that was not well."""
    with log.open("wb") as output, _ended_by_sigterm():
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=os.environ, process_group=0
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            return f"was not done after {timeout:g} s (--timeout)"
        finally:
            _end(process)
    if code < 0:
        return f"ended with signal {-code}"
    return f"ended with exit code {code}" if code else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of an engine: its workers are in its group and may outlive it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process in order, so that its engine ends too."""

    def end(_number: int, _frame: object) -> NoReturn:
        raise SystemExit(ExitCode.TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
