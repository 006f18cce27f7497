"""Files of rows: JSON lines, a JSON list, Parquet, a folder of `datasets`; every row with the place where it stands.

A file is read piece by piece, so that memory does not grow with it. What is wrong with one row is that row's matter;
what is wrong with the file is a `DataError` with its line.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Any

from draftkiln.errors import DataError
from draftkiln.prepare.outcome import RefusedRowError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    Placed = tuple[str, Any]
    """Place (`file:line`, `file:row N`) and the row's value, or the `RefusedRowError` that says why it has none."""

_BATCH = 256
_BLOCK = 1 << 20
LONGEST_ROW = 64 << 20
"""Bytes of a row that is read; what is longer is no conversation but a file of another kind."""
_BOM = b"\xef\xbb\xbf"
_ELEMENT = re.compile(r"[^\s,]|\Z")
"""Where the next element of a list begins, or the text ends."""
_DECODER = json.JSONDecoder()


def read(path: Path) -> Iterator[Placed]:
    """Rows of a file or folder, in order.

    Raises:
        DataError: it is missing, unreadable, of no known kind, cut off, or holds no row.
    """
    count = 0
    for count, placed in enumerate(_rows(path), 1):  # noqa: B007 - the last number is read below
        yield placed
    if count == 0:
        raise DataError(f"{path}: holds no row", why="it is empty", fix="write one JSON object with `messages` a line")


def refuse_missing(path: Path) -> None:
    """Refuse what is not there before anything is begun.

    Raises:
        DataError: nothing has that name.
    """
    if not path.exists():
        raise _unreadable(path, "No such file or directory")


def _rows(path: Path) -> Iterator[Placed]:
    if path.is_dir():
        return _saved_dataset(path)
    if path.suffix == ".parquet":
        return _parquet(path)
    return _json(path)


def _json(path: Path) -> Iterator[Placed]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    with file:
        if path.suffix == ".json" and _first_character(file) == b"[":
            yield from _list(path, file)
        else:
            yield from _lines(path, file)


def _first_character(file: BinaryIO) -> bytes:
    head = file.read(4096).removeprefix(_BOM).lstrip()
    file.seek(0)
    return head[:1]


def _lines(path: Path, file: BinaryIO) -> Iterator[Placed]:
    for number in itertools.count(1):
        line = file.readline(LONGEST_ROW + 1)
        if not line:
            return
        text = line.removeprefix(_BOM) if number == 1 else line
        if len(line) > LONGEST_ROW:
            while line and not line.endswith(b"\n"):
                line = file.readline(_BLOCK)
            yield f"{path}:{number}", RefusedRowError("too long a line", f"more than {LONGEST_ROW >> 20} MiB")
        elif text.strip():
            yield f"{path}:{number}", _decoded(text)


def _decoded(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return RefusedRowError("not UTF-8", f"byte {error.start} of the line")
    except (ValueError, RecursionError) as error:
        return RefusedRowError("not JSON", str(error))


def _list(path: Path, file: BinaryIO) -> Iterator[Placed]:
    """Elements of a JSON list, decoded one by one out of a window that grows only to the longest of them."""
    pieces = _texts(path, file)
    text = next(pieces)
    place = text.index("[") + 1
    line = text.count("\n", 0, place) + 1
    while True:
        found = _ELEMENT.search(text, place)
        start = found.start() if found else len(text)
        line += text.count("\n", place, start)
        if text.startswith("]", start):
            _refuse_rest(path, line, text[start + 1 :], pieces)
            return
        try:
            value, place = _element(text, start)
        except ValueError as error:
            if len(text) - start > LONGEST_ROW:
                why = f"the element is longer than {LONGEST_ROW >> 20} MiB, or not closed"
                raise _cut_list(path, line, why) from error
            more = "".join(itertools.islice(pieces, max(1, (len(text) - start) // _BLOCK)))
            if not more:
                why = getattr(error, "msg", str(error)) if start < len(text) else "the list is not closed"
                raise _cut_list(path, line, why) from error
            text, place = text[start:] + more, 0
            continue
        yield f"{path}:{line}", value
        line += text.count("\n", start, place)


def _element(text: str, start: int) -> tuple[Any, int]:
    """The JSON value at `start` and where it ends; a number at the very end may go on in the next piece."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if end == len(text):
        raise ValueError("the list is not closed")
    return value, end


def _texts(path: Path, file: BinaryIO) -> Iterator[str]:
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    while block := file.read(_BLOCK):
        try:
            text = decoder.decode(block)
        except UnicodeDecodeError as error:
            line += block[: max(0, error.start)].count(b"\n")
            raise DataError(
                f"{path}:{line}: not UTF-8", why=f"{error.reason}", fix="save the file as UTF-8, or as JSON lines"
            ) from error
        line += text.count("\n")
        if text := text.removeprefix("\ufeff"):  # a block can end inside of a character
            yield text


def _refuse_rest(path: Path, line: int, rest: str, pieces: Iterator[str]) -> None:
    if (rest + "".join(pieces)).strip():
        raise DataError(
            f"{path}:{line}: text after the list", why="a JSON file holds one value", fix="name JSON lines `.jsonl`"
        )


def _cut_list(path: Path, line: int, why: str) -> DataError:
    return DataError(
        f"{path}:{line}: the JSON list cannot be read from here on", why=why, fix="mend the element at this line"
    )


def _parquet(path: Path) -> Iterator[Placed]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # else a row group is read as a whole
        file = parquet.ParquetFile(path, buffer_size=_BLOCK, pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, str(error)) from error
    with file:
        yield from _numbered(path, (batch.to_pylist() for batch in file.iter_batches(_BATCH, use_threads=False)))


def _saved_dataset(path: Path) -> Iterator[Placed]:
    if (path / "dataset_dict.json").is_file():
        names = json.loads((path / "dataset_dict.json").read_text(encoding="utf-8")).get("splits", [])
        raise _unreadable(path, f"it holds several splits ({', '.join(names)}): name one of these folders")
    if not (path / "state.json").is_file():
        raise _unreadable(path, "it is a directory, and not one that `datasets` saved")
    import datasets

    table = datasets.load_from_disk(str(path)).with_format("arrow")
    batches = (table[start : start + _BATCH].to_pylist() for start in range(0, len(table), _BATCH))
    yield from _numbered(path, batches)


def _numbered(path: Path, batches: Iterator[list[Any]]) -> Iterator[Placed]:
    """Rows with the keys that a column store fills in taken out again, so that each is as if it stood alone."""
    for number, row in enumerate(itertools.chain.from_iterable(batches), 1):
        yield f"{path}:row {number}", _without_none(row)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_none(part) for part in value]
    return value


def _unreadable(path: Path, why: str) -> DataError:
    return DataError(
        f"{path}: cannot be read as conversations",
        why=why,
        fix="name a file (.jsonl, .json, .parquet) or a folder that `datasets` saved, from the working directory",
    )
