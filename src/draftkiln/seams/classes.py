"""Read a class or function of vLLM from its syntax tree: members, decorators, assignments to `self`."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln.seams.modules import FunctionNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_INERT_BASES = {"ABC", "Protocol", "Generic", "object", "NamedTuple", "Struct", "Exception", "TypedDict"}
_ENUM_BASES = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
FIELD_BASES = {"Struct", "BaseModel", "NamedTuple"}
"""Bases that make a constructor out of annotated fields."""
PLAIN_BASES = {"ABC", "Protocol", "Generic", "object"}
"""Bases that leave the constructor without parameters."""
_MODULE_MEMBERS = frozenset(
    """
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double
    dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule
    half ipu load_state_dict modules mtia named_buffers named_children named_modules named_parameters
    parameters register_backward_hook register_buffer register_forward_hook register_forward_pre_hook
    register_full_backward_hook register_module register_parameter requires_grad_ set_extra_state
    set_submodule share_memory state_dict to to_empty train training type xpu zero_grad _modules
    _parameters _buffers __class__ __dict__
    """.split()  # noqa: SIM905 - a list of sixty strings would hide what follows
)


@dataclass(frozen=True)
class Assignment:
    """An assignment to an attribute of `self`, at `position` of an unpacked value."""

    function: FunctionNode
    value: ast.expr
    annotation: ast.expr | None = None
    position: int | None = None


def base_may_have(dotted: str, name: str) -> bool:
    """Whether a base class outside of vLLM may give its subclasses the attribute `name`."""
    last = dotted.rsplit(".", maxsplit=1)[-1].split("[", maxsplit=1)[0]
    if last == "Module":
        return name in _MODULE_MEMBERS
    if last in _ENUM_BASES:
        return name in {"name", "value"}
    return last not in _INERT_BASES


def is_plain(dotted: str) -> bool:
    """Whether a base class outside of vLLM adds no methods."""
    return dotted.rsplit(".", maxsplit=1)[-1].split("[", maxsplit=1)[0] in PLAIN_BASES


def is_fields_only(outside: Sequence[str]) -> bool:
    """Whether the bases outside of vLLM make a constructor out of annotated fields."""
    last = {name.split(".")[-1] for name in outside}
    return bool(last & FIELD_BASES) and not last - FIELD_BASES - _INERT_BASES


def member(node: ast.ClassDef, name: str) -> ast.AST | None:
    """The function or assignment that defines a name in a class's own body, None when nothing does."""
    found: ast.AST | None = None
    for statement in _statements(node.body):
        if isinstance(statement, FunctionNode) and statement.name == name and not decorated(statement, "overload"):
            found = found if found is not None and decorated(statement, "setter") else statement
        elif (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.target.id == name
        ) or (
            isinstance(statement, ast.Assign)
            and any(isinstance(item, ast.Name) and item.id == name for item in statement.targets)
        ):
            found = statement
    return found


def is_interface(node: ast.ClassDef) -> bool:
    """Whether a class only describes others, so that its instances are of subclasses that may have more."""
    return any(ast.unparse(base).split(".")[-1].split("[")[0] in {"Protocol", "ABC"} for base in node.bases)


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    flat = []
    for statement in body:
        if isinstance(statement, ast.If):
            flat.extend(_statements([*statement.body, *statement.orelse]))
        else:
            flat.append(statement)
    return flat


def decorated(node: FunctionNode | ast.ClassDef, *names: str) -> bool:
    """Whether one of its decorators has one of these names, whatever module it is from."""
    plain = (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)
    return any(ast.unparse(item).split(".")[-1] in names for item in plain)


def assignments(node: ast.ClassDef) -> dict[str, list[Assignment]]:
    """All assignments to attributes of `self` in the methods of a class, by attribute."""
    found: dict[str, list[Assignment]] = {}
    for function in node.body:
        if not isinstance(function, FunctionNode) or not function.args.args:
            continue
        me = function.args.args[0].arg
        for statement in _walk_statements(function.body):
            for target, assignment in _assigned(function, statement):
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == me:
                    found.setdefault(target.attr, []).append(assignment)
    return found


def _assigned(function: FunctionNode, statement: ast.stmt) -> Iterator[tuple[ast.expr, Assignment]]:
    """Targets of an assigning statement, each with what it gets."""
    if isinstance(statement, ast.AnnAssign):
        yield statement.target, Assignment(function, statement.value or statement.target, statement.annotation)
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Tuple | ast.List):
                for position, part in enumerate(target.elts):
                    yield part, Assignment(function, statement.value, position=position)
            else:
                yield target, Assignment(function, statement.value)
    elif isinstance(statement, ast.With):
        for item in statement.items:
            if item.optional_vars is not None:
                yield item.optional_vars, Assignment(function, item.context_expr, ast.Name("Any"))


def _walk_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            yield from _walk_statements(getattr(statement, name, []))
        for handler in getattr(statement, "handlers", []):
            yield from _walk_statements(handler.body)


def is_left_out(node: ast.ClassDef, name: str) -> bool:
    """Whether a class only asks its subclasses for a method: abstract, or nothing but `raise NotImplementedError`."""
    found = member(node, name)
    if not isinstance(found, FunctionNode):
        return False
    body = [line for line in found.body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))]
    raises = len(body) == 1 and isinstance(body[0], ast.Raise) and "NotImplementedError" in ast.unparse(body[0])
    return raises or decorated(found, "abstractmethod")


def is_empty(function: FunctionNode) -> bool:
    """Whether a function only stands for those of subclasses: a docstring, `...` or `pass`."""
    return all(
        isinstance(line, ast.Pass) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for line in function.body
    )


def own_nodes(function: FunctionNode) -> list[ast.AST]:
    """Nodes of a function without those of functions and classes inside it."""
    found: list[ast.AST] = []
    queue: list[ast.AST] = list(function.body)
    while queue:
        node = queue.pop(0)
        found.append(node)
        if not isinstance(node, FunctionNode | ast.Lambda | ast.ClassDef):
            queue.extend(ast.iter_child_nodes(node))
    return found
