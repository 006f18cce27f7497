"""What an access path means in vLLM's sources: classes, instances, functions and their results.

A small, forgiving type inference: whatever it cannot follow is `UNKNOWN`, and nothing is ever reported about that.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln.seams import classes, signatures
from draftkiln.seams.annotations import FUTURE, annotated
from draftkiln.seams.modules import Definition, External, FunctionNode, Missing, ModuleIndex, ModuleRef, Resolved
from draftkiln.seams.values import (
    EXISTING,
    UNKNOWN,
    Absent,
    AnyOf,
    ClassOf,
    Function,
    InstanceOf,
    Items,
    Module,
    Scalar,
    Unknown,
    Value,
    any_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.seams.classes import Assignment

_DEPTH = 14
_TUPLE_MEMBERS = {"count", "index"}
_FUTURE_MEMBERS = {"result", "exception", "done", "cancel", "cancelled", "running", "add_done_callback"}


@dataclass(frozen=True)
class _Place:
    """Where an expression of the engine stands."""

    module: str
    owner: Definition | None = None
    function: FunctionNode | None = None


class Engine:
    """The parsed sources of one engine build."""

    def __init__(self, index: ModuleIndex) -> None:
        self.index = index
        self._results: dict[int, Value] = {}
        self._assignments: dict[int, dict[str, list[Assignment]]] = {}
        self._ancestors: dict[int, tuple[list[Definition], list[str]]] = {}
        self._architectures: dict[str, Definition | None] = {}
        self._depth = 0

    def name(self, module: str, name: str) -> Value:
        """What `from module import name` gives."""
        return self._of(self.index.resolve(module, name))

    def ancestors(self, definition: Definition) -> tuple[list[Definition], list[str]]:
        """The class and its bases, nearest first, and the dotted names of bases outside the sources."""
        if id(definition.node) not in self._ancestors:
            self._ancestors[id(definition.node)] = self._find_ancestors(definition)
        return self._ancestors[id(definition.node)]

    def _find_ancestors(self, definition: Definition) -> tuple[list[Definition], list[str]]:
        found: list[Definition] = []
        outside: list[str] = []
        queue = [definition]
        while queue:
            current = queue.pop(0)
            if any(current.node is item.node for item in found) or not isinstance(current.node, ast.ClassDef):
                continue
            found.append(current)
            following = []
            for base in current.node.bases:
                plain = base.value if isinstance(base, ast.Subscript) else base
                resolved = self.index.resolve_expression(current.module, plain, typing=True)
                if isinstance(resolved, Definition) and isinstance(resolved.node, ast.ClassDef):
                    following.append(resolved)
                else:
                    outside.append(resolved.dotted if isinstance(resolved, External) else ast.unparse(base))
            queue = following + queue
        return found, outside

    def is_subclass(self, definition: Definition, base: Definition) -> bool:
        """Whether `base` is among the bases of `definition`."""
        return any(item.node is base.node for item in self.ancestors(definition)[0])

    def signature(self, value: Value) -> signatures.Signature | None:
        """What a call of `value` takes, None when that cannot be told."""
        if isinstance(value, Function) and isinstance(value.definition.node, FunctionNode):
            return signatures.of_function(value.definition.node, bound=value.bound)
        if isinstance(value, ClassOf):
            return self._constructor(value.definition)
        if isinstance(value, InstanceOf):
            for method in ("__call__", "forward"):
                found = self.attribute(value, method)
                if isinstance(found, Function):
                    return self.signature(found)
        return None

    def _constructor(self, definition: Definition) -> signatures.Signature | None:
        family, outside = self.ancestors(definition)
        for position, item in enumerate(family):
            node = item.class_node
            own = classes.member(node, "__init__")
            if isinstance(own, FunctionNode):
                return signatures.of_function(own, bound=True)
            if classes.decorated(node, "dataclass", "config"):
                fields = [each.node for each in reversed(family[position:]) if isinstance(each.node, ast.ClassDef)]
                return signatures.of_fields(fields, keyword_only=False)
        last = {name.split(".")[-1] for name in outside}
        if classes.is_fields_only(outside):
            fields = [each.node for each in reversed(family) if isinstance(each.node, ast.ClassDef)]
            return signatures.of_fields(fields, keyword_only="BaseModel" in last)
        return None if last - classes.PLAIN_BASES else signatures.Signature(())

    def attribute(self, value: Value, name: str) -> Value:
        """What `value.name` is."""
        if isinstance(value, AnyOf):
            each = [self.attribute(option, name) for option in value.options]
            return any_of([item for item in each if item != UNKNOWN and not isinstance(item, Absent)] or each)
        if isinstance(value, Module):
            found = self.name(value.name, name)
            return EXISTING if isinstance(found, Unknown) else found
        if isinstance(value, Scalar) and value.name in {"None", FUTURE}:
            return UNKNOWN if value.name == FUTURE and name in _FUTURE_MEMBERS else Absent(value.name)
        if isinstance(value, Items):
            may_have = value.parts is None or name.startswith("__") or name in _TUPLE_MEMBERS
            return EXISTING if may_have else Absent("tuple")
        if not isinstance(value, ClassOf | InstanceOf):
            return UNKNOWN
        family, outside = self.ancestors(value.definition)
        for item in family:
            if item is not family[0] and classes.is_left_out(item.class_node, name):
                continue  # a stub that no class below fills
            own = self._own(item, name, instance=isinstance(value, InstanceOf))
            if own is not None:
                return EXISTING if isinstance(own, Unknown) else own
        return UNKNOWN if self._may_have(family, outside, name) else Absent(value.definition.name)

    def _may_have(self, family: list[Definition], outside: list[str], name: str) -> bool:
        if name.startswith("__") and name.endswith("__"):
            return True
        if any(isinstance(item.node, ast.ClassDef) and classes.member(item.node, "__getattr__") for item in family):
            return True
        if isinstance(family[0].node, ast.ClassDef) and classes.is_interface(family[0].node):
            return True
        return any(classes.base_may_have(dotted, name) for dotted in outside)

    def lacks(self, value: InstanceOf, methods: Sequence[str]) -> bool:
        """Whether instances of a class surely have none of these methods of Python's own protocols."""
        family, outside = self.ancestors(value.definition)
        if classes.is_interface(family[0].class_node) or not all(map(classes.is_plain, outside)):
            return False
        return not any(classes.member(item.class_node, method) for item in family for method in methods)

    def _own(self, owner: Definition, name: str, *, instance: bool) -> Value | None:
        node = owner.class_node
        place = _Place(owner.module, owner)
        member = classes.member(node, name)
        if isinstance(member, FunctionNode):
            if not classes.decorated(member, "property", "cached_property"):
                own = instance and not classes.decorated(member, "staticmethod")
                bound = own or classes.decorated(member, "classmethod")
                return Function(Definition(owner.module, name, member), bound, owner)
            return self.result(Function(Definition(owner.module, name, member), bound=True, owner=owner))
        if isinstance(member, ast.AnnAssign):
            return annotated(self.index, member.annotation, owner.module)
        if isinstance(member, ast.Assign):
            return self._expression(member.value, place)
        if instance or classes.decorated(node, "config", "dataclass"):
            return self._assigned(owner, name)
        return None

    def _assigned(self, owner: Definition, name: str) -> Value | None:
        """What the methods of a class assign to `self.name`, None when none does."""
        if id(owner.node) not in self._assignments:
            self._assignments[id(owner.node)] = classes.assignments(owner.class_node)
        found = []
        for assignment in self._assignments[id(owner.node)].get(name, []):
            if assignment.annotation is not None:
                found.append(annotated(self.index, assignment.annotation, owner.module))
            else:
                value = self._expression(assignment.value, _Place(owner.module, owner, assignment.function))
                found.append(value if assignment.position is None else self.part(value, assignment.position))
        return any_of(found) if found else None

    def result(self, value: Value) -> Value:
        """What a call of `value` gives."""
        if isinstance(value, ClassOf):
            return InstanceOf(value.definition)
        if isinstance(value, AnyOf):
            return any_of([self.result(option) for option in value.options])
        if isinstance(value, InstanceOf):
            for method in ("__call__", "forward"):
                found = self.attribute(value, method)
                if isinstance(found, Function):
                    return self.result(found)
            return UNKNOWN
        if not isinstance(value, Function) or not isinstance(value.definition.node, ast.FunctionDef):
            return UNKNOWN
        node = value.definition.node
        if node.returns is not None:
            return annotated(self.index, node.returns, value.definition.module, value.owner)
        if id(node) not in self._results:
            self._results[id(node)] = UNKNOWN
            self._results[id(node)] = self._returned(node, _Place(value.definition.module, value.owner, node))
        return self._results[id(node)]

    def _returned(self, node: FunctionNode, place: _Place) -> Value:
        own = list(classes.own_nodes(node))
        if any(isinstance(item, ast.Yield | ast.YieldFrom) for item in own) or classes.decorated(
            node, "contextmanager", "abstractmethod"
        ):
            return UNKNOWN
        returned = [item.value for item in own if isinstance(item, ast.Return) and item.value is not None]
        if not returned:
            leaves = any(isinstance(item, ast.Raise) for item in own) or classes.is_empty(node)
            return UNKNOWN if leaves else Scalar("None")
        return any_of([self._expression(item, place) for item in returned])

    def part(self, value: Value, position: int | None) -> Value:
        """One element: of a tuple by its position, else of a container."""
        if isinstance(value, AnyOf):
            return any_of([self.part(option, position) for option in value.options])
        if isinstance(value, Items):
            if value.parts is not None and position is not None:
                return value.parts[position] if position < len(value.parts) else UNKNOWN
            return value.element
        return UNKNOWN

    def _of(self, resolved: Resolved) -> Value:
        if isinstance(resolved, Missing):
            return Absent(resolved.looked_in)
        if isinstance(resolved, ModuleRef):
            return Module(resolved.name)
        if not isinstance(resolved, Definition):
            return UNKNOWN
        if isinstance(resolved.node, ast.ClassDef):
            return ClassOf(resolved)
        if isinstance(resolved.node, FunctionNode):
            return Function(resolved, bound=False)
        return self._expression(resolved.node, _Place(resolved.module))

    def _expression(self, node: ast.AST, place: _Place) -> Value:
        if self._depth > _DEPTH:
            return UNKNOWN
        self._depth += 1
        try:
            return self._expression_of(node, place)
        finally:
            self._depth -= 1

    def _expression_of(self, node: ast.AST, place: _Place) -> Value:
        if isinstance(node, ast.Constant):
            if node.value is None:
                return Scalar("None")
            return Scalar(type(node.value).__name__) if isinstance(node.value, int | float) else UNKNOWN
        if isinstance(node, ast.Tuple):
            parts = tuple(self._expression(item, place) for item in node.elts)
            return Items(any_of(list(parts)), parts)
        if isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp):
            return Items(UNKNOWN)
        if isinstance(node, ast.IfExp):
            return any_of([self._expression(node.body, place), self._expression(node.orelse, place)])
        if isinstance(node, ast.BoolOp):
            return any_of([self._expression(item, place) for item in node.values])
        if isinstance(node, ast.Call):
            return self._call(node, place)
        if isinstance(node, ast.Attribute):
            found = self.attribute(self._expression(node.value, place), node.attr)
            return UNKNOWN if isinstance(found, Absent) else found
        return self._named(node, place) if isinstance(node, ast.Name) else UNKNOWN

    def _call(self, node: ast.Call, place: _Place) -> Value:
        name = ast.unparse(node.func).split(".")[-1]
        if name == "make_layers":
            makers = [item for item in node.args if isinstance(item, ast.Lambda)]
            layer = self._expression(makers[0].body, place) if makers else UNKNOWN
            return Items(UNKNOWN, (Scalar("int"), Scalar("int"), Items(layer)))
        if name == "init_vllm_registered_model":
            return self._registered(node)
        if name == "cast" and len(node.args) == 2:  # noqa: PLR2004 - typing.cast(type, value)
            return annotated(self.index, node.args[0], place.module, place.owner)
        return self.result(self._expression(node.func, place))

    def _registered(self, node: ast.Call) -> Value:
        for keyword in node.keywords:
            if keyword.arg == "architectures" and isinstance(keyword.value, ast.List) and len(keyword.value.elts) == 1:
                only = keyword.value.elts[0]
                if isinstance(only, ast.Constant) and isinstance(only.value, str):
                    found = self.architecture(only.value)
                    return InstanceOf(found) if found else UNKNOWN
        return UNKNOWN

    def _named(self, node: ast.Name, place: _Place) -> Value:
        if place.function is not None:
            local = self._parameter(node.id, place.function, place) or self._local(node.id, place.function, place)
            if local is not None:
                return local
        resolved = self.index.resolve(place.module, node.id)
        return UNKNOWN if isinstance(resolved, Missing) else self._of(resolved)

    def _parameter(self, name: str, function: FunctionNode, place: _Place) -> Value | None:
        arguments = function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        if place.owner is not None and every and every[0].arg == name:
            if classes.decorated(function, "staticmethod"):
                return UNKNOWN
            is_class = classes.decorated(function, "classmethod")
            return ClassOf(place.owner) if is_class else InstanceOf(place.owner)
        by_position = zip(reversed(arguments.args), reversed(arguments.defaults), strict=False)
        by_keyword = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        for item, default in (*by_position, *by_keyword):
            if item.arg == name and isinstance(default, ast.Name):
                return self._of(self.index.resolve(place.module, default.id))
        for item in every:
            if item.arg == name:
                return annotated(self.index, item.annotation, place.module, place.owner) if item.annotation else UNKNOWN
        return None

    def _local(self, name: str, function: FunctionNode, place: _Place) -> Value | None:
        found: list[Value] = []
        for node in classes.own_nodes(function):
            if isinstance(node, ast.Assign) and any(
                isinstance(item, ast.Name) and item.id == name for item in node.targets
            ):
                found.append(self._expression(node.value, place))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                found.append(annotated(self.index, node.annotation, place.module, place.owner))
            elif isinstance(node, ast.ImportFrom) and any((item.asname or item.name) == name for item in node.names):
                original = next(item.name for item in node.names if (item.asname or item.name) == name)
                if node.level == 0 and node.module:
                    found.append(self._of(self.index.resolve(node.module, original)))
            elif isinstance(node, ast.For | ast.With | ast.NamedExpr | ast.AugAssign) and any(
                isinstance(item, ast.Name) and item.id == name and isinstance(item.ctx, ast.Store)
                for item in ast.walk(node)
            ):
                found.append(UNKNOWN)
        return any_of(found) if found else None

    def architecture(self, name: str) -> Definition | None:
        """The model class that the registry gives for an architecture, None when it is not registered."""
        if name not in self._architectures:
            self._architectures[name] = self._find_architecture(name)
        return self._architectures[name]

    def _find_architecture(self, name: str) -> Definition | None:
        scope = self.index.scope("vllm.model_executor.models.registry")
        bindings = [binding for group in scope.bindings.values() for binding in group] if scope else []
        for binding in bindings:
            if not isinstance(binding.target, ast.Dict):
                continue
            for key, value in zip(binding.target.keys, binding.target.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name and isinstance(value, ast.Tuple):
                    module, attribute = (str(item.value) for item in value.elts if isinstance(item, ast.Constant))
                    found = self.index.resolve(f"vllm.model_executor.models.{module}", attribute)
                    return found if isinstance(found, Definition) else None
        return None
