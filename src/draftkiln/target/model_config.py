"""config.json, generation_config.json and preprocessor_config.json of a made target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from draftkiln.target import rope, vision
from draftkiln.target.language import IDS
from draftkiln.target.layers import ROUTED_SCALING
from draftkiln.target.shape import ROPE_THETA

if TYPE_CHECKING:
    from draftkiln.target.shape import Shape

DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "dtype": "bfloat16",
    "torch_dtype": "bfloat16",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_nextn_predict_layers": 0,
    "rms_norm_eps": 1e-5,
    "scoring_func": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "use_cache": True,
}
"""What all targets of this architecture have in their text config, whatever their size."""


def config(shape: Shape) -> dict[str, Any]:
    """config.json: Kimi-K2.5's wrapper around a DeepseekV3 text part."""
    return {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "auto_map": {"AutoConfig": "configuration_kimi_k25.KimiK25Config"},
        "model_type": "kimi_k25",
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "ignore_index": -100,
        "media_placeholder_token_id": IDS["<|media_pad|>"],
        "image_token_id": IDS["<|media_pad|>"],
        "video_placeholder": "<|kimi_k25_video_placeholder|>",
        "use_unified_vision_chunk": True,
        "tie_word_embeddings": False,
        **_token_ids(),
        "text_config": _text_config(shape),
        "vision_config": _vision_config(shape),
    }


def generation_config() -> dict[str, Any]:
    """generation_config.json: greedy, ended by `<|im_end|>` (which a made target never writes by itself)."""
    return {"do_sample": False, **_token_ids(), "eos_token_id": IDS["<|im_end|>"]}


def preprocessor_config() -> dict[str, Any]:
    """preprocessor_config.json: the keys of Kimi-K2.5's image processor, for images of at most 4 x 4 patches."""
    return {
        "auto_map": {"AutoImageProcessor": "image_processing_kimi_k25.KimiK25ImageProcessor"},
        "image_processor_type": "KimiK25ImageProcessor",
        "media_proc_cfg": {
            "in_patch_limit": vision.GRID * vision.GRID,
            "in_patch_limit_each_frame": vision.GRID * vision.GRID,
            "in_patch_limit_video": None,
            "patch_limit_on_one_side": vision.GRID,
            "fixed_output_tokens": None,
            "patch_size": vision.PATCH,
            "merge_kernel_size": vision.MERGE,
            "temporal_merge_kernel_size": 4,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    }


def _token_ids() -> dict[str, int]:
    return {"bos_token_id": IDS["[BOS]"], "eos_token_id": IDS["[EOS]"], "pad_token_id": IDS["[PAD]"]}


def _text_config(shape: Shape) -> dict[str, Any]:
    return {
        **DEEPSEEK_V3,
        "model_type": "kimi_k2",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "kv_lora_rank": shape.kv_lora_rank,
        "max_position_embeddings": shape.max_position_embeddings,
        "moe_intermediate_size": shape.moe_intermediate_size,
        "n_routed_experts": shape.n_routed_experts,
        "num_attention_heads": shape.num_attention_heads,
        "num_experts_per_tok": shape.n_routed_experts,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_key_value_heads": shape.num_attention_heads,
        "q_lora_rank": shape.q_lora_rank,
        "qk_nope_head_dim": shape.qk_nope_head_dim,
        "qk_rope_head_dim": shape.qk_rope_head_dim,
        "rope_interleave": True,
        "rope_scaling": rope.parameters(),
        "rope_theta": ROPE_THETA,
        "routed_scaling_factor": ROUTED_SCALING,
        "v_head_dim": shape.v_head_dim,
        "vocab_size": shape.vocab_size,
        **_token_ids(),
    }


def _vision_config(shape: Shape) -> dict[str, Any]:
    return {
        "model_type": "kimi_k25_vision",
        "patch_size": vision.PATCH,
        "init_pos_emb_height": vision.GRID,
        "init_pos_emb_width": vision.GRID,
        "init_pos_emb_time": 4,
        "pos_emb_type": "divided_fixed",
        "num_attention_heads": vision.HEADS,
        "num_hidden_layers": 1,
        "hidden_size": shape.vision_hidden_size,
        "intermediate_size": vision.INNER,
        "merge_kernel_size": [vision.MERGE, vision.MERGE],
        "video_attn_type": "spatial_temporal",
        "merge_type": "sd2_tpool",
        "mm_projector_type": "patchmerger",
        "mm_hidden_size": shape.hidden_size,
        "projector_hidden_act": "gelu",
        "projector_ln_eps": 1e-5,
    }
