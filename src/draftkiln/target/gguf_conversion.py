"""A program that converts a GGUF file to safetensors: `python -m draftkiln.target.gguf_conversion GGUF FOLDER`.

Engine side; it is run, never imported for its functions, by rooms that import no engine.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from draftkiln import durable


def convert(gguf: Path, folder: Path) -> None:
    """Write the model and tokenizer in `gguf` into `folder` as bfloat16 safetensors."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place: dict[str, Any] = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.bfloat16)
    weights = {name: tensor.contiguous() for name, tensor in sorted(model.state_dict().items())}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    durable.write_json(folder / "config.json", _config(model.config))
    ids = {key: getattr(model.config, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    durable.write_json(folder / "generation_config.json", {"do_sample": False, **ids})
    tokenizer = AutoTokenizer.from_pretrained(**place)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    durable.write_json(folder / "tokenizer_config.json", _tokenizer_config(tokenizer, model.config))


def _config(config: Any) -> dict[str, Any]:
    """config.json that transformers 4 and 5 read alike: rotary base and type of the weights under both names."""
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}
    copied = (
        "model_type", "attention_bias", "attention_dropout", "bos_token_id", "eos_token_id", "head_dim", "hidden_act",
        "hidden_size", "initializer_range", "intermediate_size", "max_position_embeddings", "mlp_bias",
        "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "pad_token_id", "rms_norm_eps",
        "tie_word_embeddings", "use_cache", "vocab_size",
    )  # fmt: skip
    return {
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "rope_theta": float(rope["rope_theta"]),
        **{key: getattr(config, key) for key in copied},
    }


def _tokenizer_config(tokenizer: Any, config: Any) -> dict[str, Any]:
    """tokenizer_config.json with a class name that transformers 4 and 5 know.

    Special tokens are those of the model's ids: transformers 4 takes another one out of the file as the end token.
    """
    ids = {key: getattr(config, f"{key}_id") for key in ("bos_token", "eos_token", "pad_token")}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{key: tokenizer.convert_ids_to_tokens(number) for key, number in ids.items() if number is not None},
        **({"unk_token": str(tokenizer.unk_token)} if tokenizer.unk_token is not None else {}),
        "clean_up_tokenization_spaces": False,
        "model_max_length": config.max_position_embeddings,
        "chat_template": tokenizer.chat_template,
    }


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
