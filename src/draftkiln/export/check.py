"""The static check of a draft: every name, shape, type and config key against what the serving build reads."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from draftkiln import layers
from draftkiln.export import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Header = dict[str, tuple[tuple[int, ...], str]]
"""Name -> shape and type (safetensors' short names) of every tensor of a file."""

_FLOATS = ("BF16", "F16", "F32")
_TYPES = {layout.D2T: ("I64",), layout.T2D: ("BOOL",)}


def header(raw: Mapping[str, Mapping[str, Any]]) -> Header:
    """Shapes and types out of a safetensors header as `draftkiln.extract.samples.header` reads it."""
    return {name: (tuple(entry["shape"]), str(entry["dtype"])) for name, entry in raw.items()}


def problems(config: Mapping[str, Any], found: Header, aux: Sequence[int], num_layers: int) -> list[str]:
    """What keeps a draft in speculators' format from being served as it was trained; empty when nothing does.

    Args:
        config: its config.json.
        found: header of its weights.
        aux: the layer ids that it was trained on.
        num_layers: decoder layers of the target.

    Raises:
        TrainingError: the config does not say a size.
    """
    sizes = layout.Sizes.of(config)
    ids = _id_problems(config.get("eagle_aux_hidden_state_layer_ids"), aux, num_layers)
    return [*ids, *config_problems(config), *tensor_problems(found, sizes)]


def config_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a config.json in speculators' format, its layer ids aside."""
    if config.get("speculators_model_type") != "eagle3":
        yield f"speculators_model_type is {config.get('speculators_model_type')!r}, vLLM serves 'eagle3' drafts here"
    if not isinstance(config.get("norm_before_residual"), bool):
        yield "norm_before_residual is not written, and vLLM takes true when it is absent"
    for flag in layout.OFF_FLAGS:
        if config.get(flag) is not False:
            yield f"{flag} is {config.get(flag)!r}, this project trains and checks drafts with false"
    layer = config["transformer_layer_config"]
    if layer.get("model_type") != "llama":
        yield f"transformer_layer_config.model_type is {layer.get('model_type')!r}, only Llama's is checked here"
    if layer.get("num_hidden_layers") != 1:
        yield f"transformer_layer_config.num_hidden_layers is {layer.get('num_hidden_layers')!r}, it must be 1"
    if layer.get("attention_bias"):
        yield "transformer_layer_config.attention_bias is true, and no bias was trained"
    for key in sorted(config.keys() - layout.READ_BY_VLLM):
        allowed = layout.WITHOUT_EFFECT.get(key, ())
        if allowed is not None and config[key] not in allowed:
            yield f"{key} is {config[key]!r}: vLLM 0.32.0 does not read it and would serve the draft without it"


def _id_problems(ids: Any, aux: Sequence[int], num_layers: int) -> Iterator[str]:
    if not ids:
        yield (
            "eagle_aux_hidden_state_layer_ids is not written, and vLLM would guess "
            f"{list(layers.default_aux_ids(num_layers))}; the draft was trained on {list(aux)}"
        )
    elif list(ids) != list(aux):
        last = f"; {num_layers} is the state after the last layer and no auxiliary one" if num_layers in ids else ""
        yield f"eagle_aux_hidden_state_layer_ids is {list(ids)}, the draft was trained on {list(aux)}{last}"


def tensor_problems(found: Header, sizes: layout.Sizes, *, sglang: bool = False) -> Iterator[str]:
    """What is wrong with names, shapes and types of the tensors.

    Args:
        found: header of the weights.
        sizes: as the config says them.
        sglang: whether they are named as SGLang reads them; then `t2d`, which it does not read, may be absent.
    """
    needed, optional = layout.tensors(sizes), layout.optional_tensors(sizes)
    if sglang:
        optional |= {layout.T2D: needed.pop(layout.T2D)} if layout.T2D in needed else {}
        needed = {layout.sglang_name(name): shape for name, shape in needed.items()}
    allowed = needed | optional
    reader = "SGLang" if sglang else "vLLM 0.32.0"
    for name in sorted(needed.keys() - found.keys()):
        yield f"tensor {name} is missing; its shape would be {list(needed[name])}"
    for name in sorted(found.keys() - allowed.keys()):
        yield f"tensor {name} is none that {reader} loads for an EAGLE-3 draft of Llama's kind"
    for name in sorted(found.keys() & allowed.keys()):
        shape, kind = found[name]
        if shape != allowed[name]:
            yield f"tensor {name} has shape {list(shape)}, config.json makes it {list(allowed[name])}{_meaning(name)}"
        types = _TYPES.get(name, _FLOATS)
        if kind not in types:
            yield f"tensor {name} is {kind}, it must be {' or '.join(types)}"


def _meaning(name: str) -> str:
    meanings = {
        "fc.weight": " (hidden size x 3 fused states)",
        layout.HEAD: " (a row for each draft token)",
        layout.D2T: " (an offset for each draft token)",
        layout.T2D: " (a flag for each token of the target)",
        layout.EMBEDDINGS: " (a row for each token of the target)",
    }
    if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
        return " (attention reads embedding and state side by side: twice the hidden size)"
    return meanings.get(name, "")


def vocabulary_problems(d2t: Sequence[int], t2d: Sequence[bool]) -> list[str]:
    """What is wrong with the maps between draft and target tokens; empty when nothing is.

    Args:
        d2t: offset of each draft id.
        t2d: whether each target id is in the draft vocabulary.
    """
    targets = [draft + offset for draft, offset in enumerate(d2t)]
    found = []
    if any(not 0 <= target < len(t2d) for target in targets):
        found.append(f"d2t points outside the target's {len(t2d)} tokens")
    if any(second <= first for first, second in itertools.pairwise(targets)):
        found.append("d2t does not give ascending, distinct target tokens")
    if not found and [target for target, used in enumerate(t2d) if used] != targets:
        found.append("t2d and d2t name different target tokens")
    return found
