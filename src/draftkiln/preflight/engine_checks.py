"""The recipe against the engine's sources and against the real engine with a stub model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from draftkiln.errors import DraftkilnError, PatchError
from draftkiln.preflight.finding import Finding, failed, passed, unknown, warned

if TYPE_CHECKING:
    from pathlib import Path

    from draftkiln.seams.sources import Sources
    from draftkiln.stack.environment import Environment
    from draftkiln.target.facts import TargetFacts

DRAFT_KEYS = ("norm_before_residual", "eagle_aux_hidden_state_layer_ids", "draft_vocab_size", "target_hidden_size")
"""Keys of a draft's config that decide what it computes; a serving engine that does not read one serves it wrongly."""
_DRAFT_READERS = (
    "vllm/transformers_utils/configs/speculators/algos.py",
    "vllm/model_executor/models/llama_eagle3.py",
)
_INTERFACE = "vllm.model_executor.models.interfaces"


def check_seams(environment: Environment, facts: TargetFacts | None) -> list[Finding]:
    """Every seam of the stack's speculators against the stack's vLLM, by their sources."""
    from draftkiln import checkout
    from draftkiln.seams.check import ARCHITECTURES, check
    from draftkiln.seams.engines import open_engine
    from draftkiln.seams.extract import extract
    from draftkiln.seams.owners import owner_lookup, read_series
    from draftkiln.seams.sources import open_sources

    series = environment.stack.file.speculators.series
    try:
        tree = open_sources(environment.overlay, "speculators")
        release = environment.stack.file.speculators.version
        patches = read_series(checkout.root() / "patches" / "speculators", series, release) if series else []
        seams = extract(tree, series=series or "pristine", owner=owner_lookup(tree, patches))
    except PatchError as error:
        if "target removed upstream" in error.what:
            return [passed("seams", "none: this speculators release has no generator")]
        return [failed("seams", error.what, error.fix)]
    engine = open_engine("installed", environment.python)
    architectures = (facts.architecture,) if facts else ARCHITECTURES
    result = check(seams, engine.sources, architectures)
    broken = [item for item in result.breaks if item.breaks]
    if not broken:
        return [passed("seams", f"{result.checked} seams of speculators {seams.speculators} hold on {engine.name}")]
    fix = f"mend the patch that owns the line: draftkiln seams check --stack {environment.stack.name} shows both sides"
    return [
        failed(
            "seams",
            f"{item.what} ({item.seam.file}:{item.seam.line}, {item.seam.owner or 'upstream'})",
            fix,
        )
        for item in broken
    ]


def check_probe(environment: Environment) -> list[Finding]:
    """Behaviour of the real engine with a stub model."""
    from draftkiln.seams.probe_command import probe

    try:
        report = probe(environment.python, environment.variables())
    except DraftkilnError as error:
        return [failed("probe", f"{error.what}: {error.why}", error.fix)]
    if not report.findings:
        return [
            passed("probe", f"vLLM {report.engine} behaves as the generator expects ({report.probe_seconds:.0f} s)")
        ]
    return [failed("probe", f"{item.what}: {item.seen}", item.fix) for item in report.findings]


def check_serving(python: Path, stack: str, facts: TargetFacts) -> list[Finding]:
    """Whether the engine that evaluates serves EAGLE-3 drafts for this target, and reads the draft's config keys."""
    from draftkiln.seams.engines import open_engine

    engine = open_engine("installed", python)
    return [
        check_target_class(engine.sources, engine.name, stack, facts),
        check_draft_keys(engine.sources, engine.name),
    ]


def check_target_class(sources: Sources, engine: str, stack: str, facts: TargetFacts) -> Finding:
    """Whether the target's class can give its states to a draft in this engine."""
    from draftkiln.seams.inference import Engine
    from draftkiln.seams.modules import ModuleIndex
    from draftkiln.seams.paths import fulfils
    from draftkiln.seams.values import InstanceOf

    parsed = Engine(ModuleIndex(sources, {"vllm"}))
    model = parsed.architecture(facts.architecture)
    if model is None:
        return failed(
            "draft serving", f"{engine} knows no {facts.architecture}", f"name another stack than {stack} to evaluate"
        )
    answer = fulfils(parsed, f"{_INTERFACE}.supports_eagle3", InstanceOf(model))
    if answer is None:
        return unknown("draft serving", f"cannot tell from {engine}'s sources", "the evaluate stage will tell")
    if not answer:
        fix = "evaluate on a stack with a later vLLM"
        return failed("draft serving", f"{facts.architecture} takes no EAGLE-3 draft in {engine}", fix)
    return passed("draft serving", f"{facts.architecture} takes EAGLE-3 drafts in {engine}")


def check_draft_keys(sources: Sources, engine: str) -> Finding:
    """Whether the serving engine's sources mention every key of the draft's config that matters."""
    readers = [name for name in _DRAFT_READERS if sources.has(name)]
    words = set(re.findall(r"\w+", " ".join(sources.read(name) for name in readers)))
    unread = [key for key in DRAFT_KEYS if key not in words]
    if not readers:
        return unknown("draft config", f"{engine} keeps its draft readers elsewhere", "the evaluate stage will tell")
    if unread:
        return warned("draft config", f"{engine} does not read {', '.join(unread)}", "evaluate on another vLLM build")
    return passed("draft config", f"{engine} reads {', '.join(DRAFT_KEYS)}")
