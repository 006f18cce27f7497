"""What a run directory says, value by value, each with the place that it was read from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from draftkiln import unicode
from draftkiln.errors import RunDirectoryError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STAGE_FILE, BEGUN_FILE = "stage.json", "begun.json"
MANIFEST = "extract/manifest.jsonl"


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
        damaged: what is wrong with files that are there, by their name; the values of one that is no record are none.
    """

    path: Path
    damaged: dict[str, str] = field(default_factory=dict)
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

    def number(self, file: str, *keys: str | int) -> Value | None:
        """The same of a number; it is noted where something else stands in its place."""
        found = self.value(file, *keys)
        if found is not None and (isinstance(found.value, bool) or not isinstance(found.value, int | float)):
            self.doubt(file, f"{'.'.join(map(str, keys))} is {kind(found.value)}, not a number")
        return found

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

    def receipts(self) -> dict[int, dict[str, Any]]:
        """The receipt of each extracted sample, by index, as the manifest has them in the end."""
        found: dict[int, dict[str, Any]] = {}
        for number, line in self.numbered(MANIFEST):
            if _all_numbers(line.get("withdrawn")):
                for index in line["withdrawn"]:
                    found.pop(index, None)
            elif _all_numbers([line.get("index"), line.get("rows")]) and isinstance(line.get("checksum"), str):
                found[line["index"]] = line
            elif number:
                self.doubt(MANIFEST, f"line {number + 1} is no receipt of a sample")
        return found

    def _document(self, file: str) -> Any:
        if file not in self._documents:
            self._documents[file] = self._read(file) if file else None
        return self._documents[file]

    def _read(self, file: str) -> Any:
        try:
            text = (self.path / file).read_text(encoding="utf-8")
            value = _lines(text) if file.endswith(".jsonl") else json.loads(text)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            self.damaged[file] = f"{type(error).__name__}: {error}"
            return None
        if "\\u" in text and not unicode.is_whole(value):
            self.damaged[file] = f"it holds {unicode.HALF}"
            return None
        if file.endswith(".jsonl"):
            odd = next((place for place, line in enumerate(value, 1) if not isinstance(line, dict | None)), None)
            if odd is not None:
                self.doubt(file, f"line {odd} is {kind(value[odd - 1])}, not an object")
            return value
        why = _no_record(value, file.rpartition("/")[2])
        if why:
            self.damaged[file] = why
        return None if why else value

    def doubt(self, file: str, why: str) -> None:
        """Note that something in a file is not what it must be; the first such thing is told."""
        self.damaged.setdefault(file, why)


def _all_numbers(values: Any) -> bool:
    """Whether it is a list of whole numbers."""
    return isinstance(values, list) and all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _no_record(value: Any, name: str) -> str:
    """Why the JSON of a file is not what every reader of it needs; an empty text where it is."""
    if not isinstance(value, dict):
        return f"it holds {kind(value)}, not an object"
    needed = {STAGE_FILE: ("inputs", "results"), BEGUN_FILE: ("inputs",)}.get(name, ())
    parts = [*needed, *(["files"] if needed and "files" in value else [])]
    wrong = [part for part in parts if not isinstance(value.get(part), dict)]
    return "; ".join(f"{part!r} is {kind(value.get(part))}, not an object" for part in wrong)


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "nothing"
    words = ((dict, "an object"), (list, "a list"), (str, "a text"), (bool, "true or false"))
    return next((word for type_, word in words if isinstance(value, type_)), "a number")


def pointer(keys: tuple[str | int, ...]) -> str:
    """JSON pointer (RFC 6901) of a path of keys."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def _lines(text: str) -> list[Any]:
    """Values of JSON lines; a last line that a crash cut short is left out."""
    lines = text.split("\n")
    torn = lines.pop()
    values = [_line(line, number) if line.strip() else None for number, line in enumerate(lines, 1)]
    if torn.strip():
        try:
            values.append(json.loads(torn))
        except ValueError:
            values.append(None)
    return values


def _line(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error
