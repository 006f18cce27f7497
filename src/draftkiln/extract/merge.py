"""`draftkiln merge`: one run out of the shards that several hosts extracted, by manifest; no state is copied.

Files are linked: hard where the file system is the same, symbolically elsewhere. What does not fit together is refused
as a whole, each reason by the name of its shard.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable, rundir
from draftkiln.errors import ExitCode, ProblemsError, RunDirectoryError
from draftkiln.extract import manifest, plan, samples, top_tokens

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from draftkiln.extract.manifest import Manifest
    from draftkiln.extract.shards import Shard

_NO_HARD_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}
_SHOWN = 5


@dataclass(frozen=True)
class _Part:
    """A run directory that holds one shard."""

    path: Path
    recipe: str
    prepare: dict[str, Any]
    extract: dict[str, Any]
    found: Manifest

    @property
    def shard(self) -> Shard | None:
        return self.found.head.shard

    def common(self) -> dict[str, Any]:
        """All that must be the same in every shard."""
        head = dataclasses.asdict(dataclasses.replace(self.found.head, shard=None))
        return {
            "recipe": self.recipe,
            **{f"prepare.{key}": value for key, value in self.prepare["inputs"].items()},
            **{key: value for key, value in self.extract["inputs"].items() if key != "shard"},
            **{f"manifest.{key}": value for key, value in head.items()},
            "parts": self.shard and self.shard.of,
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run to make and the runs that hold its shards."""
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="run directory to make")
    parser.add_argument("shards", type=Path, nargs="+", metavar="SHARD", help="run directory of a finished shard")


def main(arguments: argparse.Namespace) -> int:
    """Merge the shards, or refuse them by name; goes on with a merge that was interrupted."""
    parts = [_read(path) for path in arguments.shards]
    _stop(_problems(parts))
    run = rundir.RunDirectory.open(arguments.run, parts[0].recipe)
    inputs = {key: value for key, value in parts[0].extract["inputs"].items() if key != "shard"}
    if run.finished("prepare", parts[0].prepare["inputs"]) is None:
        with durable.storage_errors(run.path):
            shutil.copytree(parts[0].path / "prepare", run.folder("prepare"), copy_function=_link, dirs_exist_ok=True)
    if run.finished("extract", inputs) is None:
        run.begin("extract", inputs)
        _merge(run, parts)
        run.finish("extract", inputs, _results(parts))
    print(f"merge: {parts[0].found.head.samples} samples of {len(parts)} shards in {run.path}, linked, not copied")
    return ExitCode.OK


def _read(path: Path) -> _Part:
    if not (path / "run.json").exists():
        raise RunDirectoryError(
            f"{path} is no run directory", why="it has no run.json", fix="name one that a stage made"
        )
    run = rundir.RunDirectory(path)
    recipe = str(rundir.read_json(path / "run.json").get("recipe"))
    prepare = run.require("prepare")
    return _Part(path, recipe, prepare, run.require("extract"), manifest.read(path / "extract" / manifest.FILE))


def _problems(parts: Sequence[_Part]) -> Iterator[str]:
    """Why these are not the shards of one dataset, all of them, each once and whole."""
    whole = [part for part in parts if part.shard is None]
    yield from (f"{part.path} holds all samples, not a shard of them" for part in whole)
    wanted = parts[0].common()
    for part in parts[1:]:
        there = part.common()
        for key in sorted(wanted.keys() | there.keys()):
            if wanted.get(key) != there.get(key):
                yield f"{part.path} has {key} {there.get(key)!r}, {parts[0].path} has {wanted.get(key)!r}"
    by_shard: dict[Shard, list[_Part]] = {}
    for part in parts:
        if part.shard is not None:
            by_shard.setdefault(part.shard, []).append(part)
    for shard, holders in by_shard.items():
        if len(holders) > 1:
            yield f"shard {shard} is there {len(holders)} times: {', '.join(str(part.path) for part in holders)}"
    for of in sorted({shard.of for shard in by_shard}):
        numbers = {shard.number for shard in by_shard if shard.of == of}
        missing = [f"{number}/{of}" for number in range(1, of + 1) if number not in numbers]
        if missing:
            yield f"{'shard' if len(missing) == 1 else 'shards'} {', '.join(missing)} missing"
    for part in parts:
        yield from _holes(part)


def _holes(part: _Part) -> Iterator[str]:
    todo = plan.compare(part.path / "extract" / samples.FOLDER, part.found)
    if todo.remaining:
        names = ", ".join(samples.name(index) for index in todo.remaining[:_SHOWN])
        yield f"{part.path}: {len(todo.remaining)} samples are not there as their receipts say: {names}"


def _stop(problems: Iterator[str]) -> None:
    fix = "run `draftkiln extract` with --shard until each part is finished, and name every part once"
    found = [RunDirectoryError(text) for text in problems]
    if found:
        raise ProblemsError([*found[:-1], RunDirectoryError(found[-1].what, fix=fix)])


def _merge(run: rundir.RunDirectory, parts: Sequence[_Part]) -> None:
    """Link every sample and, when all are there durably, write the manifest."""
    folder = run.folder("extract") / samples.FOLDER
    with durable.storage_errors(folder):
        folder.mkdir(exist_ok=True)
        for part in parts:
            for index in part.found.receipts:
                name = samples.name(index)
                _link(part.path / "extract" / samples.FOLDER / name, folder / name)
        durable.sync_folder(folder)
    answers = [part.path / "extract" / top_tokens.FILE for part in parts]
    top_tokens.join(answers, folder.parent / top_tokens.FILE)
    receipts = itertools.chain.from_iterable(part.found.receipts.values() for part in parts)
    head = dataclasses.replace(parts[0].found.head, shard=None)
    manifest.create(folder.parent / manifest.FILE, head, sorted(receipts, key=lambda receipt: receipt.index))


def _link(source: str | Path, target: str | Path) -> None:
    """Give a file a second name; that it has it already is fine.

    Raises:
        RunDirectoryError: another file has that name.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        if not Path(source).samefile(target):
            raise RunDirectoryError(
                f"{target} is another file than {source}", fix="merge into a new run directory"
            ) from None
    except OSError as error:
        if error.errno not in _NO_HARD_LINK:
            raise
        Path(target).symlink_to(Path(source).resolve())


def _results(parts: Sequence[_Part]) -> dict[str, Any]:
    """What the stage would have said had it run on one host."""
    results = [part.extract["results"] for part in parts]
    tokens, seconds = (sum(found.get(key) or 0 for found in results) for key in ("tokens", "seconds"))
    longest = max(results, key=lambda found: found["shape"][0])
    return {
        **{key: longest[key] for key in ("shape", "dtype", "layer_ids")},
        "samples": sum(found["samples"] for found in results),
        "tokens": tokens,
        "shards": len(parts),
        "host_seconds": round(seconds, 1),
    }
