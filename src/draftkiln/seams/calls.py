"""Calls in the patched files: of vLLM, of the tree's own functions, and of the questions that Python itself answers."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from draftkiln.seams.bindings import copied
from draftkiln.seams.expressions import Expressions
from draftkiln.seams.model import Condition
from draftkiln.seams.modules import FunctionNode
from draftkiln.seams.origins import (
    UNDECIDED,
    UNKNOWN,
    Builtin,
    Items,
    Keywords,
    LocalClass,
    LocalFunction,
    LocalInstance,
    Nothing,
    Origin,
    Parameters,
    Text,
    Truth,
    Value,
    mentions_api,
    merge,
)
from draftkiln.seams.signatures import CallShape

if TYPE_CHECKING:
    from draftkiln.seams.bindings import Frame


class Calls(Expressions):
    """Follows calls."""

    def _call(self, node: ast.Call, frame: Frame) -> Value:
        callee = self._callee(node.func, frame)
        if isinstance(callee, Builtin):
            return self._builtin(callee.name, node, frame)
        positional = [self.value(item, frame) for item in node.args if not isinstance(item, ast.Starred)]
        keywords = self._keywords(node, frame)
        starred = [self.value(item.value, frame) for item in node.args if isinstance(item, ast.Starred)]
        if isinstance(callee, LocalFunction):
            return self.enter(callee, positional, replace(keywords, open=keywords.open or bool(starred)))
        if isinstance(callee, LocalClass):
            instance = LocalInstance(callee.module, callee.node)
            init = self.own_member(instance, "__init__")
            if isinstance(init, LocalFunction):
                self.enter(init, positional, keywords)
            return instance
        if not isinstance(callee, Origin):
            return UNDECIDED if any(mentions_api(item) for item in positional) else UNKNOWN
        return self._engine_call(
            callee, node, positional, replace(keywords, open=keywords.open or bool(starred)), frame
        )

    def _engine_call(
        self, callee: Origin, node: ast.Call, positional: list[Value], keywords: Keywords, frame: Frame
    ) -> Value:
        shape = CallShape(
            len(positional), tuple(sorted(keywords.sure)), tuple(sorted(keywords.optional)), keywords.open
        )
        self.emit("call", callee.paths, node, frame, shape=shape)
        last = callee.paths[0].rsplit(".", 1)[-1]
        if last == "collective_rpc" and positional and isinstance(positional[0], Text):
            self._remote_call(positional[0].text, node, keywords, frame)
        if last.startswith("supports_") and len(positional) == 1 and isinstance(positional[0], Origin):
            self.emit("predicate", callee.paths, node, frame, detail=positional[0].paths[0])
        return callee.step("()")

    def _remote_call(self, method: str, node: ast.Call, keywords: Keywords, frame: Frame) -> None:
        for name in self.extensions:
            module, _, wanted = name.rpartition(".")
            found = self.module(module).get(wanted)
            if isinstance(found, LocalClass) and any(
                isinstance(item, FunctionNode) and item.name == method for item in found.node.body
            ):
                return
        arguments = keywords.sure.get("args")
        count = len(arguments.parts) if isinstance(arguments, Items) else 0
        more = "kwargs" in keywords.sure or (arguments is not None and not isinstance(arguments, Items))
        self.emit("call", (f"@worker.{method}",), node, frame, shape=CallShape(count, open=more))

    def _callee(self, node: ast.expr, frame: Frame) -> Value:
        if not isinstance(node, ast.Attribute):
            return self.value(node, frame)
        return self.member(self.value(node.value, frame), node.attr)

    def _keywords(self, node: ast.Call, frame: Frame) -> Keywords:
        sure: dict[str, Value] = {}
        optional: frozenset[str] = frozenset()
        more = False
        for item in node.keywords:
            value = self.value(item.value, frame)
            if item.arg is not None:
                sure[item.arg] = value
            elif isinstance(value, Keywords):
                sure, optional, more = {**sure, **value.sure}, optional | value.optional, more or value.open
            else:
                more = True
        return Keywords(sure, optional, more)

    def _builtin(self, name: str, node: ast.Call, frame: Frame) -> Value:
        arguments = [self.value(item, frame) for item in node.args if not isinstance(item, ast.Starred)]
        keywords = self._keywords(node, frame)
        first = arguments[0] if arguments else UNKNOWN
        if name in {"hasattr", "getattr"} and isinstance(first, Origin):
            return self._reflected(name, first, arguments, node, frame)
        if name == "inspect.signature" and isinstance(first, Origin):
            return Parameters(first.paths)
        if name == "types.MethodType" and isinstance(first, LocalFunction):
            target = arguments[1] if len(arguments) > 1 else UNKNOWN
            known = isinstance(target, Origin) and not target.paths[0].startswith(
                ("@model", "@worker.model_runner.model")
            )
            self.enter(replace(first, me=target if known else Origin(("@decoder",))), [], Keywords(open=True))
            return UNKNOWN
        if name == "enumerate" and node.args:
            return Items((Items((UNKNOWN, self.element(node.args[0], frame))),))
        if name in {"itertools.islice", "list", "tuple", "iter", "reversed", "sorted"} and isinstance(
            first, Origin | Items
        ):
            return first
        if name == "next" and isinstance(first, Origin):
            return first.step("[]")
        if name == "dict":
            return (
                Keywords(keywords.sure, keywords.optional, keywords.open) if not arguments else copied(first, keywords)
            )
        if name == "functools.partial" and isinstance(first, Origin):
            return first
        return UNDECIDED if any(mentions_api(item) for item in arguments) else UNKNOWN

    def _reflected(self, name: str, base: Origin, arguments: list[Value], node: ast.Call, frame: Frame) -> Value:
        attribute = arguments[1] if len(arguments) > 1 else UNKNOWN
        if not isinstance(attribute, Text):
            return UNDECIDED if name == "hasattr" else UNKNOWN
        if name == "hasattr":
            condition = Condition("has", base.paths, attribute.text)
            return Truth((condition,), (condition.negated(),))
        if len(arguments) == 2:  # noqa: PLR2004 - getattr(x, "name") without a default
            self.emit("attribute", base.paths, node, frame, detail=attribute.text)
            return base.step(f".{attribute.text}")
        found = base.step(f"?.{attribute.text}")
        return merge(found, arguments[2]) if isinstance(arguments[2], Origin | Nothing) else found
