"""Evaluate access paths, questions and whole seams against the sources of one engine build."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from draftkiln.seams import forms
from draftkiln.seams.model import Baseline
from draftkiln.seams.modules import Definition, ModuleRef
from draftkiln.seams.values import UNKNOWN, Absent, Function, InstanceOf, Module, Unknown, Value

if TYPE_CHECKING:
    from draftkiln.seams.inference import Engine
    from draftkiln.seams.model import Condition
    from draftkiln.seams.signatures import CallShape

WORKER = ("vllm.v1.worker.gpu_worker", "Worker")
_MODEL = "@worker.model_runner.model"
_DEEPEST = 4
_STEP = re.compile(r"\(\)|\[\d*\]|\??\.(\w+)")


@dataclass(frozen=True)
class Unreachable:
    """The way to a value breaks earlier, where a seam of its own says so."""


Reached: TypeAlias = Value | Unreachable
UNREACHABLE = Unreachable()


class Evaluator:
    """Paths of one engine build and one architecture of the target."""

    def __init__(self, engine: Engine, architecture: str, imported: frozenset[str] = frozenset()) -> None:
        self.engine = engine
        self.architecture = architecture
        self.imported = imported
        """Names whose absence the seams of their imports tell."""
        self._known: dict[str, Reached] = {}

    def value(self, path: str) -> Reached:
        """What a path leads to."""
        if path not in self._known:
            self._known[path] = self._evaluate(path)
        return self._known[path]

    def _evaluate(self, path: str) -> Reached:
        if path == _MODEL or path.startswith((f"{_MODEL}.", f"{_MODEL}?", f"{_MODEL}(", f"{_MODEL}[")):
            path = "@model" + path.removeprefix(_MODEL)
        if path.startswith("@"):
            root, _, _ = re.split(r"([.(\[?])", path, maxsplit=1)[0], "", ""
            value, rest = self._role(root), path.removeprefix(root)
        else:
            dotted = re.split(r"[(\[?]", path, maxsplit=1)[0]
            value, rest = self._dotted(dotted), path.removeprefix(dotted)
        for match in _STEP.finditer(rest):
            if isinstance(value, Absent | Unreachable):
                return UNREACHABLE
            value = self._step(value, match)
            if match[0].startswith("?") and isinstance(value, Absent):
                return UNREACHABLE  # the default is taken, an alternative of its own if it is vLLM's
        return value

    def _step(self, value: Value, match: re.Match[str]) -> Value:
        text = match[0]
        if text == "()":
            return self.engine.result(value)
        if text.startswith("["):
            return self.engine.part(value, int(text[1:-1]) if len(text) > 2 else None)  # noqa: PLR2004 - `[]` is two long
        return self.engine.attribute(value, match[1])

    def _dotted(self, dotted: str) -> Reached:
        parts = dotted.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if self.engine.index.file_of(module) is None:
                continue
            value: Reached = Module(module)
            for name in parts[length:]:
                if isinstance(value, Absent | Unreachable):
                    return UNREACHABLE
                value = self.engine.attribute(value, name)
            return value
        return Absent(parts[0])

    def _role(self, root: str) -> Reached:
        if root == "@worker":
            found = self.engine.index.resolve(*WORKER)
            return InstanceOf(found) if isinstance(found, Definition) else UNKNOWN
        model = self.engine.architecture(self.architecture)
        if model is None:
            return UNREACHABLE
        return InstanceOf(model) if root == "@model" else self._decoder(InstanceOf(model))

    def _decoder(self, model: Value) -> Reached:
        """The module with the layers: as deep below `language_model` and `model` as the sources tell."""
        for depth in range(_DEEPEST):
            below = [self.engine.attribute(model, name) for name in ("language_model", "model")]
            found = next((item for item in below if isinstance(item, InstanceOf)), None)
            if found is None:
                return model if depth else UNKNOWN
            model = found
        return UNKNOWN

    def holds(self, condition: Condition) -> bool | None:
        """The answer to a question of the patched file, None when the sources cannot give it."""
        if condition.fact == "undecided":
            return None
        ask = self._has if condition.fact == "has" else self._takes
        reached = [value for value in map(self.value, condition.paths) if not isinstance(value, Unreachable)]
        answers = {ask(value, condition.name) for value in reached}
        return answers.pop() is condition.holds if len(answers) == 1 and None not in answers else None

    def _has(self, base: Value, name: str) -> bool | None:
        if isinstance(base, Absent):
            return False
        found = self.engine.attribute(base, name)
        return None if found == UNKNOWN else not isinstance(found, Absent)

    def _takes(self, value: Value, name: str) -> bool | None:
        if isinstance(value, Absent):
            return False
        signature = self.engine.signature(value)
        return None if signature is None else name in signature.names or signature.takes_any_keyword

    def baseline(self, path: str, shape: CallShape) -> Baseline | None:
        """What a call of this shape leaves to the engine, None when the callee's signature cannot be told."""
        value = self.value(path)
        signature = None if isinstance(value, Unreachable | Absent | Unknown) else self.engine.signature(value)
        if signature is None:
            return None
        given = {*shape.keywords, *shape.optional, *(item.name for item in signature.parameters[: shape.positional])}
        left = {item.name: item.default for item in signature.parameters if item.default and item.name not in given}
        taken = [item.name for item in signature.parameters if item.kind in {"positional", "either"}]
        positional = tuple(taken[: shape.positional])
        return Baseline(tuple(sorted(left.items())), _returns(value), positional, forms.of_call(value))

    def form_of(self, path: str, name: str) -> Baseline | None:
        """Whether `path.name` is a method or holds a value, None when nothing is known of it."""
        value = self.value(path)
        form = None if isinstance(value, Unreachable) else forms.of_attribute(self.engine.attribute(value, name))
        return None if form is None else Baseline(form=form)


def _returns(value: Reached) -> str | None:
    annotation = getattr(value.definition.node, "returns", None) if isinstance(value, Function) else None
    return ast.unparse(annotation) if annotation is not None else None


def fulfils(engine: Engine, predicate: str, model: Value) -> bool | None:
    """Whether `supports_x(model)` of vLLM's interfaces would be true, None when that cannot be told.

    The predicates are `isinstance(model, Protocol)`; a model fulfils the protocol through its bases or by giving the
    flag of the same name.
    """
    if not isinstance(model, InstanceOf):
        return None
    module, _, name = predicate.rpartition(".")
    protocol_name = "Supports" + name.removeprefix("supports_").title().replace("_", "")
    found = engine.index.resolve(module, protocol_name)
    if not isinstance(found, Definition) or isinstance(found, ModuleRef):
        return None
    if engine.is_subclass(model.definition, found):
        return True
    return not isinstance(engine.attribute(model, name), Absent)
