"""Everything that must be true of the queue, found in one run."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln.errors import DraftkilnError, PatchError, ProblemsError
from draftkiln.patches import export, functions, queue, uses, wheel
from draftkiln.patches.header import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from draftkiln.patches.export import Exported
    from draftkiln.patches.queue import Patch, Queue
    from draftkiln.patches.uses import Use
    from draftkiln.patches.wheel import Wheel


@dataclass(frozen=True)
class Result:
    """What one stack's series came to."""

    use: Use
    patches: int
    tree: str
    offsets: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """All results and all problems."""

    results: tuple[Result, ...]
    problems: tuple[DraftkilnError, ...]


def check(folder: Path, project: Path, wheels: Sequence[Path] = ()) -> Report:
    """Check the queue in `folder`.

    Args:
        folder: of the queue.
        project: root of the project, where `Check:` tests are looked up.
        wheels: pristine wheels to use instead of the cache.
    """
    found, problems = queue.survey(folder)
    every_use = uses.all_uses()
    problems += _unused(found, every_use)
    problems += _missing_tests(found.pool, project)
    exported, failures = _export_each(found, every_use, wheels)
    problems += failures
    results = []
    for use, (base, done) in exported.items():
        results.append(Result(use, len(done.texts), done.applied.tree, done.applied.offsets))
        problems += _wrong_engine(use, (step.patch for step in done.applied.steps))
        problems += _against_lock(use, base, done)
        problems += _seams(folder, use, {**base.package, **done.applied.changed})
    texts = {use: done for use, (_, done) in exported.items()}
    problems += _stale(found, every_use, texts)
    problems += _variants(found.pool, texts)
    return Report(tuple(results), tuple(problems))


def _export_each(
    found: Queue, every_use: Sequence[Use], wheels: Sequence[Path]
) -> tuple[dict[Use, tuple[Wheel, Exported]], list[DraftkilnError]]:
    """Every series on every base that a stack gives it, the same pair only once, side by side: git does the work."""
    varied = {patch.slug for patch in found.pool if patch.version is not None}
    base_of = functools.cache(lambda version: uses.base_of(version, every_use, wheels))
    pending: dict[tuple[str, tuple[Patch, ...]], Future[Exported]] = {}
    done: dict[Use, tuple[Wheel, Exported]] = {}
    problems: list[DraftkilnError] = []
    started = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for use in (use for use in every_use if use.series in found.series):
            try:
                base, patches = base_of(use.version), uses.patches_of(use, found.series)
            except DraftkilnError as error:
                problems += _in_stack(error, use)
                continue
            key = (use.version, patches)
            if key not in pending:
                pending[key] = pool.submit(export.export_series, base, patches, varied)
            started.append((use, base, pending[key]))
        for use, base, future in started:
            try:
                done[use] = (base, future.result())
            except DraftkilnError as error:
                problems += _in_stack(error, use)
    return done, problems


def _in_stack(error: DraftkilnError, use: Use) -> list[PatchError]:
    problems = error.problems if isinstance(error, ProblemsError) else [error]
    return [PatchError(f"stack {use.stack}: {problem.what}", why=problem.why, fix=problem.fix) for problem in problems]


def _unused(found: Queue, every_use: Iterable[Use]) -> list[DraftkilnError]:
    named = {use.series for use in every_use}
    in_series = {entry.slug for series in found.series.values() for entry in series.entries}
    return [
        *(
            PatchError(f"stack {use.stack}: no series {use.series}", fix=f"add {found.folder}/series/{use.series}")
            for use in every_use
            if use.series not in found.series
        ),
        *(
            PatchError(f"{series.path}: no stack uses this series", fix="name it in a stack.yaml, or remove it")
            for name, series in found.series.items()
            if name not in named
        ),
        *(
            PatchError(f"{patch.path}: in no series", why="nothing proves it", fix="name it in a series, or remove it")
            for patch in found.pool
            if patch.slug not in in_series
        ),
    ]


def _missing_tests(pool: Iterable[Patch], project: Path) -> list[DraftkilnError]:
    tests: dict[Path, set[str]] = {}
    problems: list[DraftkilnError] = []
    for patch in pool:
        missing = [test for test in patch.header.checks if not _exists(test, project, tests)]
        if missing:
            why = ", ".join(missing)
            problems.append(
                PatchError(
                    f"{patch.path}: Check names no test", why=f"there is no {why}", fix="write it, or mend the trailer"
                )
            )
    return problems


def _exists(test: str, project: Path, tests: dict[Path, set[str]]) -> bool:
    file, _, name = test.partition("::")
    path = project / file
    if path not in tests:
        tests[path] = _test_names(path)
    return name in tests[path]


def _test_names(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    names = set()
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}::{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return {name for name in names if name.rpartition("::")[2].startswith("test")}


def _wrong_engine(use: Use, patches: Iterable[Patch]) -> list[DraftkilnError]:
    return [
        PatchError(
            f"stack {use.stack}: {patch.name} is not for vLLM {use.engine}",
            why=f"Needs-Vllm: {patch.header.needs_vllm} [{patch.header.needs_vllm_note}]",
            fix="take it out of the series, or widen the range once the patch is proved there",
        )
        for patch in patches
        if patch.header.needs_vllm is not None and not patch.header.needs_vllm.contains(use.engine, prereleases=True)
    ]


def _against_lock(use: Use, base: Wheel, done: Exported) -> list[DraftkilnError]:
    fix = f"if the patches are meant to differ: nox -s lock -- {use.stack}"
    if use.tree is None or use.wheel_sha256 is None:
        why = "there is no stack.lock.yaml" if use.base_sha256 is None else "its lock was made without the series"
        return [
            PatchError(
                f"stack {use.stack}: patched tree and wheel are not locked", why=why, fix=f"nox -s lock -- {use.stack}"
            )
        ]
    problems: list[DraftkilnError] = []
    if done.applied.tree != use.tree:
        problems.append(
            PatchError(
                f"stack {use.stack}: patched tree is not the locked one",
                why=f"{done.applied.tree}, locked {use.tree}",
                fix=fix,
            )
        )
    _, data = wheel.packed(base, use.series, done.applied)
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != use.wheel_sha256:
        problems.append(
            PatchError(
                f"stack {use.stack}: patched wheel is not the locked one",
                why=f"{sha256}, locked {use.wheel_sha256}",
                fix=fix,
            )
        )
    return problems


def _seams(folder: Path, use: Use, files: Mapping[str, bytes | None]) -> list[DraftkilnError]:
    """Whether the committed list of seams was made from this tree; a release without a generator has none."""
    from draftkiln.seams.extract import ENTRIES, files_sha256
    from draftkiln.seams.model import from_json

    contents = [files.get(f"{entry.replace('.', '/')}.py") for entry in ENTRIES]
    present = [content for content in contents if content is not None]
    if len(present) < len(contents):
        return []
    path, fix = folder / "seams" / f"{use.stack}.json", f"draftkiln seams extract --stack {use.stack}"
    if not path.exists():
        return [PatchError(f"stack {use.stack}: no list of seams", why=f"{path} is not there", fix=fix)]
    try:
        listed = from_json(path).files
    except PatchError as error:
        return [error]
    if listed != files_sha256(present):
        return [PatchError(f"{path}: made from other files than the patched ones of now", fix=fix)]
    return []


def _stale(found: Queue, every_use: Sequence[Use], exported: Mapping[Use, Exported]) -> list[DraftkilnError]:
    home = uses.homes(every_use, found.series)
    homeless = [
        patch
        for patch in found.pool
        if patch.path not in home and any(patch.path in done.texts for done in exported.values())
    ]
    return [
        *(
            PatchError(
                f"{path}: not as git writes it on {PACKAGE} {home[path].version}, in {home[path].series}",
                why="it was edited by hand, or a patch before it changed",
                fix="draftkiln patches export",
            )
            for path in export.stale(home, exported)
        ),
        *(
            PatchError(
                f"{patch.path}: no stack applies it on its own base",
                why=f"Base: {PACKAGE}=={patch.header.base}",
                fix="draftkiln patches rebase, so that its Base is a release that a stack uses",
            )
            for patch in homeless
        ),
    ]


def _variants(pool: Iterable[Patch], exported: Mapping[Use, Exported]) -> list[DraftkilnError]:
    touched: dict[Path, frozenset[str]] = {}
    for done in exported.values():
        for path, text in done.texts.items():
            if path in done.files and path not in touched:
                touched[path] = functions.touched(text, done.files[path])
    plain = {patch.slug: patch for patch in pool if patch.version is None}
    problems: list[DraftkilnError] = []
    for patch in pool:
        other = plain.get(patch.slug)
        if patch.version is None or other is None or not {patch.path, other.path} <= touched.keys():
            continue
        differing = touched[patch.path] ^ touched[other.path]
        if differing:
            problems.append(
                PatchError(
                    f"{patch.path}: changes other functions than {other.path.name}",
                    why=", ".join(sorted(differing)),
                    fix="give it a slug of its own, or change the same functions",
                )
            )
    return problems
