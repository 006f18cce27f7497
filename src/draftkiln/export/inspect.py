"""`draftkiln inspect DRAFT`: print what a draft is, of this project or another's, from its config and headers alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln.errors import ExitCode
from draftkiln.export import layout, reading
from draftkiln.printable import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from draftkiln.export.reading import Draft

_FLAGS = {"norm_before_residual": True, "norm_before_fc": False, "fc_norm": False, "norm_output": False}
"""Norm flags -> what vLLM takes where they are not written."""
_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the draft's folder."""
    parser.add_argument("draft", type=Path, metavar="DRAFT", help="folder with config.json and safetensors")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.epilog = f"Exit code 0: nothing is wrong with it; {ExitCode.TRAINING.value}: problems, each told."


def main(arguments: argparse.Namespace) -> int:
    """Print what the draft is; exit code TRAINING where something is wrong with it."""
    draft = reading.read(arguments.draft)
    content = describe(draft)
    print(json.dumps(content, indent=2) if arguments.json else "\n".join(_text(content)))
    return ExitCode.TRAINING if draft.problems else ExitCode.OK


def describe(draft: Draft) -> dict[str, Any]:
    """All that is known of a draft, as JSON values."""
    vllm = draft.format == reading.SPECULATORS
    flags = {
        flag: draft.config.get(flag, f"not written, vLLM takes {taken}" if vllm else None)
        for flag, taken in _FLAGS.items()
    }
    sizes = {key: draft.layer.get(key) for key in _SIZES}
    vocab, draft_vocab = sizes["vocab_size"], draft.config.get("draft_vocab_size")
    return {
        "schema_version": 1,
        "folder": str(draft.folder),
        "format": draft.format,
        "architecture": draft.architecture,
        "target": draft.target,
        "layer_ids": draft.aux_ids,
        "layer_ids_mean": layer_meaning(draft),
        "sizes": sizes,
        "draft_vocab_size": draft_vocab,
        "maps_vocabulary": draft_vocab is not None and draft_vocab != vocab,
        "norm_flags": {flag: value for flag, value in flags.items() if value is not None},
        "embeddings": "its own" if layout.EMBEDDINGS in draft.tensors else "the target's",
        "parameters": draft.parameters,
        "files": draft.files,
        "tensors": {
            name: {"shape": list(shape), "dtype": kind} for name, (shape, kind) in sorted(draft.tensors.items())
        },
        "problems": list(draft.problems),
    }


def layer_meaning(draft: Draft) -> str:
    """What a draft's layer ids mean, for the two engines do not count alike."""
    ids = draft.aux_ids
    if not ids:
        return "not written: engines take (2, n/2, n-3) of a target of n layers, or what they know of it"
    if not all(isinstance(layer, int) for layer in ids):
        return "not numbers"
    applied = f"the states after {_listed(ids)} decoder layers"
    if draft.format == reading.SPECULATORS:
        return f"{applied} (0 = embeddings), as vLLM counts"
    outputs = f"after {_listed([layer + 1 for layer in ids])}"
    if ids[0] == 1:
        vllm = applied.removeprefix("the states ")
        return f"outputs of layers, as SGLang counts: the states {outputs} decoder layers; vLLM would take them {vllm}"
    return (
        f"SGLang takes them for outputs of layers, the states {outputs} decoder layers, but for DeepSeek-like targets"
        f" and gpt-oss as they are, {applied}, as vLLM always does"
    )


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids))


def _together(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} {printable(value)}" for key, value in values.items() if value is not None)


def _text(content: dict[str, Any]) -> Iterator[str]:
    """Lines for people."""
    for key in ("folder", "format", "architecture"):
        yield f"{key}: {printable(content[key])}"
    yield f"target: {printable(content['target'] or 'not written')}"
    yield f"layer ids: {printable(content['layer_ids'])}: {content['layer_ids_mean']}"
    yield f"sizes: {_together(content['sizes'])}"
    whole = "a part of the target's" if content["maps_vocabulary"] else "the target's"
    yield f"draft vocabulary: {printable(content['draft_vocab_size'])}, {whole}"
    yield f"norm flags: {_together(content['norm_flags']) or 'none'}"
    yield f"embeddings: {content['embeddings']}"
    size = sum(content["files"].values()) / 1e6
    yield f"parameters: {content['parameters']:,} in {len(content['tensors'])} tensors, {size:.1f} MB"
    width = max(map(len, content["tensors"]), default=0)
    for name, tensor in content["tensors"].items():
        yield f"  {printable(name):{width}}  {printable(tensor['dtype']):5} {tensor['shape']}"
    for problem in content["problems"]:
        yield f"problem: {printable(problem)}"
    count = len(content["problems"])
    yield f"{count} problem{'s' if count > 1 else ''}" if count else "nothing is wrong with it"
