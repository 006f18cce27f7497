"""Names of parsed modules, followed through imports, re-exports, aliases and lazy `__getattr__` tables."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from draftkiln.errors import SystemMissingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from draftkiln.seams.sources import Sources

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Definition:
    """A name that a module defines itself: a class, a function, or an assigned expression."""

    module: str
    name: str
    node: ast.AST

    @property
    def class_node(self) -> ast.ClassDef:
        """The node of a definition that is known to be a class.

        Raises:
            TypeError: it is none.
        """
        if not isinstance(self.node, ast.ClassDef):
            raise TypeError(f"{self.module}.{self.name} is not a class")
        return self.node


@dataclass(frozen=True)
class ModuleRef:
    """A module of the parsed package."""

    name: str


@dataclass(frozen=True)
class External:
    """Something outside the parsed package, such as `torch.nn.Module`."""

    dotted: str


@dataclass(frozen=True)
class Opaque:
    """A name that is there, but whose definition cannot be followed."""


@dataclass(frozen=True)
class Missing:
    """A name that is not there."""

    looked_in: str


Resolved: TypeAlias = Definition | ModuleRef | External | Opaque | Missing


@dataclass(frozen=True)
class _Import:
    module: str
    name: str | None


@dataclass(frozen=True)
class _Binding:
    target: ast.AST | _Import
    typing_only: bool
    sure: bool = False
    """Whether it is bound whatever happens, not in a branch."""


@dataclass
class Scope:
    """What a module binds at its top level, conditional branches included."""

    module: str
    bindings: dict[str, list[_Binding]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    strings: dict[str, str] = field(default_factory=dict)
    """Constant strings of a module with `__getattr__`, each with what a dictionary maps it to."""
    lazy: bool = False
    exported: frozenset[str] | None = None
    """`__all__`, when it is a plain list."""


class ModuleIndex:
    """Modules of the packages in `sources`, parsed when first asked for."""

    def __init__(self, sources: Sources, packages: Iterable[str]) -> None:
        self.sources = sources
        self._packages = frozenset(packages)
        self._scopes: dict[str, Scope | None] = {}

    def file_of(self, module: str) -> str | None:
        """Path of a module's file, None when there is no such module in the parsed packages.

        Site-packages hold others too; what those define is outside, wherever the sources lie.
        """
        if not self.owns(module):
            return None
        base = module.replace(".", "/")
        return next((name for name in (f"{base}.py", f"{base}/__init__.py") if self.sources.has(name)), None)

    def scope(self, module: str) -> Scope | None:
        """Names that `module` binds, None when there is no such module.

        Raises:
            UsageError: its file is damaged.
            SystemMissingError: it is in the syntax of a later Python.
        """
        if module not in self._scopes:
            file = self.file_of(module)
            self._scopes[module] = None if file is None else _build_scope(module, file, self.sources.read(file))
        return self._scopes[module]

    def owns(self, module: str) -> bool:
        """Whether the module belongs to the parsed packages."""
        return module.split(".", 1)[0] in self._packages

    def resolve(self, module: str, name: str, *, typing: bool = False) -> Resolved:
        """What `name` is in `module`; with `typing`, imports under `TYPE_CHECKING` count too."""
        return self._resolve(module, name, typing=typing, seen=frozenset())

    def resolve_expression(self, module: str, node: ast.AST, *, typing: bool = False) -> Resolved:
        """What a dotted name in `module` is."""
        return self._expression(module, node, typing=typing, seen=frozenset())

    def _resolve(self, module: str, name: str, *, typing: bool, seen: frozenset[tuple[str, str]]) -> Resolved:
        scope = self.scope(module)
        if scope is None:
            return Missing(module) if self.owns(module) else External(f"{module}.{name}")
        if (module, name) in seen:
            return Opaque()
        seen |= {(module, name)}
        found = [
            self._follow(scope, binding, name, typing=typing, seen=seen)
            for binding in _preferred(scope, name, typing=typing)
        ]
        for kind in (Definition, ModuleRef, External):
            for candidate in found:
                if isinstance(candidate, kind):
                    return candidate
        if self.file_of(f"{module}.{name}"):
            return ModuleRef(f"{module}.{name}")
        if Opaque() in found:
            return Opaque()
        for star in scope.stars:
            if self._exports(star, name):
                candidate = self._resolve(star, name, typing=typing, seen=seen)
                if not isinstance(candidate, Missing):
                    return candidate
        if scope.lazy and name in scope.strings:
            return self._lazy(scope, name, seen)
        return found[0] if found else Missing(module)

    def _exports(self, module: str, name: str) -> bool:
        scope = self.scope(module)
        if scope is None or scope.exported is None:
            return not name.startswith("_")
        return name in scope.exported

    def _lazy(self, scope: Scope, name: str, seen: frozenset[tuple[str, str]]) -> Resolved:
        place = scope.strings[name]
        module, _, attribute = place.partition(":")
        base = (
            absolute(scope.module, module, package=self._is_package(scope.module)) if module.startswith(".") else module
        )
        if self.scope(base) is None:
            return Opaque()
        return self._resolve(base, attribute or name, typing=False, seen=seen)

    def _is_package(self, module: str) -> bool:
        return (self.file_of(module) or "").endswith("__init__.py")

    def _follow(
        self,
        scope: Scope,
        binding: _Binding,
        name: str,
        *,
        typing: bool,
        seen: frozenset[tuple[str, str]],
    ) -> Resolved:
        target = binding.target
        if isinstance(target, _Import):
            if target.name is not None:
                return self._resolve(target.module, target.name, typing=typing, seen=seen)
            return ModuleRef(target.module) if self.scope(target.module) else External(target.module)
        if isinstance(target, ast.Name | ast.Attribute):
            followed = self._expression(scope.module, target, typing=typing, seen=seen)
            if not isinstance(followed, Missing):
                return followed
        return Definition(scope.module, name, target)

    def _expression(
        self,
        module: str,
        node: ast.AST,
        *,
        typing: bool,
        seen: frozenset[tuple[str, str]],
    ) -> Resolved:
        if isinstance(node, ast.Name):
            found = self._resolve(module, node.id, typing=typing, seen=seen)
            return External(f"builtins.{node.id}") if isinstance(found, Missing) else found
        if isinstance(node, ast.Attribute):
            base = self._expression(module, node.value, typing=typing, seen=seen)
            if isinstance(base, ModuleRef):
                return self._resolve(base.name, node.attr, typing=typing, seen=seen)
            if isinstance(base, External):
                return External(f"{base.dotted}.{node.attr}")
        return Opaque()


def absolute(module: str, relative: str, *, package: bool) -> str:
    """The absolute name of a `from .x import` in `module`, which is a package's `__init__` or not."""
    level = len(relative) - len(relative.lstrip("."))
    parts = module.split(".")
    keep = len(parts) - level + (1 if package else 0)
    tail = relative.lstrip(".")
    return ".".join([*parts[:keep], *([tail] if tail else [])])


def _preferred(scope: Scope, name: str, *, typing: bool) -> list[_Binding]:
    bindings = [binding for binding in scope.bindings.get(name, []) if typing or scope.lazy or not binding.typing_only]
    if len(bindings) > 1:  # a branch's None stands for what could not be imported there
        bindings = [binding for binding in bindings if binding.sure or not _is_none(binding.target)] or bindings
    return [binding for binding in reversed(bindings) if not _is_overload(binding.target)]


def _is_none(node: ast.AST | _Import) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_overload(node: ast.AST | _Import) -> bool:
    return isinstance(node, FunctionNode) and any(
        ast.unparse(item).endswith("overload") for item in node.decorator_list
    )


def _build_scope(module: str, file: str, text: str) -> Scope:
    scope = Scope(module)
    tree = _parsed(file, text)
    _bind_all(scope, tree.body, package=file.endswith("__init__.py"), typing_only=False, sure=True)
    if "__getattr__" in scope.bindings:
        scope.lazy = True
        scope.strings = _strings(tree)
    return scope


def _parsed(file: str, text: str) -> ast.Module:
    try:
        return ast.parse(text, filename=file)
    except (SyntaxError, ValueError) as error:
        raise SystemMissingError(
            f"{file} is not in the Python that this is, {sys.version_info.major}.{sys.version_info.minor}",
            why=str(error),
            fix="run draftkiln with a later Python; if that cannot read it either, fetch the build again",
        ) from error


def _bind_all(scope: Scope, body: Sequence[ast.stmt], *, package: bool, typing_only: bool, sure: bool = False) -> None:
    for statement in body:
        if isinstance(statement, ast.If):
            checking = "TYPE_CHECKING" in ast.unparse(statement.test)
            _bind_all(scope, statement.body, package=package, typing_only=typing_only or checking)
            _bind_all(scope, statement.orelse, package=package, typing_only=typing_only)
        elif isinstance(statement, ast.Try):
            handlers = [line for handler in statement.handlers for line in handler.body]
            parts = [*statement.body, *handlers, *statement.orelse, *statement.finalbody]
            _bind_all(scope, parts, package=package, typing_only=typing_only)
        elif isinstance(statement, ast.With):
            _bind_all(scope, statement.body, package=package, typing_only=typing_only, sure=sure)
        elif isinstance(statement, ast.Delete) and sure:
            for target in statement.targets:
                scope.bindings.pop(ast.unparse(target), None)
        else:
            _bind(scope, statement, package=package, typing_only=typing_only, sure=sure)


def _bind(scope: Scope, statement: ast.stmt, *, package: bool, typing_only: bool, sure: bool) -> None:
    def add(name: str, target: ast.AST | _Import) -> None:
        before = [] if sure and _is_none(target) else scope.bindings.get(name, [])
        scope.bindings[name] = [*before, _Binding(target, typing_only, sure)]

    if isinstance(statement, ast.ClassDef | FunctionNode):
        add(statement.name, statement)
    elif isinstance(statement, ast.Import):
        for alias in statement.names:
            add(
                alias.asname or alias.name.split(".")[0],
                _Import(alias.name if alias.asname else alias.name.split(".")[0], None),
            )
    elif isinstance(statement, ast.ImportFrom):
        source = imported_module(scope.module, statement, package=package)
        for alias in statement.names:
            if alias.name == "*":
                scope.stars.append(source)
            else:
                add(alias.asname or alias.name, _Import(source, alias.name))
    elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if isinstance(target, ast.Name):
                add(target.id, statement.value)
                if target.id == "__all__":
                    scope.exported = _plain_strings(statement.value)


def imported_module(module: str, statement: ast.ImportFrom, *, package: bool) -> str:
    """The absolute module that a `from … import` in `module` reads."""
    if statement.level == 0:
        return statement.module or ""
    return absolute(module, "." * statement.level + (statement.module or ""), package=package)


def _plain_strings(node: ast.AST) -> frozenset[str] | None:
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    values = [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return frozenset(values) if len(values) == len(node.elts) else None


def _strings(tree: ast.Module) -> dict[str, str]:
    found = {
        node.value: "" for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found[str(key.value)] = value.value
    return found
