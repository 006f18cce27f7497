"""Where the curves also go: the trainer's own loggers, checked before it starts and kept from the network."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from draftkiln.errors import ProblemsError, SystemMissingError

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence
    from pathlib import Path


def refuse_missing(loggers: Sequence[str], stack: str) -> None:
    """Refuse loggers whose package is not in the training stack; the trainer would find out at its first step.

    Raises:
        ProblemsError: of `SystemMissingError`s, one a logger.
    """
    missing = [
        SystemMissingError(
            f"train.loggers: {logger} cannot be imported in stack {stack}",
            why="the stack's lock does not hold the package",
            fix=f"add it to `requirements` in containers/stacks/{stack}/stack.yaml and run `nox -s lock -- {stack}`, "
            "or leave the logger out: train/curve.jsonl holds the same numbers",
        )
        for logger in loggers
        if importlib.util.find_spec(logger) is None
    ]
    if missing:
        raise ProblemsError(missing)


def keep_local(loggers: Sequence[str], folder: Path, variables: MutableMapping[str, str]) -> None:
    """Let loggers write below `folder` and ask no server, unless the user's environment says where else.

    Args:
        loggers: that are used.
        folder: RUN/train/logs.
        variables: of the environment, changed.
    """
    defaults = {
        "wandb": {"WANDB_MODE": "offline", "WANDB_SILENT": "true"},
        "trackio": {"TRACKIO_DIR": str(folder / "trackio")},
        "mlflow": {"MLFLOW_TRACKING_URI": f"file:{folder / 'mlruns'}"},
    }
    for logger in loggers:
        for name, value in defaults.get(logger, {}).items():
            variables.setdefault(name, value)
