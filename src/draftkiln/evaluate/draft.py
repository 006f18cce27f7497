"""What a draft's config and weights say, held against the target, before an engine is started with both."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from draftkiln import durable, layers
from draftkiln.errors import EvaluationError, ProblemsError
from draftkiln.export import reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from draftkiln.target.facts import TargetFacts

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
_IDS = "eagle_aux_hidden_state_layer_ids"
_NESTED = "eagle_config"


def check(folder: Path, facts: TargetFacts) -> None:
    """Refuse a folder that is no draft, a draft of another target, or weights that do not load; all problems at once.

    Raises:
        EvaluationError: the folder is no draft.
        ProblemsError: of `EvaluationError`s, one a value or a tensor that does not fit.
    """
    absent = [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]
    if absent:
        why = f"it has no {' and no '.join(absent)}"
        if not folder.is_dir():
            why = "it is a file" if folder.exists() else "nothing has that name"
        raise EvaluationError(f"{folder} is no draft", why=why, fix=f"name {_likely(folder)}")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise EvaluationError(f"{folder / CONFIG} is not JSON", why=str(error), fix="export the draft again") from error
    if not isinstance(config, dict):
        raise EvaluationError(f"{folder / CONFIG} is not a JSON object", fix="export the draft again")
    fix = f"measure it with the target that it was trained for; this one is {facts.path}"
    problems = [EvaluationError(f"{folder}: {text}", fix=fix) for text in _problems(config, facts)]
    again = f"export it again, or fetch it again; `draftkiln inspect {folder}` shows all of it"
    problems += [EvaluationError(f"{folder}: {text}", fix=again) for text in reading.read(folder).unloadable]
    if problems:
        raise ProblemsError(problems)


def remarks(folder: Path, facts: TargetFacts, target: str | None) -> Iterator[str]:
    """What is worth knowing of a checked draft before its numbers are read, and is no reason to refuse it.

    Args:
        folder: of the draft.
        facts: of the target.
        target: the target's repository, where it comes from one.
    """
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    named = _verifier(config).get("name_or_path")
    if isinstance(named, str) and named and not _is_target(named, facts, target):
        yield f"it names {named} as its target, this one is {target or facts.path}"
    if not _aux_ids(config):
        yield (
            "it names no layers: vLLM takes those that it holds for usual, "
            f"{list(layers.default_aux_ids(facts.num_layers))} in most targets of {facts.num_layers} layers"
        )


def layer_ids(folder: Path, facts: TargetFacts) -> list[int]:
    """The layers whose states a checked draft reads, as this project and vLLM count; empty where it names none."""
    return _meant(json.loads((folder / CONFIG).read_text(encoding="utf-8")), facts)


def served(folder: Path, facts: TargetFacts, into: Path) -> Path:
    """The folder from which vLLM serves a checked draft: its own, or `into` where its config is in SGLang's layout.

    vLLM takes SGLang's weights by their names, but the layer ids as they stand, and 0.16.0 reads none in
    `eagle_config`: such a draft would be fed the states of other layers. `into` holds links to all that `folder` holds
    and a config.json with the ids as vLLM counts, where vLLM reads them.
    """
    shutil.rmtree(into, ignore_errors=True)
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if not _is_sglangs(config) or not _aux_ids(config):
        return folder
    meant = {_IDS: _meant(config, facts)}
    nested = {_NESTED: {**_section(config, _NESTED), **meant}} if _section(config, _NESTED) else {}
    into.mkdir(parents=True)
    for file in folder.iterdir():
        if file.is_file() and file.name != CONFIG:
            (into / file.name).symlink_to(file.resolve())
    durable.write_json(into / CONFIG, {**config, **nested, **meant})
    return into


def _likely(folder: Path) -> str:
    """The draft of a run directory, where that was named instead."""
    inside = folder / "export" / "vllm"
    return f"{inside}, the draft of this run" if inside.is_dir() else "an export folder"


def _problems(config: Mapping[str, Any], facts: TargetFacts) -> Iterator[str]:
    layer = config if _is_sglangs(config) else _section(config, "transformer_layer_config")
    hidden = config.get("target_hidden_size") or layer.get("hidden_size")
    if isinstance(hidden, int) and hidden != facts.hidden_size:
        yield f"it reads states of hidden size {hidden}, the target has {facts.hidden_size}"
    vocab, draft_vocab = layer.get("vocab_size"), config.get("draft_vocab_size")
    # In speculators' format the layer's vocabulary is the target's, in the other the draft's own may stand there.
    if isinstance(vocab, int) and vocab not in {facts.vocab_size, draft_vocab}:
        yield f"its vocabulary of {vocab} tokens is not the target's of {facts.vocab_size}"
    if isinstance(draft_vocab, int) and draft_vocab > facts.vocab_size:
        yield f"it drafts {draft_vocab} tokens, the target has {facts.vocab_size}"
    architectures = _verifier(config).get("architectures")
    if isinstance(architectures, list) and architectures and facts.architecture not in architectures:
        yield f"it was trained for a {', '.join(map(str, architectures))}, the target is a {facts.architecture}"
    ids, meant = _aux_ids(config), _meant(config, facts)
    if any(not 0 <= number < facts.num_layers for number in meant):
        counted = f" (written {ids}, as SGLang counts)" if meant != ids else ""
        yield f"it fuses layers {meant}{counted}, the target has {facts.num_layers}"


def _verifier(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a draft in speculators' layout says of its target."""
    return _section(_section(config, "speculators_config"), "verifier")


def _is_target(named: str, facts: TargetFacts, target: str | None) -> bool:
    """Whether a draft's word for its target may be this one's: folders are copied to other places."""
    ours = {target.casefold()} if target else set()
    return named.casefold() in ours or named.rstrip("/").rpartition("/")[2].casefold() in {
        facts.path.name.casefold(),
        *(name.rpartition("/")[2] for name in ours),
    }


def _is_sglangs(config: Mapping[str, Any]) -> bool:
    return not _section(config, "transformer_layer_config")


def _meant(config: Mapping[str, Any], facts: TargetFacts) -> list[int]:
    ids = _aux_ids(config)
    return layers.from_sglang_ids(ids, facts.architecture) if _is_sglangs(config) else ids


def _aux_ids(config: Mapping[str, Any]) -> list[int]:
    for section in (config, _section(config, _NESTED)):
        ids = section.get(_IDS)
        if isinstance(ids, list):
            return [number for number in ids if isinstance(number, int)]
    return []


def _section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = config.get(key)
    return found if isinstance(found, dict) else {}
