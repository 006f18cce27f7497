"""Kimi-K2.5's kind of tokenizer and template: slow, over tiktoken, without offsets, with thinking on and off.

Its own template is in no package, so this one is ours, in the documented form: a default system turn is left out, every
answer up to the last one that calls no tool is history, whose reasoning becomes an empty block, and the prompt opens a
block, or closes it at once where `thinking` is false.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prepare import BLOCKS, told

from draftkiln.prepare import proof, tokenizer
from draftkiln.prepare.forms import Rules, parse
from draftkiln.prepare.outcome import Refusal
from draftkiln.prepare.samples import Limits, Renderer
from draftkiln.prepare.template import Template

KIMI_SPECIAL = {
    "[BOS]": 163584, "[EOS]": 163585, "<|im_end|>": 163586, "<|im_user|>": 163587, "<|im_assistant|>": 163588,
    "<|im_system|>": 163594, "<|tool_calls_section_begin|>": 163595,
    "<|tool_calls_section_end|>": 163596, "<|tool_call_begin|>": 163597, "<|tool_call_argument_begin|>": 163598,
    "<|tool_call_end|>": 163599, "<|im_middle|>": 163601, "<think>": 163606, "</think>": 163607, "[PAD]": 163839,
}  # fmt: skip
KIMI_CODE = '''
import base64, json, os
import tiktoken
from transformers import PreTrainedTokenizer

class TikTokenTokenizer(PreTrainedTokenizer):
    """Ranks of tiktoken behind a slow tokenizer without offsets, as Kimi's is; special tokens far above the ranks."""
    vocab_files_names = {"vocab_file": "tiktoken.model"}
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file, added_tokens_decoder=None, **options):
        with open(vocab_file) as file:
            ranks = {base64.b64decode(text): int(rank) for text, rank in (line.split() for line in file)}
        self.special = {token.content: number for number, token in added_tokens_decoder.items()}
        pattern = r"""[A-Za-z]+| ?[^\\s\\w]+|\\s+|\\w"""
        self.model = tiktoken.Encoding("made", pat_str=pattern, mergeable_ranks=ranks, special_tokens=self.special)
        super().__init__(added_tokens_decoder=added_tokens_decoder, **options)

    @property
    def vocab_size(self):
        return self.model.n_vocab

    def get_vocab(self):
        return {str(number): number for number in range(256)} | self.special

    def _tokenize(self, text, **options):
        return [str(number) for number in self.model.encode(text, disallowed_special=())]

    def _convert_token_to_id(self, token):
        return self.special[token] if token in self.special else int(token)

    def _convert_id_to_token(self, number):
        return str(number)

    def convert_tokens_to_string(self, tokens):
        return self.model.decode([self._convert_token_to_id(token) for token in tokens])

    def save_vocabulary(self, folder, filename_prefix=None):
        return ()
'''
FORM = (
    "{%- set ns = namespace(last=-1) -%}"
    "{%- for m in messages -%}{%- if m.role == 'assistant' and not m.tool_calls -%}"
    "{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}"
    "{%- if tools -%}<|im_system|>tool_declare<|im_middle|>{{ tools | tojson }}<|im_end|>{%- endif -%}"
    "{%- for m in messages -%}"
    "{%- if m.role == 'assistant' -%}<|im_assistant|>assistant<|im_middle|>"
    "{%- if loop.index0 <= ns.last or thinking is false -%}<think></think>"
    "{%- else -%}<think>{{ m.reasoning_content or '' }}</think>{%- endif -%}{{ m.content or '' }}"
    "{%- if m.tool_calls -%}<|tool_calls_section_begin|>{%- for call in m.tool_calls -%}"
    "<|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>{{ call.function.arguments | tojson }}"
    "<|tool_call_end|>"
    "{%- endfor -%}<|tool_calls_section_end|>{%- endif -%}"
    "{%- elif m.role == 'tool' -%}<|im_system|>tool<|im_middle|>## Return of {{ m.tool_call_id }}\n{{ m.content }}"
    "{%- else -%}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>{{ m.content }}{%- endif -%}"
    "<|im_end|>{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|><think>"
    "{%- if thinking is false -%}</think>{%- endif -%}{%- endif -%}"
)
WRITES_REASONING = BLOCKS.replace("<think></think>", "<think>{{ m.reasoning_content }}</think>")
"""Another template that gives each answer its reasoning."""
ASKED, ANSWER = {"role": "user", "content": "Is this it?"}, {"role": "assistant", "content": "Yes, this is é."}
CALLED = [
    {"role": "user", "content": "Sun?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "x7", "name": "weather", "arguments": {"in": "Rome"}}],
    },
    {"role": "tool", "content": "sunny", "tool_call_id": "x7"},
    {"role": "assistant", "content": "Sunny."},
]


def runs(template: Template, sample: Any) -> list[list[Any]]:
    """Texts of a sample that are trained or not, in turn."""
    found: list[list[Any]] = []
    for number, bit in zip(sample.input_ids, sample.loss_mask, strict=True):
        if found and found[-1][1] == bool(bit):
            found[-1][0].append(number)
        else:
            found.append([[number], bool(bit)])
    return [[template.tokenizer.decode(ids, spaces_between_special_tokens=False), bit] for ids, bit in found]


def write_kimi(folder: Path, template: str, ranks: str | None = None) -> None:
    """Write a tokenizer of Kimi-K2.5's kind, its special tokens at their ids; with `ranks`, or a few of our own."""
    folder.mkdir(parents=True)
    (folder / "tokenization_kimi.py").write_text(KIMI_CODE)
    texts = [bytes([number]) for number in range(256)] + [b"th", b"is", b"th" + b"is"]
    lines = (f"{base64.b64encode(text).decode()} {rank}" for rank, text in enumerate(texts))
    (folder / "tiktoken.model").write_text(ranks or "\n".join(lines))
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    added = {str(number): {"content": text, "special": True, **flags} for text, number in KIMI_SPECIAL.items()}
    config = {
        "tokenizer_class": "TikTokenTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
        "chat_template": template,
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "pad_token": "[PAD]",
        "added_tokens_decoder": added,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))


def rendered(loaded: Any, messages: Sequence[Any], **arguments: Any) -> Any:
    """Pieces of a conversation, each with whether it is trained; the reason where it is refused."""
    template = Template(loaded, arguments)
    made = Renderer(template, Limits(512)).render(parse("x:1", {"messages": list(messages)}, Rules()))
    return [made.reason, made.detail] if isinstance(made, Refusal) else runs(template, made.parts[0])


def outcomes(folder: Path) -> dict[str, Any]:
    """Samples with Kimi's kind of tokenizer."""
    write_kimi(folder / "form", FORM)
    write_kimi(folder / "writes", WRITES_REASONING)
    loaded, writes = (tokenizer.load(folder / name, trust_remote_code=True) for name in ("form", "writes"))
    tokenizer.check_single_tokens(loaded, {text: number for text, number in KIMI_SPECIAL.items() if text != "[PAD]"})
    off, on = Template(loaded, {"thinking": False}), Template(loaded)
    proof.check_prompt(on)
    thought = ANSWER | {"reasoning_content": "because so"}
    return {
        "class": type(loaded).__name__,
        "fast": loaded.is_fast,
        "off proof": off.prove().method,
        "on proof": told(on.prove),
        "on prompt": on.text([ASKED], generation_prompt=True),
        "off": rendered(loaded, [ASKED, thought, ASKED, thought], thinking=False),
        "tools": rendered(loaded, CALLED, thinking=False),
        "reasoning proof": Template(writes).prove().method,
        "reasoning": rendered(writes, [ASKED, thought]),
    }
