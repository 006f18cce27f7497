"""The run directory: one subfolder a stage, each with a record of what it read and made.

A stage that is done with the same inputs is not done again; changed inputs are refused by naming what changed.

Layout:
    RUN/run.json             name of the recipe, schema version
    RUN/logs/<stage>.log     the whole log of a stage, tracebacks included
    RUN/<stage>/stage.json   record of a finished stage: inputs (hashes, settings), results, stack
    RUN/prepare/dataset/     datasets folder {input_ids, loss_mask, seq_len}
    RUN/prepare/held_out.jsonl, prepare/prepare-report.json
    RUN/extract/hidden_states/hs_{i}.safetensors, extract/manifest.jsonl
    RUN/validate/report.json
    RUN/train/checkpoints/…, train/curve.jsonl
    RUN/export/{vllm,sglang}/
    RUN/evaluate/result.json
    RUN/report.html          what `draftkiln report` wrote
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from draftkiln import durable, unicode
from draftkiln.errors import RunDirectoryError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA_VERSION = 1


OUTPUTS = {
    "prepare": ("dataset/*", "held_out.jsonl"),
    "extract": ("manifest.jsonl",),
    "train": ("checkpoints/*/*",),
    "export": ("*/config.json", "*/*.safetensors"),
    "evaluate": ("result.json",),
}
"""Files of a stage that others read; samples of hidden states are in the manifest, model cards are written anew."""


RESUMED = {"prepare": "answers.jsonl", "extract": "manifest.jsonl", "train": "state/*/position.json"}
"""What an unfinished stage goes on from; while there is none, nothing binds it to the inputs that it was begun with."""


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()
"""Stands for a value that one side has and the other has not."""


@dataclass(frozen=True)
class RunDirectory:
    """A run directory that belongs to one recipe.

    Raises (from `open`):
        RunDirectoryError: it was made by another recipe or another schema version, or is no folder.
        StorageError: it lies below a file.
    """

    path: Path
    recipe: str | None = None
    """Name of the recipe that it is made for where it is not there; None: it is there."""

    @classmethod
    def open(cls, path: Path, recipe_name: str) -> RunDirectory:
        """Open `path` for the recipe `recipe_name`; it is made by the first stage that writes into it, and not here."""
        found = cls(path, recipe_name)
        if path.exists() and not path.is_dir():
            raise RunDirectoryError(f"{path} is a file, not a run directory", fix="name a folder with --run")
        for folder in (path, *path.parents):
            if os.path.lexists(folder) and not folder.is_dir():
                why = f"Not a directory: {folder} is {'a file' if folder.exists() else 'a link to nothing'}"
                raise StorageError(f"cannot use {path}", why=why, fix="name another place with --run")
        found._refuse_another(recipe_name)
        return found

    def _refuse_another(self, recipe_name: str) -> None:
        path, file, identity = self.path, self.path / "run.json", _identity(recipe_name)
        if not file.exists():
            # A hidden file is another process's run.json in the making.
            if path.exists() and any(not entry.name.startswith(".") for entry in path.iterdir()):
                raise RunDirectoryError(
                    f"{path} is not empty and has no run.json",
                    why="it was not made by draftkiln",
                    fix="name a new folder with --run",
                )
            return
        found = read_json(file)
        if found != identity:
            changed = ", ".join(
                f"{key}: {found.get(key)!r} there, {identity[key]!r} now"
                for key in identity
                if found.get(key) != identity[key]
            )
            raise RunDirectoryError(f"{path} belongs to another run", why=changed, fix="name another folder with --run")

    def _made(self) -> Path:
        """The directory, with the run.json that says whose it is."""
        if self.recipe is not None:
            if not (self.path / "run.json").exists():
                durable.write_json(self.path / "run.json", _identity(self.recipe))
            self._refuse_another(self.recipe)  # another one may have made it since it was opened
        return self.path

    def folder(self, stage: str) -> Path:
        """Folder of a stage; made when absent."""
        folder = self._made() / stage
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def log(self, stage: str) -> Path:
        """Log file of a stage; its folder is made when absent."""
        folder = self._made() / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{stage}.log"

    def finished(
        self, stage: str, inputs: Mapping[str, Any], defaults: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any] | None:
        """Results of `stage` if it was finished with these inputs, None if it was not finished.

        Args:
            stage: name.
            inputs: what it reads now.
            defaults: values of `inputs` that nobody asked for; a record made before they existed had the same.

        Raises:
            RunDirectoryError: it was made with other inputs, or has something to go on from that was; the message names
                each difference.
        """
        record = self.bound(stage)
        if record is None:
            return None
        self._refuse_changes(stage, filled(record["inputs"], defaults), inputs)
        results: dict[str, Any] | None = record.get("results")
        return results

    def bound(self, stage: str) -> dict[str, Any] | None:
        """Record of the inputs that a stage is bound to: a finished one's, or one's that has something to go on from.

        Only the first has `results`. None: there is neither.
        """
        for name in ("stage.json", "begun.json"):
            file = self.path / stage / name
            if file.exists() and (name == "stage.json" or self._can_go_on(stage)):
                return read_record(file)
        return None

    def _can_go_on(self, stage: str) -> bool:
        return stage in RESUMED and any((self.path / stage).glob(RESUMED[stage]))

    def _refuse_changes(self, stage: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        changed = list(differences(before, now))
        if changed:
            raise RunDirectoryError(
                f"{self.path}: stage {stage} was made from other inputs",
                why="; ".join(changed),
                fix="name a new --run directory, go back to the inputs of this one, or remove "
                f"{self.path / stage} to do this stage anew (those before it stay good)",
            )

    def begin(self, stage: str, inputs: Mapping[str, Any]) -> None:
        """Record the inputs of a stage before its first output, so that a resume can compare them."""
        durable.write_json(
            self.folder(stage) / "begun.json", {"schema_version": SCHEMA_VERSION, "inputs": dict(inputs)}
        )

    def reopen(self, stage: str) -> None:
        """Take back that `stage` is finished; what it read stays on record."""
        record = read_record(self.path / stage / "stage.json")
        self.begin(stage, record["inputs"])
        (self.path / stage / "stage.json").unlink()

    def finish(self, stage: str, inputs: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Record that `stage` is finished."""
        record = {
            "schema_version": SCHEMA_VERSION,
            "stage": stage,
            "inputs": dict(inputs),
            "results": dict(results),
            "files": dict(self._files(stage)),
        }
        durable.write_json(self.folder(stage) / "stage.json", record)
        (self.path / stage / "begun.json").unlink(missing_ok=True)

    def lost(self, stage: str) -> list[str]:
        """Files that a finished stage wrote for others and that are gone or of another size, relative to the run."""
        recorded = read_record(self.path / stage / "stage.json").get("files", {})
        now = dict(self._files(stage))
        return [name for name, size in recorded.items() if now.get(name) != size]

    def _files(self, stage: str) -> Iterator[tuple[str, int]]:
        for pattern in OUTPUTS.get(stage, ()):
            for file in sorted((self.path / stage).glob(pattern)):
                if file.is_file():
                    yield str(file.relative_to(self.path)), file.stat().st_size

    def require(self, stage: str) -> dict[str, Any]:
        """Record (`inputs`, `results`) of an earlier stage.

        Raises:
            RunDirectoryError: that stage is not finished.
        """
        file = self.path / stage / "stage.json"
        if not file.exists():
            raise RunDirectoryError(
                f"{self.path}: stage {stage} is not finished",
                why="the stage asked for reads what it writes",
                fix=f"run `draftkiln {stage}` with the same --recipe and --run first",
            )
        if lost := self.lost(stage):
            raise RunDirectoryError(
                f"{self.path}: {', '.join(lost[:3])} is gone or was cut",
                why=f"stage {stage} wrote it, and the stage asked for reads it",
                fix=f"run `draftkiln {stage}` with the same --recipe and --run: it makes it again",
            )
        return read_record(file)


def _identity(recipe_name: str) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "recipe": recipe_name}


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        RunDirectoryError: the file is not JSON or not an object.
    """
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise RunDirectoryError(
            f"cannot read {file}", why=str(error), fix="restore it or name a new run directory"
        ) from error
    if not isinstance(value, dict) or not unicode.is_whole(value):
        why = f"it holds {unicode.HALF}" if isinstance(value, dict) else "it is not a JSON object"
        raise RunDirectoryError(f"cannot read {file}", why=why, fix="restore it or name a new run directory")
    return value


def read_record(file: Path) -> dict[str, Any]:
    """Read the record of a stage.

    Raises:
        RunDirectoryError: the file is not JSON, or a part of it that every reader needs is not an object.
    """
    value = read_json(file)
    needed = ("inputs", "results") if file.name == "stage.json" else ("inputs",)
    parts = [*needed, *(["files"] if "files" in value else [])]
    wrong = [part for part in parts if not isinstance(value.get(part), dict)]
    if wrong:
        raise RunDirectoryError(
            f"cannot read {file}",
            why=f"its {' and '.join(wrong)} is no JSON object",
            fix="restore it, name a new run directory, or remove its folder to do this stage anew",
        )
    return value


def filled(recorded: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Values of `recorded`, and those of `defaults`, at any depth, whose keys it does not have."""
    return {**defaults, **{key: _filled(value, defaults.get(key)) for key, value in recorded.items()}}


def _filled(recorded: Any, default: Any) -> Any:
    if isinstance(recorded, Mapping) and isinstance(default, Mapping):
        return filled(recorded, default)
    if isinstance(recorded, list) and isinstance(default, list) and len(recorded) == len(default):
        return [_filled(*pair) for pair in zip(recorded, default, strict=True)]
    return recorded


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Each value that differs, by its key path."""
    return (f"{path}: {old!r} before, {new!r} now" for path, old, new in changes(before, now))


def changes(before: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Key path of each value that differs, the value there was and the one there is; `ABSENT` for none."""
    for key in sorted({*before, *now}):
        old, new = before.get(key, ABSENT), now.get(key, ABSENT)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            yield from changes(old, new, f"{where}{key}.")
        else:
            yield f"{where}{key}", old, new
