"""Targets of a real model's width, mostly told by config and tokenizer alone, for `load_format: dummy`.

The engine makes weights of these sizes up on the device, for speed and memory; depth is chosen, as many layers as the
device holds. For numbers a few layers get real weights: 9.5 GB for each layer of Kimi-K2.5's INT4 experts.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import TargetError
from draftkiln.target import tokenizer, wide_weights
from draftkiln.target.model_config import DEEPSEEK_V3
from draftkiln.target.tensors import write_shards

if TYPE_CHECKING:
    from pathlib import Path

_SHARD_BYTES = 10**9
_GROUP = 32
"""Weights that share a scale in Kimi-K2.5's INT4 experts."""

_COMMON: dict[str, Any] = {
    **DEEPSEEK_V3,
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rope_theta": 50000.0,
    "v_head_dim": 128,
}

_SHAPES: dict[str, dict[str, Any]] = {
    # 2.5 B parameters at 6 layers, of which a token meets 1.3 B.
    "deepseek-v3-narrow": {
        "max_position_embeddings": 8192,
        "moe_intermediate_size": 1024,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "routed_scaling_factor": 1.0,
        "vocab_size": 32768,
    },
    # Kimi-K2.5's text part, its INT4 experts included.
    "kimi-k2.5-text": {
        "max_position_embeddings": 262144,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 384,
        "num_experts_per_tok": 8,
        "routed_scaling_factor": 2.827,
        "vocab_size": 163840,
        "rope_scaling": {
            "type": "yarn",
            "factor": 64.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "kv_cache_scheme": None,
            "ignore": [
                "lm_head",
                "re:.*self_attn.*",
                "re:.*shared_experts.*",
                "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
            ],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "input_activations": None,
                    "output_activations": None,
                    "weights": {
                        "num_bits": 4,
                        "type": "int",
                        "symmetric": True,
                        "strategy": "group",
                        "group_size": _GROUP,
                        "dynamic": False,
                        "actorder": None,
                        "block_structure": None,
                        "observer": "minmax",
                        "observer_kwargs": {},
                    },
                }
            },
        },
    },
}
NAMES = tuple(_SHAPES)


def config(name: str, layers: int) -> dict[str, Any]:
    """config.json of shape `name` with `layers` layers."""
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    return {**_COMMON, **_SHAPES[name], **ids, "num_hidden_layers": layers}


def write(name: str, layers: int, folder: Path, seed: int | None = None) -> Path:
    """Write config and tokenizer into `folder`, all or nothing, with a `seed` weights as well; gives `folder`.

    Raises:
        TargetError: `folder` exists already, or there is no such shape.
    """
    if name not in _SHAPES:
        raise TargetError(f"no shape is called {name!r}", fix=f"choose one of {', '.join(NAMES)}")
    if folder.exists():
        raise TargetError(f"{folder} exists already", fix="name another folder, or remove this one")
    with durable.storage_errors(folder):
        work = folder.with_name(f".{folder.name}.tmp")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        described = config(name, layers)
        durable.write_json(work / "config.json", described)
        durable.write_json(work / "generation_config.json", {"do_sample": False, "eos_token_id": 1})
        durable.write_json(work / "tokenizer.json", tokenizer.tokenizer())
        durable.write_json(work / "tokenizer_config.json", tokenizer.tokenizer_config())
        if seed is not None:
            tensors = list(wide_weights.all_tensors(described, seed))
            write_shards(work, tensors, _SHARD_BYTES, len(os.sched_getaffinity(0)))
        work.rename(folder)
    return folder
