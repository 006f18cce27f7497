"""The text part of a target under transformers: the independent reference for extracted states.

Engine side: torch and transformers are imported when a model is asked for.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from draftkiln.errors import TargetError
from draftkiln.target import facts

if TYPE_CHECKING:
    from pathlib import Path

_SAME_AS = {"kimi_k2": "deepseek_v3"}


def reference_text_model(path: Path, dtype: str = "float32") -> Any:
    """Load the text part of the target at `path` as a causal language model on the CPU, in evaluation mode.

    A wrapper such as Kimi-K2.5 (sizes under `text_config`, weights under `language_model.`) gives its inner model; a
    plain causal model gives itself. `model(ids, output_hidden_states=True).hidden_states[k]` is the state with layer id
    k for k below the number of layers; transformers applies the final norm to the last entry. float32 is four times as
    fast as bfloat16 on a CPU without bfloat16 units.

    Raises:
        TargetError: transformers does not know the architecture, or weights are missing from the checkpoint.
    """
    import torch
    import transformers

    raw = json.loads((path / "config.json").read_text(encoding="utf-8"))
    sizes = dict(facts.text_config(raw))
    kind = str(sizes.pop("model_type", ""))
    try:
        config = transformers.AutoConfig.for_model(_SAME_AS.get(kind, kind), **sizes)
        model_class = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    except (KeyError, ValueError) as error:
        raise TargetError(
            f"{path}: transformers {transformers.__version__} has no text model for it",
            why=str(error),
            fix="set validate.against to null, or validate on a stack with a transformers release that knows it",
        ) from error
    weights = _text_weights(path, wrapped="text_config" in raw)
    model, report = model_class.from_pretrained(
        None, config=config, state_dict=weights, dtype=getattr(torch, dtype), output_loading_info=True
    )
    if missing := sorted(report["missing_keys"]):
        raise TargetError(
            f"{path}: {len(missing)} weights of its text part are missing, such as {missing[0]}",
            why=f"the checkpoint has other names, such as {', '.join(sorted(report['unexpected_keys'])[:3]) or 'none'}",
            fix="check the directory's safetensors files against its config.json",
        )
    return model.eval()


def _text_weights(path: Path, *, wrapped: bool) -> dict[str, Any]:
    from safetensors.torch import load_file

    weights: dict[str, Any] = {}
    for file in facts.weight_files(path):
        weights |= load_file(file)
    if not wrapped:
        return weights
    prefix = facts.TEXT_PREFIX
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
