"""What could mend a break without a person: only where the build's own sources leave one obvious answer.

Two kinds: a parameter that became required and has an obvious neutral value (`False` for a `bool`, `None` where the
annotation allows it), and a name that was replaced by another, told by the engine's own deprecation note or by exactly
one name at the same place with the same parameters.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from draftkiln.seams.check import ARCHITECTURES
from draftkiln.seams.inference import Engine
from draftkiln.seams.modules import Definition, FunctionNode, ModuleIndex
from draftkiln.seams.paths import Evaluator
from draftkiln.seams.values import ClassOf, Function, InstanceOf, Module

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from draftkiln.seams.breaks import Break
    from draftkiln.seams.sources import Sources


_NOTE = re.compile(r"deprecat", re.IGNORECASE)
_USE_INSTEAD = re.compile(
    r"(?:use|call|renamed to|replaced by|in favou?r of)\s+[`'\"]*(?:[\w]+\.)*(\w+)", re.IGNORECASE
)


@dataclass(frozen=True)
class Remedy:
    """One change to the patched files, and why it is likely right."""

    slug: str
    subject: str
    reason: str
    places: tuple[tuple[str, int], ...]
    """File and line of each use."""
    keyword: str = ""
    value: str = ""
    """`keyword=value` is added to the call…"""
    callee: str = ""
    """…of the callable with this last name."""
    old: str = ""
    new: str = ""
    """Or a name is replaced."""


def remedies(breaks: Sequence[Break], old: Sources | None, new: Sources) -> tuple[list[Remedy], list[Break]]:
    """What could mend the breaks, and the breaks that nothing obvious mends.

    Args:
        breaks: of one series.
        old: sources of the engine that the series was proved on, for what a name that is gone was.
        new: sources of the build.
    """
    now, before = _evaluator(new), _evaluator(old) if old else None
    found: dict[tuple[str, str, str, str], Remedy] = {}
    left = []
    for item in breaks:
        remedy = _required(item, now) if item.severity == "new required parameter" else _renamed(item, before, now)
        if remedy is None:
            left.append(item)
            continue
        key = (remedy.keyword, remedy.callee, remedy.old, remedy.new)
        places = (*(found[key].places if key in found else ()), *remedy.places)
        found[key] = _at(remedy, tuple(dict.fromkeys(places)))
    return list(found.values()), left


def _at(remedy: Remedy, places: tuple[tuple[str, int], ...]) -> Remedy:
    from dataclasses import replace

    return replace(remedy, places=places)


def _evaluator(sources: Sources) -> Evaluator:
    return Evaluator(Engine(ModuleIndex(sources, {"vllm"})), ARCHITECTURES[0])


def neutral_value(annotation: ast.expr | None) -> str | None:
    """The neutral value of a parameter: `None` where it is allowed, `False` for a `bool`; None for any other."""
    if annotation is None:
        return None
    node = annotation
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    text = ast.unparse(node)
    if re.fullmatch(r"(typing\.)?Optional\[.*\]", text) or re.search(r"(^|\| )None($| \|)", text):
        return "None"
    return "False" if text == "bool" else None


def _required(item: Break, now: Evaluator) -> Remedy | None:
    path = item.seam.paths[0]
    value = now.value(path)
    annotation = _annotation(value, item.parameter, now)
    neutral = neutral_value(annotation)
    callee = path.rpartition(".")[2]
    if neutral is None or annotation is None or not callee.isidentifier():
        return None
    name = item.parameter
    return Remedy(
        slug=f"proposed-{_words(name)}-of-{_words(callee)}",
        subject=f"Pass {name}={neutral} to {callee}",
        reason=f"{callee} now requires {name}, annotated `{ast.unparse(annotation)}`: {neutral} is its neutral value.",
        places=((item.seam.file, item.seam.line),),
        keyword=name,
        value=neutral,
        callee=callee,
    )


def _annotation(value: object, name: str, now: Evaluator) -> ast.expr | None:
    """Annotation of a parameter of a function, a constructor or a class made of fields."""
    nodes: list[ast.AST] = []
    if isinstance(value, Function):
        nodes = [value.definition.node]
    elif isinstance(value, ClassOf):
        nodes = [definition.node for definition in now.engine.ancestors(value.definition)[0]]
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, FunctionNode) and (each.name == "__init__" or each is node):
                arguments = [*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs]
                hit = next((item.annotation for item in arguments if item.arg == name), None)
                if hit is not None:
                    return hit
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id == name:
                return each.annotation
    return None


def _renamed(item: Break, before: Evaluator | None, now: Evaluator) -> Remedy | None:
    if item.severity not in {"renamed", "gone"}:
        return None
    seam = item.seam
    owner, _, name = seam.paths[0].rpartition(".")
    if seam.kind in {"attribute", "set"}:
        owner, name = seam.paths[0], seam.detail
    members = dict(_functions(now.value(owner), now))
    old = dict(_functions(before.value(owner), before)).get(name) if before else None
    if old is None or not members:
        return None
    noted = _noted(old)
    if noted in members:
        why = f"the engine's own note in {name} said to use {noted}."
    else:
        were = set(dict(_functions(before.value(owner), before))) if before else set()
        same = [other for other, node in members.items() if other not in were and _shape(node) == _shape(old)]
        if len(same) != 1:
            return None
        noted = same[0]
        why = f"{noted} is the one new name there, and it takes what {name} took: {_shape(old)}."
    return Remedy(
        slug=f"proposed-{_words(noted)}-for-{_words(name)}",
        subject=f"Call {noted}, as {name} is named now",
        reason=f"{name} is gone; {why}",
        places=((seam.file, seam.line),),
        old=name,
        new=noted,
    )


def _functions(value: object, evaluator: Evaluator) -> Iterator[tuple[str, FunctionNode]]:
    """Functions of a class, its bases and instances, or of a module, by name."""
    bodies: list[list[ast.stmt]] = []
    if isinstance(value, ClassOf | InstanceOf):
        ancestors: list[Definition] = evaluator.engine.ancestors(value.definition)[0]
        bodies = [item.node.body for item in reversed(ancestors) if isinstance(item.node, ast.ClassDef)]
    elif isinstance(value, Module):
        file = evaluator.engine.index.file_of(value.name)
        bodies = [ast.parse(evaluator.engine.index.sources.read(file)).body] if file else []
    for body in bodies:
        for node in body:
            if isinstance(node, FunctionNode):
                yield node.name, node


def _noted(node: FunctionNode) -> str:
    """The name that a function's deprecation note gives: in a decorator, its docstring or a warning."""
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    marked = any(_NOTE.search(ast.unparse(item)) for item in node.decorator_list)
    for text in texts:
        found = _USE_INSTEAD.search(text)
        if found and (marked or _NOTE.search(text)):
            return found[1]
    return ""


def _shape(node: FunctionNode) -> str:
    """Parameters with annotations, without defaults, and the annotated result."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    shown = [f"{item.arg}: {ast.unparse(item.annotation)}" if item.annotation else item.arg for item in arguments]
    rest = [f"*{node.args.vararg.arg}"] if node.args.vararg else []
    rest += [f"**{node.args.kwarg.arg}"] if node.args.kwarg else []
    return f"({', '.join([*shown, *rest])})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


def _words(name: str) -> str:
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name.strip("_"))
    return "-".join(word.lower() for word in words) or "x"
