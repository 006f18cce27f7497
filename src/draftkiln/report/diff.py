"""`draftkiln diff RUN_A RUN_B`: what differs between two runs, inputs first, then what came out."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import rundir
from draftkiln.errors import ExitCode
from draftkiln.printable import printable
from draftkiln.report.records import BEGUN_FILE, STAGE_FILE, Records

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

INPUTS, FOLLOWS, RESULTS, TIMES = "inputs", "follows", "results", "times"
_TIME = re.compile(r"(^|[._])(seconds|per_second)([._]|$)")
_RECORD, _RAN_IN = ".record", "ran_in."
_HASH = re.compile("[0-9a-f]{32,}")
_DIGITS = 12
_LONGEST = 100
_TITLES = {
    INPUTS: "inputs",
    FOLLOWS: "inputs that differ because an earlier stage does",
    RESULTS: "results",
    TIMES: "times (they differ from run to run and do not count)",
}


@dataclass(frozen=True, eq=False)
class Difference:
    """A value that two runs do not share; `rundir.ABSENT` where one has none.

    Attributes:
        part: INPUTS, FOLLOWS (an earlier stage's difference, seen again), RESULTS or TIMES.
        stage: that recorded it; `run` for the run itself.
        path: keys, joined by points.
        left: value of the first run.
        right: value of the second run.
    """

    part: str
    stage: str
    path: str
    left: Any
    right: Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two run directories."""
    parser.add_argument("left", type=Path, metavar="RUN_A", help="run directory")
    parser.add_argument("right", type=Path, metavar="RUN_B", help="another one")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.epilog = f"Exit code 0: the same but for times; {ExitCode.DIFFERENT.value}: different."


def main(arguments: argparse.Namespace) -> int:
    """Print what differs; exit code DIFFERENT where anything but times does."""
    found = list(compare(Records.open(arguments.left), Records.open(arguments.right)))
    counted = [one for one in found if one.part != TIMES]
    if arguments.json:
        print(json.dumps(_content(arguments.left, arguments.right, found), indent=2, ensure_ascii=False))
    else:
        print("\n".join(text(found)))
    return ExitCode.DIFFERENT if counted else ExitCode.OK


def compare(left: Records, right: Records) -> Iterator[Difference]:
    """Every difference: all inputs, stage by stage, then all that follows from them, results, times."""
    from draftkiln.recipe.model import STAGES

    found = [*_of_run(left, right)]
    for stage in STAGES:
        found += _of_stage(left, right, stage)
        if stage == "extract":
            found += _of_samples(left, right)
    for part in (INPUTS, FOLLOWS, RESULTS, TIMES):
        yield from (one for one in found if one.part == part)


def _of_run(left: Records, right: Records) -> Iterator[Difference]:
    for path, one, other in rundir.changes(_run(left), _run(right)):
        yield Difference(INPUTS, "run", path, one, other)


def _of_stage(left: Records, right: Records, stage: str) -> Iterator[Difference]:
    one, other = _record(left, stage), _record(right, stage)
    if one["state"] != other["state"]:
        yield Difference(RESULTS, stage, "state", one["state"], other["state"])
    if not {one["state"], other["state"]} <= {"done", "begun"}:
        return
    for path, before, now in rundir.changes(one["inputs"], other["inputs"]):
        follows = path.endswith(_RECORD) or (path == "dataset_sha256" and stage != "prepare")
        yield Difference(FOLLOWS if follows else INPUTS, stage, path, before, now)
    if one["state"] == other["state"]:
        for path, before, now in rundir.changes(_by_place(one["results"]), _by_place(other["results"])):
            part = INPUTS if path.startswith(_RAN_IN) else TIMES if _TIME.search(path) else RESULTS
            yield Difference(part, stage, path, before, now)


def _run(records: Records) -> dict[str, Any]:
    """Whose run it is; where its file does not tell, the folder in its place, so that no two damaged ones are alike."""
    found = records.at("run.json")
    if isinstance(found, dict):
        return found
    return {"record": f"{records.path / 'run.json'}: {records.damaged.get('run.json', 'no record of a run')}"}


def _record(records: Records, stage: str) -> dict[str, Any]:
    """State, inputs and results of a stage."""
    for name, state in ((STAGE_FILE, "done"), (BEGUN_FILE, "begun")):
        file = f"{stage}/{name}"
        if isinstance(records.at(file, "inputs"), dict):
            return {
                "state": state,
                "inputs": records.mapping(file, "inputs"),
                "results": records.mapping(file, "results"),
            }
        if (records.path / file).exists():
            why = records.damaged.get(file, "it is no file")
            return {"state": f"unreadable: {records.path / file}: {why}", "inputs": {}, "results": {}}
    return {"state": "not begun", "inputs": {}, "results": {}}


def _by_place(value: Any) -> Any:
    """Lists of objects as objects by place, so that they are compared value by value."""
    if isinstance(value, dict):
        return {key: _by_place(inner) for key, inner in value.items()}
    if isinstance(value, list) and value and all(isinstance(inner, dict) for inner in value):
        return {str(place): _by_place(inner) for place, inner in enumerate(value)}
    return value


def _of_samples(left: Records, right: Records) -> Iterator[Difference]:
    """Samples whose files are not the same bytes, told as counts."""
    ours, theirs = _checksums(left), _checksums(right)
    if not ours or not theirs:
        return
    alone = (len(ours.keys() - theirs.keys()), len(theirs.keys() - ours.keys()))
    if any(alone):
        yield Difference(RESULTS, "extract", "samples that only this run has", *alone)
    differ = [index for index in ours.keys() & theirs.keys() if ours[index] != theirs[index]]
    if differ:
        path = (
            f"{len(differ)} of {len(ours.keys() & theirs.keys())} samples have other bytes, the first is {min(differ)}"
        )
        yield Difference(RESULTS, "extract", path, ours[min(differ)], theirs[min(differ)])


def _checksums(records: Records) -> dict[int, str]:
    return {index: receipt["checksum"] for index, receipt in records.receipts().items()}


def text(found: list[Difference]) -> Iterator[str]:
    """Lines for people: a difference that several stages recorded is told once, hashes by their first digits."""
    if not any(one.part != TIMES for one in found):
        yield "no difference" + (" but times" if found else "")
    for part in (INPUTS, FOLLOWS, RESULTS, TIMES):
        chosen = [one for one in found if one.part == part]
        if chosen:
            yield _TITLES[part]
        yield from _followers(chosen) if part == FOLLOWS else _stages(chosen)


def _followers(chosen: list[Difference]) -> Iterator[str]:
    for stage in dict.fromkeys(one.stage for one in chosen):
        yield f"  {stage}: {', '.join(one.path for one in chosen if one.stage == stage)}"


def _stages(chosen: list[Difference]) -> Iterator[str]:
    seen: dict[tuple[str, str], list[Difference]] = {}
    for one in chosen:
        seen.setdefault((one.path, f"{one.left!r} {one.right!r}"), []).append(one)
    first = [several[0] for several in seen.values()]
    also = {several[0]: [one.stage for one in several[1:]] for several in seen.values()}
    for stage in dict.fromkeys(one.stage for one in first):
        yield f"  {stage}"
        for one in first:
            if one.stage == stage:
                yield from (f"    {line}" for line in _lines(one, also[one]))


def _lines(one: Difference, also: list[str]) -> Iterator[str]:
    left, right = _shown(one.left), _shown(one.right)
    path = printable(one.path) + (f" (also {', '.join(also)})" if also else "")
    whole = f"{path}: {left} | {right}"
    if len(whole) <= _LONGEST:
        yield whole
    else:
        yield f"{path}:"
        yield f"  {left}"
        yield f"  {right}"


def _shown(value: Any) -> str:
    if value is rundir.ABSENT:
        return "nothing"
    if isinstance(value, str) and _HASH.fullmatch(value):
        return f"{value[:_DIGITS]}…"
    return printable(json.dumps(value, ensure_ascii=False))


def _content(left: Path, right: Path, found: list[Difference]) -> dict[str, Any]:
    """All differences as JSON values; a side that has no value has no key."""
    listed = []
    for one in found:
        sides = {"left": one.left, "right": one.right}
        present = {side: value for side, value in sides.items() if value is not rundir.ABSENT}
        listed.append({"part": one.part, "stage": one.stage, "path": one.path, **present})
    return {
        "schema_version": 1,
        "runs": [str(left), str(right)],
        "same": not any(one.part != TIMES for one in found),
        "differences": listed,
    }
