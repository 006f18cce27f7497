"""What an access path means in vLLM's sources: classes, instances, functions and their results.

A small, forgiving type inference: whatever it cannot follow is `UNKNOWN`, and nothing is ever reported about that.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from draftkiln.seams import signatures
from draftkiln.seams.modules import Definition, External, FunctionNode, Missing, ModuleIndex, ModuleRef, Resolved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DEPTH = 14
_SCALARS = {"int", "float", "bool", "complex"}
_CONTAINERS = {"list", "set", "frozenset", "deque", "Sequence", "Iterable", "Iterator", "Collection", "Set", "List"}
_MAPPINGS = {"dict", "Mapping", "MutableMapping", "defaultdict", "OrderedDict", "Dict"}
_WRAPPERS = {"Optional", "ClassVar", "Final", "Annotated", "InitVar", "Required", "NotRequired"}
_INERT_BASES = {"ABC", "Protocol", "Generic", "object", "NamedTuple", "Struct", "Exception", "TypedDict"}
_ENUM_BASES = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
_FIELD_BASES = {"Struct", "BaseModel", "NamedTuple"}
_MODULE_MEMBERS = frozenset(
    [
        "T_destination",
        "add_module",
        "apply",
        "bfloat16",
        "buffers",
        "call_super_init",
        "children",
        "compile",
        "cpu",
        "cuda",
        "double",
        "dump_patches",
        "eval",
        "extra_repr",
        "float",
        "forward",
        "get_buffer",
        "get_extra_state",
        "get_parameter",
        "get_submodule",
        "half",
        "ipu",
        "load_state_dict",
        "modules",
        "mtia",
        "named_buffers",
        "named_children",
        "named_modules",
        "named_parameters",
        "parameters",
        "register_backward_hook",
        "register_buffer",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_module",
        "register_parameter",
        "requires_grad_",
        "set_extra_state",
        "set_submodule",
        "share_memory",
        "state_dict",
        "to",
        "to_empty",
        "train",
        "training",
        "type",
        "xpu",
        "zero_grad",
        "_modules",
        "_parameters",
        "_buffers",
        "__class__",
        "__dict__",
    ]
)


@dataclass(frozen=True)
class Unknown:
    """Nothing is known; everything is allowed. `exists` says that it is there, whatever it is."""

    exists: bool = False


@dataclass(frozen=True)
class Absent:
    """There is no such name or attribute."""

    owner: str


@dataclass(frozen=True)
class Scalar:
    """None, a number or a truth value: not to be indexed, unpacked or iterated."""

    name: str


@dataclass(frozen=True)
class ClassOf:
    """A class itself."""

    definition: Definition


@dataclass(frozen=True)
class InstanceOf:
    """An instance of a class."""

    definition: Definition


@dataclass(frozen=True)
class Function:
    """A function, or a method that is bound to its instance."""

    definition: Definition
    bound: bool
    owner: Definition | None = None


@dataclass(frozen=True)
class Module:
    """A module of the engine."""

    name: str


@dataclass(frozen=True)
class Items:
    """A container of `element`; `length` where it is a tuple of known length."""

    element: Value
    parts: tuple[Value, ...] | None = None


@dataclass(frozen=True)
class AnyOf:
    """One of several."""

    options: tuple[Value, ...]


Value: TypeAlias = Unknown | Absent | Scalar | ClassOf | InstanceOf | Function | Module | Items | AnyOf
UNKNOWN = Unknown()
EXISTING = Unknown(exists=True)


@dataclass(frozen=True)
class _Place:
    """Where an expression of the engine stands."""

    module: str
    owner: Definition | None = None
    function: FunctionNode | None = None


@dataclass(frozen=True)
class _Assignment:
    """An assignment to an attribute of `self`, at `position` of an unpacked value."""

    function: FunctionNode
    value: ast.expr
    annotation: ast.expr | None = None
    position: int | None = None


class Engine:
    """The parsed sources of one engine build."""

    def __init__(self, index: ModuleIndex) -> None:
        self.index = index
        self._results: dict[int, Value] = {}
        self._assignments: dict[int, dict[str, list[_Assignment]]] = {}
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
        classes, outside = self.ancestors(definition)
        for position, item in enumerate(classes):
            node = item.node
            assert isinstance(node, ast.ClassDef)
            own = _member(node, "__init__")
            if isinstance(own, FunctionNode):
                return signatures.of_function(own, bound=True)
            if self._is_dataclass(item):
                fields = [each.node for each in reversed(classes[position:]) if isinstance(each.node, ast.ClassDef)]
                return signatures.of_fields(fields, keyword_only=False)
        last = {name.split(".")[-1] for name in outside}
        if last & _FIELD_BASES and not last - _FIELD_BASES - _INERT_BASES:
            fields = [each.node for each in reversed(classes) if isinstance(each.node, ast.ClassDef)]
            return signatures.of_fields(fields, keyword_only="BaseModel" in last)
        if last - {"ABC", "Protocol", "Generic", "object"}:
            return None
        return signatures.Signature(())

    def _is_dataclass(self, item: Definition) -> bool:
        assert isinstance(item.node, ast.ClassDef)
        for decorator in item.node.decorator_list:
            plain = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(plain).split(".")[-1] in {"dataclass", "config"}:
                return True
        return False

    def attribute(self, value: Value, name: str) -> Value:
        """What `value.name` is."""
        if isinstance(value, AnyOf):
            found = [self.attribute(option, name) for option in value.options]
            return any_of([item for item in found if item != UNKNOWN and not isinstance(item, Absent)] or found)
        if isinstance(value, Module):
            found = self.name(value.name, name)
            return EXISTING if isinstance(found, Unknown) else found
        if isinstance(value, Scalar) and value.name == "None":
            return Absent("None")
        if isinstance(value, Items):
            return EXISTING
        if not isinstance(value, ClassOf | InstanceOf):
            return UNKNOWN
        classes, outside = self.ancestors(value.definition)
        for item in classes:
            found = self._own(item, name, instance=isinstance(value, InstanceOf))
            if found is not None:
                return EXISTING if isinstance(found, Unknown) else found
        return UNKNOWN if self._may_have(classes, outside, name) else Absent(value.definition.name)

    def _may_have(self, classes: list[Definition], outside: list[str], name: str) -> bool:
        if name.startswith("__") and name.endswith("__"):
            return True
        if any(isinstance(item.node, ast.ClassDef) and _member(item.node, "__getattr__") for item in classes):
            return True
        if isinstance(classes[0].node, ast.ClassDef) and _is_interface(classes[0].node):
            return True
        for dotted in outside:
            last = dotted.split(".")[-1].split("[")[0]
            if last == "Module":
                if name in _MODULE_MEMBERS:
                    return True
            elif last in _ENUM_BASES:
                if name in {"name", "value"}:
                    return True
            elif last not in _INERT_BASES:
                return True
        return False

    def _own(self, owner: Definition, name: str, *, instance: bool) -> Value | None:
        node = owner.node
        assert isinstance(node, ast.ClassDef)
        place = _Place(owner.module, owner)
        member = _member(node, name)
        if isinstance(member, FunctionNode):
            if not _decorated(member, "property", "cached_property"):
                bound = _decorated(member, "classmethod") or (instance and not _decorated(member, "staticmethod"))
                return Function(Definition(owner.module, name, member), bound, owner)
            return self.result(Function(Definition(owner.module, name, member), bound=True, owner=owner))
        if isinstance(member, ast.AnnAssign):
            return self._annotation(member.annotation, owner.module)
        if isinstance(member, ast.Assign):
            return self._expression(member.value, place)
        if instance or _decorated(node, "config", "dataclass"):
            return self._assigned(owner, name)
        return None

    def _assigned(self, owner: Definition, name: str) -> Value | None:
        """What the methods of a class assign to `self.name`, None when none does."""
        if id(owner.node) not in self._assignments:
            assert isinstance(owner.node, ast.ClassDef)
            self._assignments[id(owner.node)] = _assignments(owner.node)
        found = []
        for assignment in self._assignments[id(owner.node)].get(name, []):
            if assignment.annotation is not None:
                found.append(self._annotation(assignment.annotation, owner.module))
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
        node = value.definition.node if isinstance(value, Function) else None
        if not isinstance(node, FunctionNode) or isinstance(node, ast.AsyncFunctionDef):
            return UNKNOWN
        assert isinstance(value, Function)
        if node.returns is not None:
            return self._annotation(node.returns, value.definition.module, value.owner)
        if id(node) not in self._results:
            self._results[id(node)] = UNKNOWN
            self._results[id(node)] = self._returned(node, _Place(value.definition.module, value.owner, node))
        return self._results[id(node)]

    def _returned(self, node: FunctionNode, place: _Place) -> Value:
        own = list(_own_nodes(node))
        if any(isinstance(item, ast.Yield | ast.YieldFrom) for item in own) or _decorated(
            node, "contextmanager", "abstractmethod"
        ):
            return UNKNOWN
        returned = [item.value for item in own if isinstance(item, ast.Return) and item.value is not None]
        if not returned:
            return UNKNOWN if any(isinstance(item, ast.Raise) for item in own) else Scalar("None")
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

    def _annotation(self, node: ast.AST, module: str, owner: Definition | None = None) -> Value:
        if isinstance(node, ast.Constant):
            if node.value is None:
                return Scalar("None")
            if isinstance(node.value, str):
                try:
                    return self._annotation(ast.parse(node.value, mode="eval").body, module, owner)
                except SyntaxError:
                    return UNKNOWN
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return any_of([self._annotation(node.left, module, owner), self._annotation(node.right, module, owner)])
        if isinstance(node, ast.Subscript):
            return self._generic(node, module, owner)
        if isinstance(node, ast.Name) and node.id == "Self" and owner is not None:
            return InstanceOf(owner)
        if isinstance(node, ast.Name | ast.Attribute):
            resolved = self.index.resolve_expression(module, node, typing=True)
            if isinstance(resolved, Definition) and isinstance(resolved.node, ast.ClassDef):
                return InstanceOf(resolved)
            if isinstance(resolved, External):
                last = resolved.dotted.split(".")[-1]
                if last in _SCALARS and resolved.dotted.startswith("builtins."):
                    return Scalar(last)
                if last in _CONTAINERS | _MAPPINGS:
                    return Items(UNKNOWN)
        return UNKNOWN

    def _generic(self, node: ast.Subscript, module: str, owner: Definition | None) -> Value:
        name = ast.unparse(node.value).split(".")[-1]
        arguments = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name in _WRAPPERS:
            inner = self._annotation(arguments[0], module, owner)
            return any_of([inner, Scalar("None")]) if name == "Optional" else inner
        if name == "Union":
            return any_of([self._annotation(item, module, owner) for item in arguments])
        if name in {"tuple", "Tuple"}:
            if len(arguments) == 2 and isinstance(arguments[1], ast.Constant) and arguments[1].value is ...:  # noqa: PLR2004
                return Items(self._annotation(arguments[0], module, owner))
            parts = tuple(self._annotation(item, module, owner) for item in arguments)
            return Items(any_of(list(parts)), parts)
        if name in _CONTAINERS | _MAPPINGS:
            return Items(self._annotation(arguments[0], module, owner))
        if name in {"type", "Type"}:
            inner = self._annotation(arguments[0], module, owner)
            return ClassOf(inner.definition) if isinstance(inner, InstanceOf) else UNKNOWN
        return UNKNOWN

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
            return (
                Scalar(type(node.value).__name__)
                if isinstance(node.value, int | float)
                else Scalar("None")
                if node.value is None
                else UNKNOWN
            )
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
            return self._annotation(node.args[0], place.module, place.owner)
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
        function = place.function
        if function is not None:
            arguments = function.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            if place.owner is not None and every and every[0].arg == node.id:
                static = _decorated(function, "staticmethod")
                return (
                    UNKNOWN
                    if static
                    else ClassOf(place.owner)
                    if _decorated(function, "classmethod")
                    else InstanceOf(place.owner)
                )
            keyword_defaults = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            for item, default in [
                *zip(reversed(arguments.args), reversed(arguments.defaults), strict=False),
                *keyword_defaults,
            ]:
                if item.arg == node.id and isinstance(default, ast.Name):
                    return self._of(self.index.resolve(place.module, default.id))
            for item in every:
                if item.arg == node.id:
                    return self._annotation(item.annotation, place.module, place.owner) if item.annotation else UNKNOWN
            local = self._local(node.id, place)
            if local is not None:
                return local
        resolved = self.index.resolve(place.module, node.id)
        return UNKNOWN if isinstance(resolved, Missing) else self._of(resolved)

    def _local(self, name: str, place: _Place) -> Value | None:
        assert place.function is not None
        found: list[Value] = []
        for node in _own_nodes(place.function):
            if isinstance(node, ast.Assign) and any(
                isinstance(item, ast.Name) and item.id == name for item in node.targets
            ):
                found.append(self._expression(node.value, place))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                found.append(self._annotation(node.annotation, place.module, place.owner))
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


def any_of(values: Sequence[Value]) -> Value:
    """One value for several; absent only if all are."""
    flat: list[Value] = []
    for value in values:
        for option in value.options if isinstance(value, AnyOf) else (value,):
            if option not in flat:
                flat.append(option)
    if EXISTING in flat and UNKNOWN in flat:
        flat.remove(UNKNOWN)
    present = [item for item in flat if not isinstance(item, Absent)]
    if not present:
        return flat[0] if flat else UNKNOWN
    return present[0] if len(present) == 1 else AnyOf(tuple(present))


def _member(node: ast.ClassDef, name: str) -> ast.AST | None:
    found: ast.AST | None = None
    for statement in _statements(node.body):
        if isinstance(statement, FunctionNode) and statement.name == name and not _decorated(statement, "overload"):
            found = found if found is not None and _decorated(statement, "setter") else statement
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


def _is_interface(node: ast.ClassDef) -> bool:
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


def _decorated(node: FunctionNode | ast.ClassDef, *names: str) -> bool:
    plain = (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)
    return any(ast.unparse(item).split(".")[-1] in names for item in plain)


def _assignments(node: ast.ClassDef) -> dict[str, list[_Assignment]]:
    """All assignments to attributes of `self` in the methods of a class, by attribute."""
    found: dict[str, list[_Assignment]] = {}

    def add(target: ast.AST, me: str, assignment: _Assignment) -> None:
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == me:
            found.setdefault(target.attr, []).append(assignment)

    for function in node.body:
        if not isinstance(function, FunctionNode) or not function.args.args:
            continue
        me = function.args.args[0].arg
        for statement in _walk_statements(function.body):
            if isinstance(statement, ast.AnnAssign):
                add(
                    statement.target,
                    me,
                    _Assignment(function, statement.value or statement.target, statement.annotation),
                )
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    parts = enumerate(target.elts) if isinstance(target, ast.Tuple | ast.List) else [(None, target)]
                    for position, part in parts:
                        add(part, me, _Assignment(function, statement.value, position=position))
            elif isinstance(statement, ast.With):
                for item in statement.items:
                    if item.optional_vars is not None:
                        add(item.optional_vars, me, _Assignment(function, item.context_expr, ast.Name("Any")))
    return found


def _walk_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            yield from _walk_statements(getattr(statement, name, []))
        for handler in getattr(statement, "handlers", []):
            yield from _walk_statements(handler.body)


def _own_nodes(function: FunctionNode) -> list[ast.AST]:
    found: list[ast.AST] = []
    queue: list[ast.AST] = list(function.body)
    while queue:
        node = queue.pop(0)
        found.append(node)
        if not isinstance(node, FunctionNode | ast.Lambda | ast.ClassDef):
            queue.extend(ast.iter_child_nodes(node))
    return found
