"""The target's config.json against its weights, by the headers of their safetensors files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import TargetError
from draftkiln.preflight.finding import Finding, failed, passed, unknown
from draftkiln.target.facts import INDEX, text_config, weight_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from draftkiln.target.facts import TargetFacts

CHECK = "weights' shapes"
_FIX = "take config.json and weights of the same revision"
_LARGEST_HEADER = 100_000_000
"""Bytes; what safetensors itself allows."""
_EMBEDDING = re.compile(r"^(?:.*\.)?embed_tokens\.weight$")
_HEAD = re.compile(r"^(?:.*\.)?lm_head\.weight$")
_NORM = re.compile(r"^(?:.*\.)?model\.norm\.weight$")
_LAYER = re.compile(r"^(?:language_model\.)?model\.(?:language_model\.)?layers\.(\d+)\.")
_MOST_TOLD = 3


@dataclass(frozen=True)
class Weights:
    """Shapes of all tensors of a checkpoint, by name, and tensors that its index promises and no file has."""

    shapes: Mapping[str, tuple[int, ...]]
    missing: tuple[str, ...]


def check_shapes(facts: TargetFacts) -> Finding:
    """Hidden size, number of layers and rows of the vocabulary: what config.json says and what the weights have."""
    try:
        weights = read(facts.path)
    except TargetError as error:
        return failed(CHECK, f"{error.what}: {error.why}", error.fix)
    found = sorted(_problems(weights, facts))
    if found:
        return failed(CHECK, "; ".join(found), _FIX)
    embedding = _shape(weights, _EMBEDDING)
    if embedding is None:
        names = ", ".join(list(weights.shapes)[:_MOST_TOLD])
        return unknown(CHECK, f"no tensor is called embed_tokens (there are {names} …)", "compare them by hand")
    return passed(
        CHECK, f"{facts.num_layers} layers, vocabulary and hidden size {list(embedding)}, as config.json says"
    )


def read(path: Path) -> Weights:
    """Read the headers of a checkpoint's files.

    Raises:
        TargetError: a file has no readable header.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for file in weight_files(path):
        for name, entry in _header(file).items():
            if name != "__metadata__":
                shapes[name] = tuple(entry["shape"])
    index = path / INDEX
    promised = json.loads(index.read_text(encoding="utf-8"))["weight_map"] if index.is_file() else {}
    return Weights(shapes, tuple(name for name in promised if name not in shapes))


def _header(file: Path) -> dict[str, Any]:
    try:
        return _parsed_header(file)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TargetError(
            f"{file} has no readable header", why=str(error) or type(error).__name__, fix="copy or fetch it again"
        ) from error


def _parsed_header(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if not 0 < length <= _LARGEST_HEADER:
            raise ValueError(f"a header of {length} bytes")
        header: dict[str, Any] = json.loads(opened.read(length))
    if not all(isinstance(entry["shape"], list) for name, entry in header.items() if name != "__metadata__"):
        raise ValueError("a tensor without a shape")
    return header


def _problems(weights: Weights, facts: TargetFacts) -> Iterator[str]:
    if weights.missing:
        told = ", ".join(weights.missing[:_MOST_TOLD])
        yield f"{len(weights.missing)} tensors of the index are in no file, such as {told}"
    for name, pattern in (("embed_tokens", _EMBEDDING), ("lm_head", _HEAD)):
        shape, wanted = _shape(weights, pattern), (facts.vocab_size, facts.hidden_size)
        if shape is not None and shape != wanted:
            yield f"{name} is {list(shape)}, config.json says {list(wanted)} (vocabulary, hidden size)"
    norm = _shape(weights, _NORM)
    if norm is not None and norm != (facts.hidden_size,):
        yield f"the final norm is {list(norm)}, config.json says hidden size {facts.hidden_size}"
    there = {int(match[1]) for name in weights.shapes if (match := _LAYER.match(name))}
    if there:
        absent = sorted(set(range(facts.num_layers)) - there)
        if absent:
            yield f"layers {', '.join(map(str, absent[:_MOST_TOLD]))} of {facts.num_layers} have no weights"
        more = max(there) + 1 - facts.num_layers
        if more > _predicting_layers(facts.path):
            yield f"there are weights of {max(there) + 1} layers, config.json says {facts.num_layers}"


def _shape(weights: Weights, pattern: re.Pattern[str]) -> tuple[int, ...] | None:
    return next((shape for name, shape in weights.shapes.items() if pattern.match(name)), None)


def _predicting_layers(path: Path) -> int:
    """Layers after the last one that only predict further tokens (DeepSeek-V3 has one); no state is taken from them."""
    config = text_config(json.loads((path / "config.json").read_text(encoding="utf-8")))
    count = config.get("num_nextn_predict_layers")
    return count if isinstance(count, int) else 0
