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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from draftkiln.seams import origins
from draftkiln.seams.model import Condition, Kind, Seam
from draftkiln.seams.modules import FunctionNode, ModuleIndex, imported_module
from draftkiln.seams.origins import (
    UNDECIDED,
    UNKNOWN,
    Builtin,
    Items,
    Keywords,
    LocalClass,
    LocalFunction,
    LocalInstance,
    LocalModule,
    Nothing,
    Origin,
    Parameters,
    Text,
    Truth,
    Value,
)
from draftkiln.seams.signatures import CallShape

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping, Sequence

    Environment = MutableMapping[str, Value]

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
_OUTSIDE = {
    "inspect.signature",
    "types.MethodType",
    "itertools.islice",
    "functools.partial",
    "contextlib.suppress",
    "typing.cast",
}
_TOLERATED: dict[str, frozenset[Kind]] = {
    "ImportError": frozenset({"import"}),
    "ModuleNotFoundError": frozenset({"import"}),
    "AttributeError": frozenset({"attribute", "import"}),
    "TypeError": frozenset({"call"}),
    "ValidationError": frozenset({"call"}),
}
_EVERY: frozenset[Kind] = frozenset({"import", "attribute", "call", "return", "predicate"})
_DEPTH = 8


@dataclass
class Frame:
    """The function being followed."""

    module: str
    names: Environment
    returned: list[Value] = field(default_factory=list)


class Tracer:
    """Follows the files of a tree; `seams` is what was found."""

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
        _bind_arguments(node.args, given, keywords, frame.names)
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
            result = origins.merge(result, value)
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
        if isinstance(node, ast.Return | ast.Raise):
            result = self.value(node.value, frame) if isinstance(node, ast.Return) and node.value else Nothing()
            if isinstance(node, ast.Return):
                frame.returned.append(result)
            elif node.exc:
                self.value(node.exc, frame)
            return True
        if isinstance(node, ast.Continue | ast.Break):
            return True
        if isinstance(node, ast.If):
            return self._branches(node, frame)
        if isinstance(node, ast.Try):
            self._try(node, frame)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self.assign(node.target, self.element(node.iter, frame), frame)
            self.block(node.body, frame)
            self.block(node.orelse, frame)
        elif isinstance(node, ast.While):
            self.value(node.test, frame)
            self.block(node.body, frame)
        elif isinstance(node, ast.With | ast.AsyncWith):
            self._with(node, frame)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, frame)
        elif isinstance(node, FunctionNode):
            frame.names[node.name] = LocalFunction(frame.module, node)
        elif isinstance(node, ast.ClassDef):
            frame.names[node.name] = LocalClass(frame.module, node)
        elif isinstance(node, ast.Assign):
            value = self.value(node.value, frame)
            for target in node.targets:
                self.assign(target, value, frame)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.assign(node.target, self.value(node.value, frame), frame)
        elif isinstance(node, ast.AugAssign | ast.Expr):
            self.value(node.value, frame)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.value(child, frame)
        return False

    def _branches(self, node: ast.If, frame: Frame) -> bool:
        test = self.value(node.test, frame)
        yes, no = (test.yes, test.no) if isinstance(test, Truth) else ((), ())
        before = dict(frame.names)
        left = self._under(yes, node.body, frame)
        first = dict(frame.names)
        _restore(frame.names, before)
        right = self._under(no, node.orelse, frame)
        if not left:
            _merge_into(frame.names, first, replace_all=right)
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

    def _try(self, node: ast.Try, frame: Frame) -> None:
        tolerated: frozenset[Kind] = frozenset()
        for handler in node.handlers:
            if not any(isinstance(item, ast.Raise) for item in handler.body):
                tolerated |= _tolerated_by(handler)
        before, outer = dict(frame.names), self._tolerated
        self._tolerated = outer | tolerated
        self.block(node.body, frame)
        self._tolerated = outer
        self.block(node.orelse, frame)
        after = dict(frame.names)
        absent = _first_import(node.body, frame.module) if "import" in tolerated else None
        for handler in node.handlers:
            _restore(frame.names, before)
            if not self._under([absent.negated()] if absent else [], handler.body, frame):
                _merge_into(after, dict(frame.names))
        _restore(frame.names, after)
        self.block(node.finalbody, frame)

    def _with(self, node: ast.With | ast.AsyncWith, frame: Frame) -> None:
        outer = self._tolerated
        for item in node.items:
            value = self.value(item.context_expr, frame)
            call = item.context_expr
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("suppress"):
                self._tolerated |= frozenset().union(*(_TOLERATED.get(_last(name), _EVERY) for name in call.args))
            if item.optional_vars is not None:
                self.assign(item.optional_vars, UNKNOWN if isinstance(value, Origin) else value, frame)
        self.block(node.body, frame)
        self._tolerated = outer

    def _import(self, node: ast.Import | ast.ImportFrom, frame: Frame) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._imported(alias.name, node, frame)
                bound = alias.name if alias.asname else alias.name.split(".")[0]
                frame.names[alias.asname or bound] = self.outside(bound)
            return
        package = (self.index.file_of(frame.module) or "").endswith("__init__.py")
        source = imported_module(frame.module, node, package=package)
        for alias in node.names:
            dotted = f"{source}.{alias.name}"
            self._imported(dotted, node, frame)
            frame.names[alias.asname or alias.name] = self._local(source, alias.name) or self.outside(dotted)

    def _imported(self, dotted: str, node: ast.AST, frame: Frame) -> None:
        if dotted.split(".", maxsplit=1)[0] == "vllm":
            self.emit("import", (dotted,), node, frame)

    def _local(self, source: str, name: str) -> Value | None:
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
                self.assign(item, _part(value, position), frame)
        elif isinstance(target, ast.Attribute):
            base = self.value(target.value, frame)
            if isinstance(base, LocalInstance):
                known = self._attributes.setdefault(f"{base.module}.{base.node.name}", {})
                known[target.attr] = origins.merge(known[target.attr], value) if target.attr in known else value
            elif isinstance(base, Origin) and (target.attr.startswith("_") or target.attr == "forward"):
                self._planted[target.attr] = value
            elif isinstance(base, Origin):
                self.emit("attribute", base.paths, target, frame, detail=target.attr)
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

    # expressions

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
            return self._local(base.name, name) or UNKNOWN
        if isinstance(base, LocalInstance):
            return self._own_member(base, name)
        return UNKNOWN

    def _own_member(self, base: LocalInstance, name: str) -> Value:
        for item in base.node.body:
            if isinstance(item, FunctionNode) and item.name == name:
                decorators = {_last(each) for each in item.decorator_list}
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
            if _is_reply(base):
                return UNKNOWN
            return base.step(f"[{'' if position is None else position}]")
        if isinstance(base, Keywords) and isinstance(key, Text):
            return base.sure.get(key.text, UNKNOWN)
        return _part(base, position)

    def _ifexp(self, node: ast.IfExp, frame: Frame) -> Value:
        test = self.value(node.test, frame)
        yes, no = (test.yes, test.no) if isinstance(test, Truth) else ((), ())
        return origins.merge(self._value_under(yes, node.body, frame), self._value_under(no, node.orelse, frame))

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
                merged = origins.merge(merged, value)
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
            return _presence(left, absent=isinstance(operator, ast.Is))
        return UNDECIDED if any(origins.mentions_api(item) for item in (left, *rights)) else UNKNOWN

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
        asks = any(origins.mentions_api(item) for item in questions)
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
            return UNKNOWN if _is_reply(value) else value.step("[]")
        if isinstance(value, Items) and value.parts:
            merged = value.parts[0]
            for part in value.parts[1:]:
                merged = origins.merge(merged, part)
            return merged
        return UNKNOWN

    # calls

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
            init = self._own_member(instance, "__init__")
            if isinstance(init, LocalFunction):
                self.enter(init, positional, keywords)
            return instance
        if not isinstance(callee, Origin):
            return UNDECIDED if any(origins.mentions_api(item) for item in positional) else UNKNOWN
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
                Keywords(keywords.sure, keywords.optional, keywords.open) if not arguments else _copied(first, keywords)
            )
        if name == "functools.partial" and isinstance(first, Origin):
            return first
        return UNDECIDED if any(origins.mentions_api(item) for item in arguments) else UNKNOWN

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
        return origins.merge(found, arguments[2]) if isinstance(arguments[2], Origin | Nothing) else found

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


def _bind_arguments(arguments: ast.arguments, given: Sequence[Value], keywords: Keywords, names: Environment) -> None:
    positional = [*arguments.posonlyargs, *arguments.args]
    for position, item in enumerate(positional):
        names[item.arg] = given[position] if position < len(given) else keywords.sure.get(item.arg, UNKNOWN)
    for item in arguments.kwonlyargs:
        names[item.arg] = keywords.sure.get(item.arg, UNKNOWN)
    taken = {item.arg for item in [*positional, *arguments.kwonlyargs]}
    if arguments.vararg:
        names[arguments.vararg.arg] = Items(tuple(given[len(positional) :]))
    if arguments.kwarg:
        rest = {name: value for name, value in keywords.sure.items() if name not in taken}
        names[arguments.kwarg.arg] = Keywords(rest, keywords.optional - taken, keywords.open)


def _part(value: Value, position: int | None) -> Value:
    if isinstance(value, Origin):
        return value.step(f"[{'' if position is None else position}]")
    if isinstance(value, Items) and position is not None and -len(value.parts) <= position < len(value.parts):
        return value.parts[position]
    return UNKNOWN


def _is_reply(value: Origin) -> bool:
    """Whether a value is the replies of workers, whose inside is the tree's own or the worker's, not the executor's."""
    return value.paths[0].endswith(".collective_rpc()")


def _presence(value: Origin, *, absent: bool) -> Value:
    base, mark, name = value.paths[0].rpartition("?.")
    if not mark or len(value.paths) > 1 or not name.isidentifier():
        return UNKNOWN
    condition = Condition("has", (base,), name)
    yes, no = (condition,), (condition.negated(),)
    return Truth(no, yes) if absent else Truth(yes, no)


def _copied(first: Value, keywords: Keywords) -> Value:
    if not isinstance(first, Keywords):
        return replace(keywords, open=True)
    return Keywords({**first.sure, **keywords.sure}, first.optional | keywords.optional, first.open or keywords.open)


def _tolerated_by(handler: ast.ExceptHandler) -> frozenset[Kind]:
    if handler.type is None:
        return _EVERY
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    found: frozenset[Kind] = frozenset()
    for item in types:
        name = _last(item)
        found |= _EVERY if name in {"Exception", "BaseException"} else _TOLERATED.get(name, frozenset())
    return found


def _first_import(body: Sequence[ast.stmt], module: str) -> Condition | None:
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module:
            return Condition("has", (statement.module,), statement.names[0].name)
        if isinstance(statement, ast.Import):
            base, _, name = statement.names[0].name.rpartition(".")
            return Condition("has", (base,), name) if base else None
    del module
    return None


def _last(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).split(".")[-1]


def _restore(names: Environment, before: dict[str, Value]) -> None:
    own = names.maps[0] if isinstance(names, ChainMap) else names
    for name in [name for name in own if name not in before]:
        del own[name]
    names.update({name: value for name, value in before.items() if names.get(name) != value})


def _merge_into(names: Environment, other: dict[str, Value], *, replace_all: bool = False) -> None:
    for name, value in other.items():
        names[name] = value if replace_all or name not in names else origins.merge(names[name], value)
