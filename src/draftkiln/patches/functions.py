"""Which functions a patch changes, so that a variant can be held to the same ones as the text it stands in for."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from draftkiln.patches import mail

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MODULE = "(module)"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def touched(text: str, files: Mapping[str, bytes | None]) -> frozenset[str]:
    """Functions that the patch `text` changes, as `path::Class.method`; `(module)` for lines outside any.

    Args:
        text: exported patch, whose line numbers are those of `files`.
        files: content of the touched files after the patch.
    """
    from unidiff.patch import PatchSet

    found = set()
    for changed in PatchSet(mail.diff_of(text)):
        content = files.get(changed.path)
        if content is None or not changed.path.endswith(".py"):
            found.add(changed.path)
            continue
        spans = list(_spans(ast.parse(content), ""))
        for hunk in changed:
            line = hunk.target_start
            for part in hunk:
                if not part.is_context:
                    found.add(f"{changed.path}::{_innermost(spans, line)}")
                line += not part.is_removed
    return frozenset(found)


def _spans(node: ast.AST, prefix: str) -> Iterator[tuple[int, int, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function | ast.ClassDef):
            name = f"{prefix}{child.name}"
            if isinstance(child, _Function):
                start = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                yield start, child.end_lineno or child.lineno, name
            yield from _spans(child, f"{name}.")
        else:
            yield from _spans(child, prefix)


def _innermost(spans: list[tuple[int, int, str]], line: int) -> str:
    around = [(end - start, name) for start, end, name in spans if start <= line <= end]
    return min(around, default=(0, MODULE))[1]
