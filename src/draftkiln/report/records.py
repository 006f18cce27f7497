"""What a run directory says, value by value, each with the place that it was read from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from draftkiln.errors import RunDirectoryError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STAGE_FILE, BEGUN_FILE = "stage.json", "begun.json"


@dataclass(frozen=True)
class Value:
    """A value and where it stands.

    Attributes:
        value: as JSON gave it.
        source: file relative to the run directory, `#` and a JSON pointer (RFC 6901); the lines of a JSON-lines file
            count from 0.
    """

    value: Any
    source: str


@dataclass
class Records:
    """The records of a run directory, read when they are asked for.

    Attributes:
        path: of the run directory.
        unreadable: what is wrong with files that are there and cannot be read, by their name.
    """

    path: Path
    unreadable: dict[str, str] = field(default_factory=dict)
    _documents: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> Records:
        """The records of the run directory `path`.

        Raises:
            RunDirectoryError: it is none.
        """
        if not (path / "run.json").is_file():
            raise RunDirectoryError(
                f"{path} is no run directory", why="it has no run.json", fix="name one that a stage made"
            )
        return cls(path)

    def at(self, file: str, *keys: str | int) -> Any:
        """The value at `keys` of a JSON or JSON-lines file; None where there is none, or no file is named."""
        value = self._document(file)
        for key in keys:
            if isinstance(value, dict) and isinstance(key, str):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
                value = value[key]
            else:
                return None
        return value

    def value(self, file: str, *keys: str | int) -> Value | None:
        """The same with its source."""
        found = self.at(file, *keys)
        return None if found is None else Value(found, f"{file}#{pointer(keys)}")

    def mapping(self, file: str, *keys: str | int) -> dict[str, Any]:
        """The object at `keys`; an empty one where there is none."""
        found = self.at(file, *keys)
        return found if isinstance(found, dict) else {}

    def sequence(self, file: str, *keys: str | int) -> list[Any]:
        """The list at `keys`; an empty one where there is none."""
        found = self.at(file, *keys)
        return found if isinstance(found, list) else []

    def numbered(self, file: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects of a JSON-lines file with the numbers of their lines, from 0."""
        for number, line in enumerate(self.sequence(file)):
            if isinstance(line, dict):
                yield number, line

    def _document(self, file: str) -> Any:
        if file not in self._documents:
            self._documents[file] = self._read(file) if file else None
        return self._documents[file]

    def _read(self, file: str) -> Any:
        try:
            text = (self.path / file).read_text(encoding="utf-8")
            return _lines(text) if file.endswith(".jsonl") else json.loads(text)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            self.unreadable[file] = f"{type(error).__name__}: {error}"
            return None


def pointer(keys: tuple[str | int, ...]) -> str:
    """JSON pointer (RFC 6901) of a path of keys."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def _lines(text: str) -> list[Any]:
    """Values of JSON lines; a last line that a crash cut short is left out."""
    lines = text.split("\n")
    torn = lines.pop()
    values = [json.loads(line) if line.strip() else None for line in lines]
    if torn.strip():
        try:
            values.append(json.loads(torn))
        except ValueError:
            values.append(None)
    return values
