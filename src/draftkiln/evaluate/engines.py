"""Engines as processes: each answers one job and ends; what it printed on the way is its log."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from draftkiln import durable
from draftkiln.cause import last_error, named_error
from draftkiln.errors import EngineError, ExitCode
from draftkiln.evaluate.job import Answers, Job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from draftkiln.stagelog import Terminal

_KEPT_VERSION = 5
"""Of the file that keeps the target's own answers."""
_POLL_S = 0.1
_SIGNALLED = 128
"""An exit code above it is that of a process that a signal ended, as shells count."""


@dataclass(frozen=True)
class Request:
    """One engine: what it is called on the terminal, what it answers, and the file for that."""

    what: str
    job: Job
    answers: Path

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.answers.with_suffix(".log")


def both(
    job: Job, kept: Path, folder: Path, terminal: Terminal, *, environment: str, timeout: float | None = None
) -> tuple[Answers, Answers]:
    """Answers of the target alone and with the draft.

    Args:
        job: with the draft.
        kept: folder that keeps the answers of the target alone: they are the same whatever draft is measured.
        folder: for those with the draft.
        terminal: of the stage.
        environment: what the engine is made of; kept answers of another one are not taken.
        timeout: longest time for each engine in seconds.

    Raises:
        EngineError: an engine did not start, died, or took too long.
    """
    drafted = Request("with the draft", job, folder / "drafted.json")
    alone = Request("alone", replace(job, draft=None), kept / "target.json")
    file, key = kept / "alone.json", durable.sha256_json([_KEPT_VERSION, asdict(alone.job), environment])
    if file.exists():
        found = json.loads(file.read_text(encoding="utf-8"))
        if found.get("job_sha256") == key:
            return Answers.of_json(found["answers"]), answer(drafted, terminal, timeout=timeout)
    with _served([alone, drafted], terminal, timeout) as answers:
        first = next(answers)
        durable.write_json(file, {"job_sha256": key, "answers": asdict(first)})
        return first, next(answers)


def answer(request: Request, terminal: Terminal, *, timeout: float | None = None) -> Answers:
    """Have an engine of its own process answer, and write the answers.

    Raises:
        EngineError: it did not start, died, or took longer than `timeout` seconds; nothing is written then.
    """
    with _served([request], terminal, timeout) as answers:
        return next(answers)


@contextlib.contextmanager
def _served(requests: list[Request], terminal: Terminal, timeout: float | None) -> Iterator[Iterator[Answers]]:
    """Engines one after the other, and their answers as they come; what is left of them at the end is ended."""
    command = [sys.executable, "-m", "draftkiln.evaluate.serve"]
    for one in requests:
        job = one.answers.with_name(f"{one.answers.stem}-job.json")
        durable.write_json(job, asdict(one.job))
        one.answers.unlink(missing_ok=True)
        one.log.unlink(missing_ok=True)
        command += [str(job), str(one.answers)]
    # A file, not a pipe: a worker that outlives its engine would hold a pipe open, and we would wait for it.
    with requests[0].log.open("ab") as output, _ended_by_sigterm():
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=os.environ, process_group=0
        )
        try:
            yield (_answers(process, one, terminal, timeout) for one in requests)
        finally:
            _end(process)


def _answers(process: subprocess.Popen[bytes], request: Request, terminal: Terminal, timeout: float | None) -> Answers:
    job = request.job
    ways = f", {len(job.samplings)} times" if len(job.samplings) > 1 else ""
    terminal.line(f"evaluate: {sum(len(prompts) for _, prompts in job.sets)} prompts{ways}, the target {request.what}")
    ended = _wait(process, request.answers, timeout)
    printed = request.log.read_text(encoding="utf-8", errors="replace") if request.log.exists() else ""
    sys.stderr.write(printed)
    if ended:
        killed = "signal" in ended and named_error(printed) is None
        how = "was killed" if killed else f"failed: {last_error(printed)}"
        more = f" and named no error (out of memory?); its last line was {last_error(printed)!r}" if killed else ""
        raise EngineError(
            f"the engine with the target {request.what} {how}",
            why=f"its process {ended}{more}; its whole output is in {request.log}",
            fix="mend the cause and run the same command again",
        )
    return Answers.of_json(json.loads(request.answers.read_text(encoding="utf-8")))


def _wait(process: subprocess.Popen[bytes], answers: Path, timeout: float | None) -> str:
    """Wait for an engine's answers; gives how it ended where there are none."""
    latest = None if timeout is None else time.monotonic() + timeout
    while True:
        code = process.poll()
        if answers.exists():  # looked at after the process: one that ended has written what it ever will
            return ""
        if code is not None:
            break
        if latest is not None and time.monotonic() > latest:
            return f"was not done after {timeout:g} s (--timeout)"
        time.sleep(_POLL_S)
    if code < 0 or code > _SIGNALLED:
        return f"ended with signal {-code if code < 0 else code - _SIGNALLED}"
    return f"ended with exit code {code}" if code else "wrote no answers"


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
