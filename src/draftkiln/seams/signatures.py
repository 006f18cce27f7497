"""What a callable takes, read from its definition, and what is wrong with a call of it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from draftkiln.seams.modules import FunctionNode

ParameterKind = Literal["positional", "either", "keyword", "args", "kwargs"]


@dataclass(frozen=True)
class Parameter:
    """One parameter; `default` is the source text of its default, None when it is required."""

    name: str
    kind: ParameterKind = "either"
    default: str | None = None

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is None and self.kind not in {"args", "kwargs"}

    def __str__(self) -> str:
        prefix = {"args": "*", "kwargs": "**"}.get(self.kind, "")
        return f"{prefix}{self.name}" + ("" if self.default is None else f"={self.default}")


@dataclass(frozen=True)
class Signature:
    """The parameters of a callable without `self`."""

    parameters: tuple[Parameter, ...]

    def __str__(self) -> str:
        shown, starred = [], False
        for parameter in self.parameters:
            if parameter.kind == "args":
                starred = True
            if parameter.kind == "keyword" and not starred:
                shown.append("*")
                starred = True
            shown.append(str(parameter))
        return f"({', '.join(shown)})"

    @property
    def names(self) -> frozenset[str]:
        """Names that a call may use as keywords."""
        return frozenset(item.name for item in self.parameters if item.kind in {"either", "keyword"})

    @property
    def takes_any_keyword(self) -> bool:
        """Whether there is a `**kwargs`."""
        return any(item.kind == "kwargs" for item in self.parameters)


@dataclass(frozen=True)
class CallShape:
    """How a callable is called.

    `optional` are keywords that reach the call only if the callee takes them (filtered at run time); `open` says
    that more arguments than these may arrive (`*args`, `**kwargs`), so nothing can be found missing.
    """

    positional: int = 0
    keywords: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    open: bool = False

    def __str__(self) -> str:
        parts = (
            ["_"] * self.positional + [f"{name}=" for name in self.keywords] + [f"{name}=?" for name in self.optional]
        )
        return f"({', '.join([*parts, *(['…'] if self.open else [])])})"


@dataclass(frozen=True)
class CallProblem:
    """One reason why a call fails."""

    severity: Literal["new required parameter", "unexpected keyword", "too many arguments"]
    parameter: str


def call_problems(signature: Signature, shape: CallShape) -> list[CallProblem]:
    """All reasons why a call of `shape` fails on `signature`; empty when it binds."""
    by_position = [item for item in signature.parameters if item.kind in {"positional", "either"}]
    problems = []
    has_rest = any(item.kind == "args" for item in signature.parameters)
    if shape.positional > len(by_position) and not has_rest:
        problems.append(CallProblem("too many arguments", f"{shape.positional} given, {len(by_position)} taken"))
    given = {item.name for item in by_position[: shape.positional]}
    twice = sorted(given & {*shape.keywords} & signature.names)
    problems.extend(CallProblem("too many arguments", f"{name} given twice") for name in twice)
    if not signature.takes_any_keyword:
        problems.extend(
            CallProblem("unexpected keyword", name) for name in shape.keywords if name not in signature.names
        )
    given |= {*shape.keywords, *shape.optional} & signature.names
    if not shape.open:
        missing = [item.name for item in signature.parameters if item.required and item.name not in given]
        problems.extend(CallProblem("new required parameter", name) for name in missing)
    return problems


def of_function(node: FunctionNode | ast.Lambda, *, bound: bool) -> Signature:
    """The signature of a function; `bound` leaves out its first parameter."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    parameters = [
        Parameter(item.arg, "positional" if item in arguments.posonlyargs else "either", _text(default))
        for item, default in zip(positional, defaults, strict=True)
    ]
    if bound:
        parameters = parameters[1:]
    if arguments.vararg:
        parameters.append(Parameter(arguments.vararg.arg, "args"))
    parameters.extend(
        Parameter(item.arg, "keyword", _text(default))
        for item, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    )
    if arguments.kwarg:
        parameters.append(Parameter(arguments.kwarg.arg, "kwargs"))
    return Signature(tuple(parameters))


def of_fields(classes: Iterable[ast.ClassDef], *, keyword_only: bool) -> Signature:
    """The signature that a dataclass-like class gets from its annotated fields, bases first."""
    parameters: dict[str, Parameter] = {}
    for node in classes:
        keyword = keyword_only or _says(node, "kw_only")
        for statement in node.body:
            if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
                continue
            annotation, name = ast.unparse(statement.annotation), statement.target.id
            if annotation.endswith("KW_ONLY"):
                keyword = True
            elif "ClassVar" in annotation or _not_in_init(statement.value):
                parameters.pop(name, None)
            else:
                kind: ParameterKind = "keyword" if keyword else "either"
                parameters[name] = Parameter(name, kind, _field_default(statement.value))
    return Signature(tuple(parameters.values()))


def _says(node: ast.ClassDef, option: str) -> bool:
    calls = [item for item in node.decorator_list if isinstance(item, ast.Call)]
    keywords: Sequence[ast.keyword] = [*node.keywords, *(keyword for call in calls for keyword in call.keywords)]
    return any(
        item.arg == option and isinstance(item.value, ast.Constant) and item.value.value is True for item in keywords
    )


def _is_field_call(value: ast.expr | None) -> ast.Call | None:
    if isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1].lower() in {"field", "pydanticfield"}:
        return value
    return None


def _not_in_init(value: ast.expr | None) -> bool:
    call = _is_field_call(value)
    options = call.keywords if call else []
    return any(item.arg == "init" and isinstance(item.value, ast.Constant) and not item.value.value for item in options)


def _field_default(value: ast.expr | None) -> str | None:
    call = _is_field_call(value)
    if call is None:
        return _text(value)
    for item in call.keywords:
        if item.arg in {"default", "default_factory"}:
            return _text(item.value)
    first = call.args[0] if call.args else None
    return None if isinstance(first, ast.Constant) and first.value is ... else _text(first)


def _text(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)
