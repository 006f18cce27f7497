"""Write the small targets that the engine tests extract from: a DeepseekV3 and a Llama, both of hidden size 256.

Run by a stack's Python: `make_targets.py FOLDER`. `coded` is a third one, without weights, whose tokenizer is code of
its own. Weights come from a fixed seed. All experts of the DeepseekV3 are
always chosen: a router that picks some would tip over on bfloat16 rounding, and states could not be compared.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

VOCABULARY = 512
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}


def deepseek() -> PreTrainedModel:
    """Return a DeepseekV3 with two dense and three MoE layers."""
    config = DeepseekV3Config(
        **COMMON,
        num_key_value_heads=4,
        moe_intermediate_size=128,
        n_routed_experts=4,
        num_experts_per_tok=4,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=2,
        q_lora_rank=64,
        kv_lora_rank=64,
        qk_nope_head_dim=32,
        qk_rope_head_dim=32,
        v_head_dim=32,
        norm_topk_prob=True,
        routed_scaling_factor=1.5,
        # As Kimi's. With the default rotary embedding vLLM 0.16.0's CPU kernel takes the strided queries of
        # DeepSeek's attention for contiguous ones, and every position but the first comes out wrong.
        rope_scaling={
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 256,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    )
    # What vLLM reads beside the fields that transformers knows
    config.topk_method = "noaux_tc"
    config.scoring_func = "sigmoid"
    return DeepseekV3ForCausalLM(config)


def llama() -> PreTrainedModel:
    """Return a Llama with grouped key-value heads."""
    return LlamaForCausalLM(LlamaConfig(**COMMON, num_key_value_heads=2))


def fill(model: PreTrainedModel) -> None:
    """Give every weight a size at which each layer changes the stream visibly."""
    generator = torch.Generator().manual_seed(20)
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            continue
        spread = 1.0 if "embed" in name else 0.9 / weight.shape[-1] ** 0.5
        weight.data.normal_(0.0, spread, generator=generator)


TOKENIZER_CODE = """
from transformers import PreTrainedTokenizerFast


class CodedTokenizer(PreTrainedTokenizerFast):
    pass
"""


def write_coded(source: Path, folder: Path) -> None:
    """Write a target like `source` whose tokenizer class is in the folder itself."""
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(source / name, folder / name)
    settings = json.loads((source / "tokenizer_config.json").read_text())
    settings["tokenizer_class"] = "CodedTokenizer"
    settings["auto_map"] = {"AutoTokenizer": [None, "tokenization_coded.CodedTokenizer"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenization_coded.py").write_text(TOKENIZER_CODE)


def main() -> None:
    """Write FOLDER/deepseek, FOLDER/llama and FOLDER/coded."""
    folder = Path(sys.argv[1])
    words = {f"w{i}": i for i in range(VOCABULARY)}
    special = {"unk_token": "w2", "bos_token": "w0", "eos_token": "w1"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="w2")), **special)
    for name, build in (("deepseek", deepseek), ("llama", llama)):
        model = build()
        fill(model)
        model.to(torch.bfloat16).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    write_coded(folder / "deepseek", folder / "coded")


if __name__ == "__main__":
    main()
