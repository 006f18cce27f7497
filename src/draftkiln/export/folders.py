"""The two folders of a draft: speculators' format for vLLM, and the Hugging Face layout for SGLang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftkiln import layers
from draftkiln.export import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from draftkiln.export.layout import Sizes

WEIGHTS = "model.safetensors"


def vllm_config(
    decoder: Mapping[str, Any],
    *,
    aux: Sequence[int],
    draft_vocab: int,
    norm_before_residual: bool,
    draft_tokens: int,
    target: Mapping[str, Any],
) -> dict[str, Any]:
    """config.json in speculators' format, every key that vLLM 0.32.0 reads written down.

    Args:
        decoder: the draft's decoder configuration.
        aux: layer ids that it was trained on, in vLLM's convention.
        draft_vocab: rows of its head.
        norm_before_residual: as it was trained.
        draft_tokens: how many it proposes a step unless the server is told otherwise.
        target: `name_or_path` and `architectures` of the target.
    """
    return {
        "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": draft_vocab,
        "dtype": "bfloat16",
        "eagle_aux_hidden_state_layer_ids": list(aux),
        "fc_norm": False,
        "norm_before_fc": False,
        "norm_before_residual": norm_before_residual,
        "norm_output": False,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "accept_tolerance": 0.0,
                    "proposal_type": "greedy",
                    "speculative_tokens": draft_tokens,
                    "verifier_accept_k": 1,
                }
            ],
            "verifier": dict(target),
        },
        "speculators_model_type": "eagle3",
        "target_hidden_size": decoder["hidden_size"],
        "tie_word_embeddings": False,
        "transformer_layer_config": dict(decoder),
    }


def sglang_config(
    decoder: Mapping[str, Any], *, aux: Sequence[int], architecture: str, draft_vocab: int
) -> dict[str, Any]:
    """config.json of the Hugging Face layout that SGLang reads.

    Args:
        decoder: the draft's decoder configuration.
        aux: layer ids that it was trained on, in vLLM's convention; SGLang's are written.
        architecture: of the target, which decides how SGLang counts.
        draft_vocab: rows of its head.
    """
    ids = layers.to_sglang_ids(aux, architecture)
    rope = decoder["rope_parameters"]
    return {
        **{key: value for key, value in decoder.items() if key != "rope_parameters"},
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": draft_vocab,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": ids, "use_aux_hidden_state": True},
        "rope_scaling": None,
        "rope_theta": rope["rope_theta"],
        "target_hidden_size": decoder["hidden_size"],
        "torch_dtype": "bfloat16",
    }


def sglang_tensors(tensors: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
    """The tensors under SGLang's names, without the embeddings, which SGLang shares from the target."""
    return {layout.sglang_name(name): tensors[name] for name in layout.tensors(sizes)}


def sglang_refusal(*, norm_before_residual: bool, aux: Sequence[int], architecture: str) -> str | None:
    """Why SGLang cannot serve this draft as it was trained; None when it can.

    Its layer keeps the state from before the norm as residual and knows no flag for the other way.
    """
    if norm_before_residual:
        return (
            "the draft was trained with norm_before_residual: true; SGLang's layer always takes the residual from "
            "before the norm, so it would serve another draft than was trained"
        )
    try:
        layers.to_sglang_ids(aux, architecture)
    except ValueError as error:
        return str(error)
    return None
