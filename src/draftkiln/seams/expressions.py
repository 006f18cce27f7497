"""The values of expressions of the patched files, and the seams that evaluating them crosses."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import ChainMap
from typing import TYPE_CHECKING

from draftkiln.seams.bindings import Environment, Frame, is_reply, part, presence
from draftkiln.seams.guards import last_name
from draftkiln.seams.model import Condition, Kind, Seam
from draftkiln.seams.modules import FunctionNode, ModuleIndex
from draftkiln.seams.origins import (
    UNDECIDED,
    UNKNOWN,
    Builtin,
    Items,
    Keywords,
    LocalFunction,
    LocalInstance,
    LocalModule,
    Nothing,
    Origin,
    Parameters,
    Text,
    Truth,
    Value,
    mentions_api,
    merge,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.seams.signatures import CallShape

_BUILTINS = {
    "hasattr",
    "getattr",
    "isinstance",
    "dict",
    "enumerate",
    "all",
    "any",
    "list",
    "tuple",
    "zip",
    "next",
    "iter",
    "sorted",
    "reversed",
}


class Expressions(ABC):
    """Evaluates expressions; statements and calls are followed by its subclasses."""

    def __init__(self, index: ModuleIndex, extensions: frozenset[str]) -> None:
        self.index = index
        self.extensions = extensions
        self.seams: dict[tuple[object, ...], Seam] = {}
        self.traced: set[int] = set()
        self._modules: dict[str, Environment] = {}
        self._trees: dict[str, ast.Module] = {}
        self._attributes: dict[str, dict[str, Value]] = {}
        self._planted: dict[str, Value] = {}
        """Attributes that the tree itself sets on the engine's objects, which are no reliance on the engine."""
        self._when: list[Condition] = []
        self._tolerated: frozenset[Kind] = frozenset()
        self._depth = 0
        self._active: list[int] = []

    @abstractmethod
    def module(self, name: str) -> Environment:
        """Names that a module of the tree binds."""

    @abstractmethod
    def enter(self, function: LocalFunction, positional: Sequence[Value], keywords: Keywords) -> Value:
        """Follow a call of a function of the tree and give what it returns."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Bind a target."""

    @abstractmethod
    def local(self, source: str, name: str) -> Value | None:
        """What `from source import name` gives, None for modules outside the tree."""

    @abstractmethod
    def outside(self, dotted: str) -> Value:
        """The value of a dotted name that was imported."""

    def emit(
        self,
        kind: Kind,
        paths: tuple[str, ...],
        node: ast.AST,
        frame: Frame,
        *,
        detail: str = "",
        shape: CallShape | None = None,
    ) -> None:
        """List a seam."""
        when = list(dict.fromkeys(self._when))
        if kind in self._tolerated:
            when.append(Condition("undecided", name="try"))
        file = self.index.file_of(frame.module) or frame.module
        line = getattr(node, "lineno", 0)
        seam = Seam(kind, paths, file, line, detail, shape, tuple(when))
        self.seams.setdefault((kind, paths, detail, shape, tuple(when), file, line), seam)

    def value(self, node: ast.expr, frame: Frame) -> Value:
        """The value of an expression; what it relies on is listed on the way."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is not None:
            found: Value = method(node, frame)
            return found
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, frame)
        return UNKNOWN

    def _constant(self, node: ast.Constant, frame: Frame) -> Value:  # noqa: ARG002
        return Text(node.value) if isinstance(node.value, str) else Nothing() if node.value is None else UNKNOWN

    def _name(self, node: ast.Name, frame: Frame) -> Value:
        if node.id in frame.names:
            return frame.names[node.id]
        return Builtin(node.id) if node.id in _BUILTINS else UNKNOWN

    def _namedexpr(self, node: ast.NamedExpr, frame: Frame) -> Value:
        value = self.value(node.value, frame)
        self.assign(node.target, value, frame)
        return value

    def _tuple(self, node: ast.Tuple | ast.List, frame: Frame) -> Value:
        return Items(tuple(self.value(item, frame) for item in node.elts))

    _list = _tuple

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        base = self.value(node.value, frame)
        if isinstance(base, Origin) and node.attr not in self._planted:
            self.emit("attribute", base.paths, node, frame, detail=node.attr)
        return self.member(base, node.attr)

    def member(self, base: Value, name: str) -> Value:
        """The value of `base.name`."""
        if isinstance(base, Origin):
            return self._planted.get(name) or base.step(f".{name}")
        if isinstance(base, Parameters):
            return base
        if isinstance(base, Builtin):
            return self.outside(f"{base.name}.{name}")
        if isinstance(base, LocalModule):
            return self.local(base.name, name) or UNKNOWN
        if isinstance(base, LocalInstance):
            return self.own_member(base, name)
        return UNKNOWN

    def own_member(self, base: LocalInstance, name: str) -> Value:
        """An attribute of an instance of a class of the tree; an extension's other attributes are the worker's."""
        for item in base.node.body:
            if isinstance(item, FunctionNode) and item.name == name:
                decorators = {last_name(each) for each in item.decorator_list}
                function = LocalFunction(base.module, item, None if "staticmethod" in decorators else base)
                return self.enter(function, [], Keywords()) if "property" in decorators else function
        known = self._attributes.get(f"{base.module}.{base.node.name}", {})
        if name in known:
            return known[name]
        if f"{base.module}.{base.node.name}" in self.extensions and not self._assigns(base.node, name):
            return Origin((f"@worker.{name}",))
        return UNKNOWN

    def _assigns(self, node: ast.ClassDef, name: str) -> bool:
        return any(
            isinstance(item, ast.Attribute) and item.attr == name and isinstance(item.ctx, ast.Store)
            for item in ast.walk(node)
        )

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        base, key = self.value(node.value, frame), self.value(node.slice, frame)
        position = (
            node.slice.value if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int) else None
        )
        if isinstance(base, Origin):
            if isinstance(node.ctx, ast.Load):
                self.emit("return", base.paths, node, frame, detail="index")
            if is_reply(base):
                return UNKNOWN
            return base.step(f"[{'' if position is None else position}]")
        if isinstance(base, Keywords) and isinstance(key, Text):
            return base.sure.get(key.text, UNKNOWN)
        return part(base, position)

    def _ifexp(self, node: ast.IfExp, frame: Frame) -> Value:
        test = self.value(node.test, frame)
        yes, no = (test.yes, test.no) if isinstance(test, Truth) else ((), ())
        return merge(self._value_under(yes, node.body, frame), self._value_under(no, node.orelse, frame))

    def _value_under(self, conditions: Sequence[Condition], node: ast.expr, frame: Frame) -> Value:
        self._when.extend(conditions)
        value = self.value(node, frame)
        if conditions:
            del self._when[-len(conditions) :]
        return value

    def _boolop(self, node: ast.BoolOp, frame: Frame) -> Value:
        found: list[Value] = []
        gathered: list[Condition] = []
        for item in node.values:
            value = self._value_under(list(gathered), item, frame)
            found.append(value)
            if isinstance(value, Truth):
                gathered.extend(value.yes if isinstance(node.op, ast.And) else value.no)
        truths = [value for value in found if isinstance(value, Truth)]
        if not truths:
            merged = found[0]
            for value in found[1:]:
                merged = merge(merged, value)
            return merged
        yes = tuple(item for value in truths for item in value.yes)
        no = tuple(item for value in truths for item in value.no)
        if len(truths) == 1:
            return Truth(yes, no)
        return (
            Truth(yes, (Condition("undecided"),))
            if isinstance(node.op, ast.And)
            else Truth((Condition("undecided"),), no)
        )

    def _unaryop(self, node: ast.UnaryOp, frame: Frame) -> Value:
        value = self.value(node.operand, frame)
        return Truth(value.no, value.yes) if isinstance(node.op, ast.Not) and isinstance(value, Truth) else UNKNOWN

    def _compare(self, node: ast.Compare, frame: Frame) -> Value:
        left = self.value(node.left, frame)
        rights = [self.value(item, frame) for item in node.comparators]
        operator, right = node.ops[0], rights[0]
        if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, Parameters):
            if not isinstance(left, Text):
                return UNDECIDED
            condition = Condition("takes", right.paths, left.text)
            yes, no = (condition,), (condition.negated(),)
            return Truth(yes, no) if isinstance(operator, ast.In) else Truth(no, yes)
        if isinstance(operator, ast.Is | ast.IsNot) and isinstance(right, Nothing) and isinstance(left, Origin):
            return presence(left, absent=isinstance(operator, ast.Is))
        return UNDECIDED if any(mentions_api(item) for item in (left, *rights)) else UNKNOWN

    def _dict(self, node: ast.Dict, frame: Frame) -> Value:
        sure: dict[str, Value] = {}
        optional: frozenset[str] = frozenset()
        more = False
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, frame)
            name = self.value(key, frame) if key is not None else None
            if isinstance(name, Text):
                sure[name.text] = value
            elif name is None and isinstance(value, Keywords):
                sure, optional, more = {**sure, **value.sure}, optional | value.optional, more or value.open
            else:
                more = True
        return Keywords(sure, optional, more)

    def _dictcomp(self, node: ast.DictComp, frame: Frame) -> Value:
        inner = Frame(frame.module, ChainMap({}, frame.names))
        source = self._comprehension(node.generators, inner)
        questions = [self.value(test, inner) for generator in node.generators for test in generator.ifs]
        self.value(node.value, inner)
        if not isinstance(source, Keywords):
            return Keywords(open=True)
        asks = any(mentions_api(item) for item in questions)
        names = frozenset(source.sure) | source.optional
        return Keywords({}, names, source.open) if asks or questions else source

    def _comprehension(self, generators: Sequence[ast.comprehension], inner: Frame) -> Value:
        source: Value = UNKNOWN
        for generator in generators:
            call = generator.iter
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "items":
                source = self.value(call.func.value, inner)
                if isinstance(source, Keywords):
                    self.assign(generator.target, UNKNOWN, inner)
                    continue
            self.assign(generator.target, self.element(generator.iter, inner), inner)
        return source

    def _generatorexp(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp, frame: Frame) -> Value:
        inner = Frame(frame.module, ChainMap({}, frame.names))
        self._comprehension(node.generators, inner)
        tests = [self.value(test, inner) for generator in node.generators for test in generator.ifs]
        conditions = [item for test in tests if isinstance(test, Truth) for item in test.yes]
        value = self._value_under(conditions, node.elt, inner)
        return Items((value,)) if not isinstance(value, Truth) else UNDECIDED

    _listcomp = _generatorexp
    _setcomp = _generatorexp

    def _lambda(self, node: ast.Lambda, frame: Frame) -> Value:
        return LocalFunction(frame.module, node)

    def element(self, node: ast.expr, frame: Frame) -> Value:
        """What a loop over an expression gives each time."""
        value = self.value(node, frame)
        if isinstance(value, Origin):
            if not value.paths[0].endswith("[]"):
                self.emit("return", value.paths, node, frame, detail="iterate")
            return UNKNOWN if is_reply(value) else value.step("[]")
        if isinstance(value, Items) and value.parts:
            merged = value.parts[0]
            for part in value.parts[1:]:
                merged = merge(merged, part)
            return merged
        return UNKNOWN
