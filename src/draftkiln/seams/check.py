"""Compare a list of seams with the sources of one engine build and find every break at once."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from draftkiln.seams import forms
from draftkiln.seams.breaks import Break
from draftkiln.seams.comparison import compared, depends_on_target, is_told
from draftkiln.seams.inference import Engine
from draftkiln.seams.modules import FunctionNode, ModuleIndex
from draftkiln.seams.paths import Evaluator, Reached, Unreachable, fulfils
from draftkiln.seams.signatures import CallShape, call_problems
from draftkiln.seams.values import UNKNOWN, Absent, AnyOf, ClassOf, InstanceOf, Items, Module, Scalar, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.seams.model import Baseline, Seam, SeamList
    from draftkiln.seams.sources import Sources
    from draftkiln.seams.values import Value

ARCHITECTURES = ("DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration", "LlamaForCausalLM")
_STEM = 5
_METHODS = {"index": ("__getitem__",), "iterate": ("__iter__", "__getitem__"), "unpack": ("__iter__", "__getitem__")}


@dataclass(frozen=True)
class Result:
    """What a check found; `undecided` seams are those that sources could not answer."""

    breaks: tuple[Break, ...]
    checked: int
    undecided: tuple[Seam, ...]


def check(seams: SeamList, sources: Sources, architectures: Sequence[str] = ARCHITECTURES) -> Result:
    """All breaks of `seams` in an engine build, read from its sources."""
    engine = Engine(ModuleIndex(sources, {"vllm"}))
    imported = frozenset(path for seam in seams.seams if seam.kind == "import" for path in seam.paths)
    evaluators = [Evaluator(engine, name, imported) for name in architectures]
    found: list[Break] = []
    undecided = []
    for seam in seams.seams:
        relevant = evaluators if depends_on_target(seam) else evaluators[:1]
        results = [_check_seam(seam, evaluator) for evaluator in relevant]
        if any(result is None for result in results):
            undecided.append(seam)
        found.extend(_joined(results, relevant))
    return Result(tuple(found), len(seams.seams), tuple(undecided))


def with_baseline(seams: SeamList, sources: Sources, engine_name: str) -> SeamList:
    """The list with the signatures of an engine build, against which later builds are compared."""
    evaluator = Evaluator(Engine(ModuleIndex(sources, {"vllm"})), ARCHITECTURES[0])
    described = [replace(seam, baseline=_baseline(seam, evaluator)) for seam in seams.seams]
    return replace(seams, engine=engine_name, seams=tuple(described))


def _baseline(seam: Seam, evaluator: Evaluator) -> Baseline | None:
    if seam.shape:
        return evaluator.baseline(seam.paths[0], seam.shape)
    return evaluator.form_of(seam.paths[0], seam.detail) if seam.kind == "attribute" else None


def _joined(results: Sequence[list[Break] | None], evaluators: Sequence[Evaluator]) -> list[Break]:
    """Breaks of one seam, the architectures that have the same one named together."""
    joined: dict[tuple[str, str], Break] = {}
    for result, evaluator in zip(results, evaluators, strict=True):
        for item in result or []:
            key = (item.severity, item.what)
            names = (*joined[key].architectures, evaluator.architecture) if key in joined else (evaluator.architecture,)
            joined[key] = replace(item, architectures=names if len(evaluators) > 1 else ())
    return list(joined.values())


def _check_seam(seam: Seam, evaluator: Evaluator) -> list[Break] | None:
    answers = [evaluator.holds(condition) for condition in seam.when]
    if any(answer is False for answer in answers):
        return []
    if any(answer is None for answer in answers):
        return None
    if seam.kind == "predicate":
        return _check_predicate(seam, evaluator)
    reached = [path for path in seam.paths if not isinstance(evaluator.value(path), Unreachable)]
    outcomes = [_check_path(seam, path, evaluator) for path in reached]
    if any(outcome == [] for outcome in outcomes):
        return []
    return outcomes[0] if outcomes and None not in outcomes else None


def _check_path(seam: Seam, path: str, evaluator: Evaluator) -> list[Break] | None:
    """Breaks of one alternative, None when nothing can be told."""
    if seam.kind == "import":
        return _check_import(seam, path, evaluator)
    value = evaluator.value(path)
    if seam.kind == "call":
        return _check_call(seam, path, value, evaluator)
    if isinstance(value, Absent | Unknown | Unreachable):
        return None
    if seam.kind in {"attribute", "set"}:
        return _check_attribute(seam, path, value, evaluator)
    return _check_use(seam, path, value, evaluator)


def _check_attribute(seam: Seam, path: str, value: Value, evaluator: Evaluator) -> list[Break] | None:
    found = evaluator.engine.attribute(value, seam.detail)
    if found == UNKNOWN:
        return None
    what = f"{_name(value)}.{seam.detail}"
    if isinstance(found, Absent):
        return [_gone(seam, what, _members(value, evaluator), seam.detail)]
    if seam.kind == "set":
        why = forms.read_only(evaluator.engine, value, seam.detail)
        return [Break(seam, "read-only", f"{what} cannot be set", seam.title, why)] if why else []
    was = seam.baseline.form if seam.baseline and is_told(seam, path) else ""
    if was == "value" and forms.of_attribute(found) == "method":
        return [Break(seam, "return changed", f"{what} is a method now", seam.title, f"def {seam.detail}(…)")]
    return []


def _check_import(seam: Seam, path: str, evaluator: Evaluator) -> list[Break]:
    value = evaluator.value(path)
    if not isinstance(value, Absent | Unreachable):
        return []
    module, _, name = path.rpartition(".")
    scope = evaluator.engine.index.scope(module)
    return [_gone(seam, path, list(scope.bindings) if scope else [], name, container=module if scope is None else "")]


def _gone(seam: Seam, what: str, names: Sequence[str], name: str, container: str = "") -> Break:
    close = difflib.get_close_matches(name, [item for item in names if item != name], n=3, cutoff=0.6)
    if not close:
        close = sorted(item for item in names if item != name and _shared_words(item, name) > 1)[:3]
    now = (
        f"module {container} is gone"
        if container
        else "not there" + (f"; renamed to {', '.join(close)}?" if close else "")
    )
    return Break(seam, "renamed" if close else "gone", f"{what} is gone", seam.title, now)


def _shared_words(first: str, second: str) -> int:
    """Words of two names that begin alike: `embed` and `embeddings` count as one."""
    stems = [{word[:_STEM] for word in name.strip("_").split("_") if len(word) >= _STEM} for name in (first, second)]
    return len(stems[0] & stems[1])


def _check_call(seam: Seam, path: str, value: Reached, evaluator: Evaluator) -> list[Break] | None:
    if isinstance(value, Absent):
        owner, _, name = path.rpartition(".")
        base = evaluator.value(owner)
        if isinstance(base, Absent | Unreachable) or path in evaluator.imported:
            return None
        shown = path if isinstance(base, Module) else f"{_name(base)}.{name}"
        return [_gone(seam, shown, _members(base, evaluator), name)]
    options = value.options if isinstance(value, AnyOf) else (value,)
    shape = seam.shape or CallShape()
    problems: list[Break] | None = None
    for option in options:
        signature = None if isinstance(option, Unreachable) else evaluator.engine.signature(option)
        if signature is None:
            surely_not = all(forms.is_callable(evaluator.engine, each) is False for each in options)
            return [_not_callable(seam, path, value)] if surely_not else None
        problems = [
            Break(
                seam,
                item.severity,
                f"{path}: {item.severity} {item.parameter}",
                f"called {seam.shape}",
                str(signature),
                parameter=item.parameter,
            )
            for item in call_problems(signature, shape)
        ]
        if not problems:
            return compared(seam, path, evaluator)
    return problems


def _not_callable(seam: Seam, path: str, value: Reached) -> Break:
    return Break(seam, "not callable", f"{path} is no function any more", f"called {seam.shape}", _name(value))


def _check_use(seam: Seam, path: str, value: Reached, evaluator: Evaluator) -> list[Break] | None:
    options = value.options if isinstance(value, AnyOf) else (value,)
    wanted = int(seam.detail.split()[1]) if seam.detail.startswith("unpack") else None
    for option in options:
        if isinstance(option, Items):
            if wanted is None or option.parts is None or len(option.parts) == wanted:
                return []
        elif not isinstance(option, Scalar) and not (
            isinstance(option, InstanceOf) and evaluator.engine.lacks(option, _METHODS[seam.detail.split()[0]])
        ):
            return None
    return [
        Break(
            seam,
            "return changed",
            f"{path} gives {_name(value)}, not what `{seam.detail}` needs",
            seam.title,
            _name(value),
        )
    ]


def _check_predicate(seam: Seam, evaluator: Evaluator) -> list[Break] | None:
    model = evaluator.value(seam.detail)
    answer = None if isinstance(model, Unreachable) else fulfils(evaluator.engine, seam.paths[0], model)
    if answer is not False:
        return [] if answer else None
    what = f"{seam.paths[0].rpartition('.')[2]} is false"
    return [
        Break(
            seam,
            "not fulfilled",
            what,
            seam.title,
            "the model class neither has that protocol as a base nor sets its flag",
        )
    ]


def _members(value: Reached, evaluator: Evaluator) -> list[str]:
    import ast

    if not isinstance(value, ClassOf | InstanceOf):
        return []
    names = set()
    for item in evaluator.engine.ancestors(value.definition)[0]:
        for node in ast.walk(item.node):
            if isinstance(node, FunctionNode):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                names.add(node.attr)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
    return sorted(names)


def _name(value: Reached) -> str:
    if isinstance(value, AnyOf):
        return " | ".join(_name(option) for option in value.options)
    if isinstance(value, Items):
        return f"{len(value.parts)} values" if value.parts is not None else "a container"
    if isinstance(value, Scalar):
        return value.name
    definition = getattr(value, "definition", None)
    return definition.name if definition else type(value).__name__.lower()
