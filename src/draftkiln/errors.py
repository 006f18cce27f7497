"""Every error a person can meet: what happened, why, what to do next, and the exit code.

One table (`ExitCode`) holds the exit codes; docs/errors.md is checked against it.
"""

from __future__ import annotations

import itertools
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class ExitCode(IntEnum):
    """Process exit codes; 130 and 143 follow the shell's convention for SIGINT and SIGTERM."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    RECIPE = 3
    STACK = 4
    PATCHES = 5
    SYSTEM = 6
    TARGET = 7
    DATA = 8
    RUN_DIRECTORY = 9
    STORAGE = 10
    ENGINE = 11
    VALIDATION = 12
    TRAINING = 13
    EVALUATION = 14
    CONTAINER = 15
    NETWORK = 16
    PREFLIGHT = 17
    PIN = 18
    DIFFERENT = 19
    INTERRUPTED = 130
    TERMINATED = 143


class DraftkilnError(Exception):
    """An error with a cause and a next step.

    Args:
        what: what happened, with the file and line or the key path where there is one.
        why: the cause.
        fix: what the reader should do next.
    """

    code = ExitCode.INTERNAL

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what, self.why, self.fix = what, why, fix

    def __str__(self) -> str:
        parts = [self.what]
        if self.why:
            parts.append(f"  why: {self.why}")
        if self.fix:
            parts.append(f"  do:  {self.fix}")
        return "\n".join(parts)


class ProblemsError(DraftkilnError):
    """All problems of one input, reported at once; each is itself a `DraftkilnError`."""

    def __init__(self, problems: Sequence[DraftkilnError]) -> None:
        if not problems:
            raise ValueError("ProblemsError needs at least one problem")
        super().__init__("\n".join(_together(problems)))
        self.problems = tuple(problems)
        self.code = problems[0].code


def _together(problems: Sequence[DraftkilnError]) -> Iterator[str]:
    """The texts of several problems; what to do is said once for those in a row that want the same."""
    for problem, following in itertools.zip_longest(problems, problems[1:]):
        same = following is not None and following.fix == problem.fix
        yield str(DraftkilnError(problem.what, why=problem.why) if same else problem)


class UsageError(DraftkilnError):
    """The command line is not one that this program takes."""

    code = ExitCode.USAGE


class RecipeError(DraftkilnError):
    """A recipe that is missing, is not YAML, or says something wrong."""

    code = ExitCode.RECIPE


class StackError(DraftkilnError):
    """A stack, its lock or its environment that cannot be used."""

    code = ExitCode.STACK


class PatchError(DraftkilnError):
    """A patch, a series or a patched wheel that is not what it must be."""

    code = ExitCode.PATCHES


class SystemMissingError(DraftkilnError):
    """Something this machine lacks: a package, a device, memory."""

    code = ExitCode.SYSTEM


class TargetError(DraftkilnError):
    """A target model that cannot be used as the recipe asks."""

    code = ExitCode.TARGET


class DataError(DraftkilnError):
    """Conversations or samples that are refused."""

    code = ExitCode.DATA


class RunDirectoryError(DraftkilnError):
    """A run directory that belongs to other inputs, or a stage whose inputs are not there."""

    code = ExitCode.RUN_DIRECTORY


class StorageError(DraftkilnError):
    """No room, a read-only place, or an input/output error."""

    code = ExitCode.STORAGE


class EngineError(DraftkilnError):
    """The inference engine failed; its traceback is in the log."""

    code = ExitCode.ENGINE


class ValidationError(DraftkilnError):
    """Hidden states that did not pass a check."""

    code = ExitCode.VALIDATION


class TrainingError(DraftkilnError):
    """Training or export that stopped."""

    code = ExitCode.TRAINING


class EvaluationError(DraftkilnError):
    """A draft that was not served, not lossless, or below the asked acceptance length."""

    code = ExitCode.EVALUATION


class ContainerError(DraftkilnError):
    """A container engine that is too old, refused, or failed."""

    code = ExitCode.CONTAINER


class PinError(DraftkilnError):
    """Something pinned that is gone from where it was, or has other bytes than the locked ones."""

    code = ExitCode.PIN


class NetworkError(DraftkilnError):
    """A download that failed or is not allowed here."""

    code = ExitCode.NETWORK


class PreflightError(DraftkilnError):
    """A finding that must be mended before weights are loaded."""

    code = ExitCode.PREFLIGHT
