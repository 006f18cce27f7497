"""Values that the tracer of the patched files knows: where each comes from in vLLM."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from draftkiln.seams.model import Condition

if TYPE_CHECKING:
    import ast

    from draftkiln.seams.modules import FunctionNode


@dataclass(frozen=True)
class Unknown:
    """Nothing known."""


@dataclass(frozen=True)
class Nothing:
    """The value None."""


@dataclass(frozen=True)
class Origin:
    """A value of vLLM, by one or several alternative paths."""

    paths: tuple[str, ...]

    def step(self, text: str) -> Origin:
        """The value one step further."""
        return Origin(tuple(f"{path}{text}" for path in self.paths))


@dataclass(frozen=True)
class LocalModule:
    """A module of the tree."""

    name: str


@dataclass(frozen=True)
class LocalFunction:
    """A function of the tree; `me` is what it is bound to."""

    module: str
    node: FunctionNode | ast.Lambda
    me: Value | None = None


@dataclass(frozen=True)
class LocalClass:
    """A class of the tree."""

    module: str
    node: ast.ClassDef


@dataclass(frozen=True)
class LocalInstance:
    """An instance of a class of the tree."""

    module: str
    node: ast.ClassDef


@dataclass(frozen=True)
class Builtin:
    """A function of Python that the tracer understands (`hasattr`, `inspect.signature`, `types.MethodType`, …)."""

    name: str


@dataclass(frozen=True)
class Parameters:
    """`inspect.signature(x)` or its `.parameters`."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class Truth:
    """A question about vLLM's API: what holds when the answer is yes, and when it is no."""

    yes: tuple[Condition, ...]
    no: tuple[Condition, ...]


@dataclass(frozen=True)
class Keywords:
    """A dictionary of keywords: sure ones, those that may be filtered out, and whether more may be in it."""

    sure: dict[str, Value] = field(default_factory=dict, hash=False)
    optional: frozenset[str] = frozenset()
    open: bool = False


@dataclass(frozen=True)
class Items:
    """A literal tuple or list."""

    parts: tuple[Value, ...]


@dataclass(frozen=True)
class Text:
    """A constant string."""

    text: str


Value: TypeAlias = (
    Unknown
    | Nothing
    | Origin
    | LocalModule
    | LocalFunction
    | LocalClass
    | LocalInstance
    | Builtin
    | Parameters
    | Truth
    | Keywords
    | Items
    | Text
)
UNKNOWN = Unknown()
UNDECIDED = Truth((Condition("undecided"),), (Condition("undecided"),))


def merge(first: Value, second: Value) -> Value:
    """The value of a name that two branches set differently."""
    if first == second:
        return first
    if isinstance(first, Nothing):
        return second
    if isinstance(second, Nothing):
        return first
    if isinstance(first, Origin) and isinstance(second, Origin):
        return Origin(tuple(dict.fromkeys([*first.paths, *second.paths])))
    if isinstance(first, Keywords) and isinstance(second, Keywords):
        both = {name: merge(value, second.sure[name]) for name, value in first.sure.items() if name in second.sure}
        either = {*first.sure, *second.sure, *first.optional, *second.optional} - set(both)
        return Keywords(both, frozenset(either), first.open or second.open)
    return UNKNOWN


def mentions_api(value: Value) -> bool:
    """Whether a value was asked from vLLM's API, such as a version."""
    if isinstance(value, Truth | Parameters):
        return True
    return isinstance(value, Origin) and any(path.rsplit(".", 1)[-1].startswith("__version") for path in value.paths)
