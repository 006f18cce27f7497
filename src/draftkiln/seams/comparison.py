"""A call that binds, against the build that its list was written for: what it meets now and did not meet then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftkiln.seams import forms
from draftkiln.seams.breaks import Break
from draftkiln.seams.paths import Unreachable
from draftkiln.seams.values import ClassOf

if TYPE_CHECKING:
    from draftkiln.seams.breaks import Severity
    from draftkiln.seams.model import Baseline, Seam
    from draftkiln.seams.paths import Evaluator


def depends_on_target(seam: Seam) -> bool:
    """Whether what a seam reaches is another class for another target."""
    texts = [*seam.paths, seam.detail, *(path for item in seam.when for path in item.paths)]
    return any(text.startswith(("@model", "@decoder", "@worker.model_runner.model")) for text in texts)


def is_told(seam: Seam, path: str) -> bool:
    """Whether the baseline speaks of this path: of the first one, and of one target only."""
    return path == seam.paths[0] and not depends_on_target(seam)


def compared(seam: Seam, path: str, evaluator: Evaluator) -> list[Break]:
    """What a call that binds meets now and did not meet in the build of the baseline."""
    value = evaluator.value(path)
    left = forms.left_abstract(evaluator.engine, value.definition) if isinstance(value, ClassOf) else []
    found = [Break(seam, "abstract", f"{path}: abstract {name}", f"called {seam.shape}", f"{name}(…)") for name in left]
    now = evaluator.baseline(path, seam.shape) if seam.shape else None
    if seam.baseline is None or now is None:
        return found
    if is_told(seam, path):
        found += [*_moved(seam, path, now, evaluator), *_other_form(seam, path, now)]
    return found + _changed(seam, path, now)


def _other_form(seam: Seam, path: str, now: Baseline) -> list[Break]:
    """A coroutine, a generator or a context manager runs nothing when it is called, and a plain function is none."""
    was = seam.baseline.form if seam.baseline else now.form
    if was == now.form:
        return []
    what = f"{path} gives {forms.words(now.form)} now, not {forms.words(was)}"
    return [Break(seam, "return changed", what, f"called {seam.shape}", forms.words(now.form))]


def _moved(seam: Seam, path: str, now: Baseline, evaluator: Evaluator) -> list[Break]:
    """Arguments given by position that reach another parameter than before."""
    value = evaluator.value(path)
    signature = None if isinstance(value, Unreachable) else evaluator.engine.signature(value)
    before = seam.baseline.positional if seam.baseline else ()
    found = []
    for position, (old, new) in enumerate(zip(before, now.positional, strict=False), 1):
        if old != new:
            is_elsewhere = signature is not None and any(item.name == old for item in signature.parameters)
            severity: Severity = "argument moved" if is_elsewhere else "argument renamed"
            what = f"{path}: argument {position} was {old}, is {new}"
            found.append(Break(seam, severity, what, f"called {seam.shape}", str(signature), parameter=old))
    return found


def _changed(seam: Seam, path: str, now: Baseline) -> list[Break]:
    """Defaults that the call leaves to the engine, and the annotated result."""
    before = seam.baseline
    if before is None:
        return []
    defaults = dict(now.defaults)
    found = [
        Break(
            seam,
            "default changed",
            f"{path}: default of {name} changed",
            f"{name}={value}",
            f"{name}={defaults[name]}",
        )
        for name, value in before.defaults
        if name in defaults and defaults[name] != value
    ]
    if now.returns != before.returns:
        what = f"{path}: what it returns is annotated anew"
        found.append(Break(seam, "result changed", what, str(before.returns), str(now.returns)))
    return found
