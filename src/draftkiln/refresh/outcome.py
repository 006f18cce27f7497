"""How a refresh ends, and the errors that mean one of these ends."""

from __future__ import annotations

from enum import StrEnum

from draftkiln.errors import DraftkilnError, ExitCode, NetworkError, PinError


class Outcome(StrEnum):
    """The five ends of a refresh."""

    PROVEN = "proven"
    NEEDS_WORK = "needs work"
    NO_NEWER = "no newer build"
    GONE = "gone"
    NO_NETWORK = "no network"


EXIT_CODES = {
    Outcome.PROVEN: ExitCode.OK,
    Outcome.NEEDS_WORK: ExitCode.PATCHES,
    Outcome.NO_NEWER: ExitCode.OK,
    Outcome.GONE: ExitCode.PIN,
    Outcome.NO_NETWORK: ExitCode.NETWORK,
}


class GoneError(PinError):
    """The build asked for is not, or not any more, where it was asked for; the same command may never succeed."""


class UnansweredError(NetworkError):
    """Nobody could be asked: no network, a rate limit, an index that fails or hangs. Nothing is known of the build."""


class NoNewerError(DraftkilnError):
    """The newest build that is offered is the one that a stack has already, or an older one."""

    code = ExitCode.OK


def outcome_of(error: DraftkilnError) -> Outcome | None:
    """The end that an error means; None for a fault of the input (not vLLM, other bytes, a cut file)."""
    if isinstance(error, GoneError):
        return Outcome.GONE
    if isinstance(error, NetworkError):
        return Outcome.NO_NETWORK
    return Outcome.NO_NEWER if isinstance(error, NoNewerError) else None
