"""A word-level tokenizer with Kimi's special tokens and chat template; it needs no remote code."""

from __future__ import annotations

from typing import Any

from draftkiln.target.language import IDS, SPECIAL, TOKENS

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- set role = message['role'] -%}"
    "{%- if role == 'assistant' -%}"
    "{{- '<|im_assistant|>assistant<|im_middle|>' -}}"
    "{%- generation -%}{{- message['content'] -}}{{- '<|im_end|>' -}}{%- endgeneration -%}"
    "{%- else -%}"
    "{{- '<|im_' ~ role ~ '|>' ~ role ~ '<|im_middle|>' -}}"
    "{%- if message['content'] is string -%}{{- message['content'] -}}"
    "{%- else -%}"
    "{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'text' -%}{{- part['text'] -}}"
    "{%- else -%}{{- '<|media_begin|>image<|media_content|><|media_pad|><|media_end|>' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- endif -%}"
    "{{- '<|im_end|>' -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_assistant|>assistant<|im_middle|>' -}}{%- endif -%}"
)


def tokenizer() -> dict[str, Any]:
    """tokenizer.json: words split at white space and joined by one space."""
    added = [
        {
            "id": IDS[token],
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token in SPECIAL
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {token: index for index, token in enumerate(TOKENS)},
            "unk_token": "[UNK]",
        },
    }


def tokenizer_config() -> dict[str, Any]:
    """tokenizer_config.json."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "[BOS]",
        "eos_token": "<|im_end|>",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "additional_special_tokens": [token for token in SPECIAL if token.startswith("<|")],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 8192,
        "chat_template": CHAT_TEMPLATE,
    }
