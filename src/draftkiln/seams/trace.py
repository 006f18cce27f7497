"""Follow vLLM's values through the statements and expressions of the patched files and list every reliance on them.

The rule for run-time guards (so that code that asks the installed API is not blamed for it):
- `hasattr(x, "n")`, `getattr(x, "n", default)` and `"n" in inspect.signature(f).parameters` become conditions of what
  they guard; the check answers them from the sources and looks only at the branch that would run.
- `try … except ImportError | AttributeError | TypeError | Exception` tolerates imports, attributes and calls in its
  body unless the handler raises; what the handler does is looked at when the body's import is absent.
- Keywords filtered by a comprehension over the signature's parameters are optional.
- Any other question about the API (a version comparison, `all(hasattr(…) …)`) cannot be answered: what it guards is
  tolerated.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from draftkiln.seams.bindings import Environment, Frame, bind_arguments, merge_into, part, restore
from draftkiln.seams.calls import Calls
from draftkiln.seams.guards import first_import, suppressed, tolerated_by
from draftkiln.seams.modules import FunctionNode, imported_module
from draftkiln.seams.origins import (
    UNKNOWN,
    Builtin,
    Keywords,
    LocalClass,
    LocalFunction,
    LocalInstance,
    LocalModule,
    Nothing,
    Origin,
    Text,
    Truth,
    Value,
    merge,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftkiln.seams.model import Condition, Kind

_DEPTH = 8


class Tracer(Calls):
    """Follows the files of a tree; `seams` is what was found."""

    def restart(self) -> None:
        """Forget what was listed, keep what is known of the attributes that methods set."""
        self.seams.clear()
        self.traced.clear()
        self._modules.clear()

    # modules, classes and functions

    def module(self, name: str) -> Environment:
        """Names that a module of the tree binds; its body is followed when first asked for."""
        if name not in self._modules:
            names: Environment = {}
            self._modules[name] = names
            file = self.index.file_of(name)
            if file is not None:
                with self._clean():
                    if name not in self._trees:
                        self._trees[name] = ast.parse(self.index.sources.read(file))
                    self.block(self._trees[name].body, Frame(name, names))
        return self._modules[name]

    def everything(self, name: str) -> None:
        """Follow all functions and methods of a module, those that nothing calls with unknown arguments."""
        for value in list(self.module(name).values()):
            if isinstance(value, LocalClass) and value.module == name:
                methods = [item for item in value.node.body if isinstance(item, FunctionNode)]
                for method in sorted(methods, key=lambda item: item.name != "__init__"):
                    self._unless_traced(LocalFunction(name, method, LocalInstance(name, value.node)))
        for value in list(self.module(name).values()):
            if isinstance(value, LocalFunction) and value.module == name:
                self._unless_traced(value)

    def _unless_traced(self, function: LocalFunction) -> None:
        if id(function.node) not in self.traced:
            with self._clean():
                self.enter(function, [], Keywords(open=True))

    @contextmanager
    def _clean(self) -> Iterator[None]:
        before = self._when, self._tolerated
        self._when, self._tolerated = [], frozenset()
        yield
        self._when, self._tolerated = before

    def enter(self, function: LocalFunction, positional: Sequence[Value], keywords: Keywords) -> Value:
        """Follow a call of a function of the tree and give what it returns."""
        node = function.node
        if self._depth >= _DEPTH or id(node) in self._active:
            return UNKNOWN
        self.traced.add(id(node))
        given = [*([function.me] if function.me is not None else []), *positional]
        frame = Frame(function.module, ChainMap({}, self.module(function.module)))
        bind_arguments(node.args, given, keywords, frame.names)
        self._depth += 1
        self._active.append(id(node))
        try:
            if isinstance(node, ast.Lambda):
                return self.value(node.body, frame)
            self.block(node.body, frame)
        finally:
            self._depth -= 1
            self._active.pop()
        result: Value = frame.returned[0] if frame.returned else Nothing()
        for value in frame.returned[1:]:
            result = merge(result, value)
        return result

    # statements

    def block(self, body: Sequence[ast.stmt], frame: Frame) -> bool:
        """Follow statements; True when the block always leaves (return, raise, continue, break)."""
        depth = len(self._when)
        try:
            for statement in body:
                if self._statement(statement, frame):
                    return True
        finally:
            del self._when[depth:]
        return False

    def _statement(self, node: ast.stmt, frame: Frame) -> bool:
        method = getattr(self, f"_do_{type(node).__name__.lower()}", None)
        if method is not None:
            return bool(method(node, frame))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, frame)
        return isinstance(node, ast.Raise | ast.Continue | ast.Break)

    def _do_return(self, node: ast.Return, frame: Frame) -> bool:
        frame.returned.append(self.value(node.value, frame) if node.value else Nothing())
        return True

    def _do_for(self, node: ast.For, frame: Frame) -> None:
        self.assign(node.target, self.element(node.iter, frame), frame)
        self.block(node.body, frame)
        self.block(node.orelse, frame)

    def _do_while(self, node: ast.While, frame: Frame) -> None:
        self.value(node.test, frame)
        self.block(node.body, frame)

    def _do_functiondef(self, node: ast.FunctionDef, frame: Frame) -> None:
        frame.names[node.name] = LocalFunction(frame.module, node)

    def _do_classdef(self, node: ast.ClassDef, frame: Frame) -> None:
        frame.names[node.name] = LocalClass(frame.module, node)

    def _do_assign(self, node: ast.Assign, frame: Frame) -> None:
        value = self.value(node.value, frame)
        for target in node.targets:
            self.assign(target, value, frame)

    def _do_annassign(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value, frame), frame)

    def _do_if(self, node: ast.If, frame: Frame) -> bool:
        test = self.value(node.test, frame)
        yes, no = (test.yes, test.no) if isinstance(test, Truth) else ((), ())
        before = dict(frame.names)
        left = self._under(yes, node.body, frame)
        first = dict(frame.names)
        restore(frame.names, before)
        right = self._under(no, node.orelse, frame)
        if not left:
            merge_into(frame.names, first, replace_all=right)
        if left and not right:
            self._when.extend(no)
        if right and not left and node.orelse:
            self._when.extend(yes)
        return left and right

    def _under(self, conditions: Sequence[Condition], body: Sequence[ast.stmt], frame: Frame) -> bool:
        self._when.extend(conditions)
        try:
            return self.block(body, frame)
        finally:
            if conditions:
                del self._when[-len(conditions) :]

    def _do_try(self, node: ast.Try, frame: Frame) -> None:
        tolerated: frozenset[Kind] = frozenset()
        for handler in node.handlers:
            tolerated |= tolerated_by(handler)
        before, outer = dict(frame.names), self._tolerated
        self._tolerated = outer | tolerated
        self.block(node.body, frame)
        self._tolerated = outer
        self.block(node.orelse, frame)
        after = dict(frame.names)
        absent = first_import(node.body) if "import" in tolerated else None
        for handler in node.handlers:
            restore(frame.names, before)
            if not self._under([absent.negated()] if absent else [], handler.body, frame):
                merge_into(after, dict(frame.names))
        restore(frame.names, after)
        self.block(node.finalbody, frame)

    def _do_with(self, node: ast.With, frame: Frame) -> None:
        outer = self._tolerated
        for item in node.items:
            value = self.value(item.context_expr, frame)
            self._tolerated |= suppressed(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, UNKNOWN if isinstance(value, Origin) else value, frame)
        self.block(node.body, frame)
        self._tolerated = outer

    def _do_import(self, node: ast.Import, frame: Frame) -> None:
        for alias in node.names:
            self._imported(alias.name, node, frame)
            bound = alias.name if alias.asname else alias.name.split(".")[0]
            frame.names[alias.asname or bound] = self.outside(bound)

    def _do_importfrom(self, node: ast.ImportFrom, frame: Frame) -> None:
        package = (self.index.file_of(frame.module) or "").endswith("__init__.py")
        source = imported_module(frame.module, node, package=package)
        for alias in node.names:
            dotted = f"{source}.{alias.name}"
            self._imported(dotted, node, frame)
            frame.names[alias.asname or alias.name] = self.local(source, alias.name) or self.outside(dotted)

    def _imported(self, dotted: str, node: ast.AST, frame: Frame) -> None:
        if dotted.split(".", maxsplit=1)[0] == "vllm":
            self.emit("import", (dotted,), node, frame)

    def local(self, source: str, name: str) -> Value | None:
        """What `from source import name` gives, None for modules outside the tree."""
        if not self.index.owns(source):
            return None
        if self.index.file_of(f"{source}.{name}"):
            return LocalModule(f"{source}.{name}")
        return self.module(source).get(name, UNKNOWN)

    def outside(self, dotted: str) -> Value:
        """The value of a dotted name that was imported."""
        if dotted.split(".", maxsplit=1)[0] == "vllm":
            return Origin((dotted,))
        if self.index.owns(dotted) and self.index.file_of(dotted):
            return LocalModule(dotted)
        return Builtin(dotted)

    def assign(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Bind a target."""
        if isinstance(target, ast.Name):
            frame.names[target.id] = value
        elif isinstance(target, ast.Starred):
            self.assign(target.value, UNKNOWN, frame)
        elif isinstance(target, ast.Tuple | ast.List):
            if isinstance(value, Origin) and not any(isinstance(item, ast.Starred) for item in target.elts):
                self.emit("return", value.paths, target, frame, detail=f"unpack {len(target.elts)}")
            for position, item in enumerate(target.elts):
                self.assign(item, part(value, position), frame)
        elif isinstance(target, ast.Attribute):
            base = self.value(target.value, frame)
            if isinstance(base, LocalInstance):
                known = self._attributes.setdefault(f"{base.module}.{base.node.name}", {})
                known[target.attr] = merge(known[target.attr], value) if target.attr in known else value
            elif isinstance(base, Origin) and (target.attr.startswith("_") or target.attr == "forward"):
                self._planted[target.attr] = value
            elif isinstance(base, Origin):
                self.emit("set", base.paths, target, frame, detail=target.attr)
        elif isinstance(target, ast.Subscript):
            self._store_item(target, value, frame)

    def _store_item(self, target: ast.Subscript, value: Value, frame: Frame) -> None:
        base, key = self.value(target.value, frame), self.value(target.slice, frame)
        if isinstance(base, Keywords) and isinstance(target.value, ast.Name):
            if isinstance(key, Text):
                frame.names[target.value.id] = replace(
                    base, sure={**base.sure, key.text: value}, optional=base.optional - {key.text}
                )
            else:
                frame.names[target.value.id] = replace(base, open=True)
