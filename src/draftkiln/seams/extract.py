"""List the seams of a tree of speculators: its generator, its worker and the local files that they import."""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from draftkiln.errors import PatchError
from draftkiln.seams.model import Seam, SeamList
from draftkiln.seams.modules import ModuleIndex
from draftkiln.seams.sources import version_of
from draftkiln.seams.trace import Tracer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from draftkiln.seams.sources import Sources

ENTRIES = ("speculators.data_generation.vllm_hidden_states_generator", "speculators.data_generation.custom_worker")
LAST_PATCHABLE = "0.4.0.1"


def extract(sources: Sources, *, series: str, owner: Callable[[str, int], str | None] = lambda *_: None) -> SeamList:
    """All seams of the tree, in the order of file and line.

    Raises:
        PatchError: the tree has no generator and worker (speculators 0.5 and later).
    """
    index = ModuleIndex(sources, {"speculators"})
    version = speculators_version(sources)
    missing = [index_name for index_name in ENTRIES if index.file_of(index_name) is None]
    if missing:
        raise PatchError(
            f"target removed upstream: speculators {version} in {sources.origin} has no {', '.join(missing)}",
            why=f"{LAST_PATCHABLE} is the last release that has them; 0.5.0 dropped them for vLLM's own extraction",
            fix="use speculators 0.3.0, 0.4.0 or 0.4.0.1, or a stack on vLLM's own extraction, which has no seams",
        )
    tracer = Tracer(index, _extensions(index))
    for _ in range(2):  # the second pass knows all attributes that methods set
        tracer.restart()
        for entry in ENTRIES:
            tracer.everything(entry)
    found = [replace(seam, owner=owner(seam.file, seam.line)) for seam in _merged(tracer.seams.values())]
    read = [sources.read(file).encode() for entry in ENTRIES if (file := index.file_of(entry))]
    return SeamList(series, version, None, files_sha256(read), tuple(sorted(found, key=_order)))


def files_sha256(contents: Iterable[bytes]) -> str:
    """Hash of the files that have seams, given in the order of `ENTRIES`."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def speculators_version(sources: Sources) -> str:
    """Version of the speculators in a tree, `unknown` without metadata."""
    found = version_of(sources, "speculators")
    return found[1] if found else "unknown"


def _extensions(index: ModuleIndex) -> frozenset[str]:
    """Classes of the tree that a string names, as `worker_extension_cls` does."""
    named = set()
    for entry in ENTRIES:
        file = index.file_of(entry)
        for node in ast.walk(ast.parse(index.sources.read(file))) if file else ():
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.fullmatch(r"[\w.]+\.\w+", node.value)
            ):
                module, _, name = node.value.rpartition(".")
                scope = index.scope(module) if index.owns(module) else None
                if scope is not None and name in scope.bindings:
                    named.add(node.value)
    return frozenset(named)


def _merged(seams: Iterable[Seam]) -> list[Seam]:
    """Drop a seam that another lists at the same place without a condition."""
    every = list(seams)
    plain = {(seam.kind, seam.paths, seam.detail, seam.shape, seam.file, seam.line) for seam in every if not seam.when}
    return [
        seam
        for seam in every
        if not seam.when or (seam.kind, seam.paths, seam.detail, seam.shape, seam.file, seam.line) not in plain
    ]


def _order(seam: Seam) -> tuple[object, ...]:
    return (seam.file, seam.line, seam.kind, seam.paths, seam.detail, str(seam.shape), seam.when)
