"""Show what a check found: all breaks with both sides, the owning patch and the line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.seams.breaks import Break
    from draftkiln.seams.check import Result
    from draftkiln.seams.model import SeamList

_WIDTH = 200
_FIRST = 6
KNOWN_BREAKS = {
    ("SchedulerConfig", "is_encoder_decoder"): 1,
    ("supports_eagle3", ""): 2,
    ("model", "model"): 2,
    ("get_kv_cache_config_from_groups", "kv_cache_specs"): 4,
    ("Scheduler", "block_size"): 5,
    ("@decoder", "get_input_embeddings"): 6,
}
"""Breaks that docs/patches.md numbers, by the end of the seam's path and the name that moved."""


def number_of(item: Break) -> int | None:
    """Number of a break in the table of docs/patches.md, None for one that is not in it."""
    path, seam = item.seam.paths[0], item.seam
    head, _, last = path.rpartition(".")
    keys = [(last, item.parameter), (last, seam.detail if seam.kind == "attribute" else ""), (head, last)]
    return next((KNOWN_BREAKS[key] for key in keys if key in KNOWN_BREAKS), None)


def as_json(result: Result, seams: SeamList, engine: str, seconds: float) -> dict[str, Any]:
    """The whole result as a JSON object."""
    return {
        "engine": engine,
        "speculators": seams.speculators,
        "series": seams.series,
        "checked": result.checked,
        "undecided": [f"{seam.file}:{seam.line}: {seam.kind} {seam.title}" for seam in result.undecided],
        "seconds": round(seconds, 2),
        "breaks": [_break_json(item) for item in result.breaks if item.breaks],
        "changed": [_break_json(item) for item in result.breaks if not item.breaks],
    }


def _break_json(item: Break) -> dict[str, Any]:
    return {
        "number": number_of(item),
        "severity": item.severity,
        "what": item.what,
        "before": item.before,
        "now": item.now,
        "where": f"{item.seam.file}:{item.seam.line}",
        "patch": item.seam.owner,
        "architectures": list(item.architectures),
    }


def as_text(result: Result, seams: SeamList, engine: str, seconds: float) -> str:
    """The result for people: a paragraph for each break, one closing line."""
    lines: list[str] = []
    for group in _grouped(result.breaks):
        item, number = group[0], number_of(group[0])
        lines.append(f"{item.severity}: {item.what}" + (f"  [break {number}]" if number else ""))
        lines += [f"  used:  {_short(item.before)}", f"  there: {_short(item.now)}"]
        for each in group:
            patch = f"patch {each.seam.owner}" if each.seam.owner else "no patch: upstream's own line"
            lines.append(f"  line:  {each.seam.file}:{each.seam.line} ({patch})")
        lines += [f"  for:   {', '.join(item.architectures)}"] if item.architectures else []
        lines.append("")
    broken = sum(item.breaks for item in result.breaks)
    changed = len(result.breaks) - broken
    told = f"{broken} broken" + (f", {changed} changed since {seams.engine}" if changed else "")
    undecided = f", {len(result.undecided)} that sources cannot answer (see --json)" if result.undecided else ""
    lines.append(
        f"speculators {seams.speculators} ({seams.series}) on {engine}: "
        f"{result.checked} seams, {told}{undecided}; {seconds:.1f} s"
    )
    return "\n".join(lines)


def _grouped(breaks: Sequence[Break]) -> list[list[Break]]:
    """Breaks that say the same of several lines together, real breaks first."""
    groups: dict[tuple[str, str, str], list[Break]] = {}
    for item in sorted(breaks, key=lambda each: (not each.breaks, each.seam.file, each.seam.line)):
        groups.setdefault((item.severity, item.what, item.now), []).append(item)
    return list(groups.values())


def _short(signature: str) -> str:
    """A side of a break, a long signature cut to its first parameters and those without a default."""
    if len(signature) <= _WIDTH or not signature.startswith("("):
        return signature
    parameters = signature.strip("()").split(", ")
    kept = [item for place, item in enumerate(parameters) if place < _FIRST or "=" not in item]
    return f"({', '.join(kept)}, … {len(parameters) - len(kept)} more with defaults)"
