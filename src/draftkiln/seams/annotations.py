"""What a type annotation of vLLM says a value is."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from draftkiln.seams.modules import Definition, External
from draftkiln.seams.values import UNKNOWN, ClassOf, InstanceOf, Items, Scalar, Value, any_of

if TYPE_CHECKING:
    from draftkiln.seams.modules import ModuleIndex

FUTURE = "Future"
_SCALARS = {"int", "float", "bool", "complex"}
_CONTAINERS = {"list", "set", "frozenset", "deque", "Sequence", "Iterable", "Iterator", "Collection", "Set", "List"}
_MAPPINGS = {"dict", "Mapping", "MutableMapping", "defaultdict", "OrderedDict", "Dict"}
_WRAPPERS = {"Optional", "ClassVar", "Final", "Annotated", "InitVar", "Required", "NotRequired"}


def annotated(index: ModuleIndex, node: ast.AST, module: str, owner: Definition | None = None) -> Value:
    """What a value annotated with `node` in `module` is; `owner` is what `Self` means."""
    if isinstance(node, ast.Constant):
        return _constant(index, node, module, owner)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return any_of([annotated(index, node.left, module, owner), annotated(index, node.right, module, owner)])
    if isinstance(node, ast.Subscript):
        return _generic(index, node, module, owner)
    if isinstance(node, ast.Name) and node.id == "Self" and owner is not None:
        return InstanceOf(owner)
    return _named(index, node, module) if isinstance(node, ast.Name | ast.Attribute) else UNKNOWN


def _constant(index: ModuleIndex, node: ast.Constant, module: str, owner: Definition | None) -> Value:
    if node.value is None:
        return Scalar("None")
    try:
        return annotated(index, ast.parse(str(node.value), mode="eval").body, module, owner)
    except SyntaxError:
        return UNKNOWN


def _named(index: ModuleIndex, node: ast.Name | ast.Attribute, module: str) -> Value:
    resolved = index.resolve_expression(module, node, typing=True)
    if isinstance(resolved, Definition) and isinstance(resolved.node, ast.ClassDef):
        return InstanceOf(resolved)
    if isinstance(resolved, External):
        last = resolved.dotted.split(".")[-1]
        if last in _SCALARS and resolved.dotted.startswith("builtins."):
            return Scalar(last)
        if last in _CONTAINERS | _MAPPINGS:
            return Items(UNKNOWN)
    return UNKNOWN


def _generic(index: ModuleIndex, node: ast.Subscript, module: str, owner: Definition | None) -> Value:
    name = ast.unparse(node.value).split(".")[-1]
    arguments = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name in _WRAPPERS:
        inner = annotated(index, arguments[0], module, owner)
        return any_of([inner, Scalar("None")]) if name == "Optional" else inner
    if name == "Union":
        return any_of([annotated(index, item, module, owner) for item in arguments])
    if name == FUTURE:
        return Scalar(FUTURE)
    if name in {"tuple", "Tuple"}:
        if len(arguments) == 2 and isinstance(arguments[1], ast.Constant) and arguments[1].value is ...:  # noqa: PLR2004
            return Items(annotated(index, arguments[0], module, owner))
        parts = tuple(annotated(index, item, module, owner) for item in arguments)
        return Items(any_of(list(parts)), parts)
    if name in _CONTAINERS | _MAPPINGS:
        return Items(annotated(index, arguments[0], module, owner))
    if name in {"type", "Type"}:
        inner = annotated(index, arguments[0], module, owner)
        return ClassOf(inner.definition) if isinstance(inner, InstanceOf) else UNKNOWN
    return UNKNOWN
