"""What the exception handlers of the patched files tolerate."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from draftkiln.seams.model import Condition, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

_BY_ERROR: dict[str, frozenset[Kind]] = {
    "ImportError": frozenset({"import"}),
    "ModuleNotFoundError": frozenset({"import"}),
    "AttributeError": frozenset({"attribute", "import"}),
    "TypeError": frozenset({"call"}),
    "ValidationError": frozenset({"call"}),
}
EVERY_KIND: frozenset[Kind] = frozenset({"import", "attribute", "call", "return", "predicate"})


def tolerated_by(handler: ast.ExceptHandler) -> frozenset[Kind]:
    """Kinds of seams whose failure a handler survives; none where it raises again."""
    if any(isinstance(item, ast.Raise) for item in handler.body):
        return frozenset()
    if handler.type is None:
        return EVERY_KIND
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    found: frozenset[Kind] = frozenset()
    for item in types:
        name = last_name(item)
        found |= EVERY_KIND if name in {"Exception", "BaseException"} else _BY_ERROR.get(name, frozenset())
    return found


def first_import(body: Sequence[ast.stmt]) -> Condition | None:
    """The question whether the first import of a `try` body is there."""
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module:
            return Condition("has", (statement.module,), statement.names[0].name)
        if isinstance(statement, ast.Import):
            base, _, name = statement.names[0].name.rpartition(".")
            return Condition("has", (base,), name) if base else None
    return None


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name, or of what is called."""
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).split(".")[-1]


def suppressed(call: ast.expr) -> frozenset[Kind]:
    """Kinds of seams whose failure `contextlib.suppress(…)` swallows; none for another context manager."""
    if not isinstance(call, ast.Call) or last_name(call) != "suppress":
        return frozenset()
    return frozenset[Kind]().union(*(_BY_ERROR.get(last_name(name), EVERY_KIND) for name in call.args))
