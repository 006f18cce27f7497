"""A tokenizer of words, white space and special tokens, with chat templates written in Python."""

import itertools
import re
from types import SimpleNamespace

_PIECES = re.compile(r"<\|[a-z_]+\|>|</?think>|\[[A-Z]+\]|\w+|\s|[^\w\s]")


class TemplateError(Exception):
    """What jinja raises: derived straight from Exception."""


def chatml(messages, *, add_generation_prompt):
    text = "".join(f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in messages)
    return text + ("<|im_start|>assistant\n" if add_generation_prompt else "")


def llama3(messages, *, add_generation_prompt):
    head = "<|start_header_id|>{}<|end_header_id|>\n\n"
    text = "[BOS]" + "".join(head.format(turn["role"]) + turn["content"] + "<|eot_id|>" for turn in messages)
    return text + (head.format("assistant") if add_generation_prompt else "")


def kimi(messages, *, add_generation_prompt, thinking=True):
    def turn_text(turn):
        body = turn["content"]
        if turn["role"] == "assistant":
            body = f"<think>{turn.get('reasoning_content', '')}</think>{body}"
        return f"<|im_{turn['role']}|>{turn['role']}<|im_middle|>{body}<|im_end|>"

    tail = "<|im_assistant|>assistant<|im_middle|>" + ("<think>" if thinking else "<think></think>")
    return "".join(map(turn_text, messages)) + (tail if add_generation_prompt else "")


def qwen(messages, *, add_generation_prompt, enable_thinking=True):
    """Reasoning of earlier answers is left out; the last answer always gets a block; no-think closes it at once."""
    last_user = max((place for place, turn in enumerate(messages) if turn["role"] == "user"), default=-1)
    text = ""
    for place, turn in enumerate(messages):
        content = turn["content"]
        if turn["role"] == "assistant":
            reasoning = turn.get("reasoning_content", "")
            if not reasoning and "</think>" in content:
                before, _, content = content.partition("</think>")
                reasoning = before.split("<think>")[-1].strip()
                content = content.lstrip("\n")
            if place > last_user:
                content = f"<think>\n{reasoning}\n</think>\n\n{content}"
        text += f"<|im_start|>{turn['role']}\n{content}<|im_end|>\n"
    if add_generation_prompt:
        text += "<|im_start|>assistant\n" + ("" if enable_thinking else "<think>\n\n</think>\n\n")
    return text


def strict(messages, *, add_generation_prompt):
    for before, after in itertools.pairwise(messages):
        if before["role"] == after["role"]:
            raise TemplateError("Conversation roles must alternate user/assistant/user/assistant/...")
    return chatml(messages, add_generation_prompt=add_generation_prompt)


class Tokenizer:
    """As much of transformers' tokenizer as `Template` uses."""

    is_fast = False
    chat_template = "in Python"
    bos_token_id = None

    def __init__(self, template=chatml, *, specials=(), bos=None, split=()):
        self.template = template
        self.pieces: dict[str, int] = {}
        names = ("<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|im_middle|>", "[BOS]", *specials)
        self.all_special_ids = [self._id(name) for name in names]
        self.added_tokens_decoder = {number: SimpleNamespace(special=True) for number in self.all_special_ids}
        self.bos_token_id = self._id(bos) if bos else None
        self.split = split

    def _id(self, piece):
        return self.pieces.setdefault(piece, len(self.pieces))

    def encode(self, text, **_options):
        pieces = _PIECES.findall(text)
        return [self._id(part) for piece in pieces for part in (list(piece) if piece in self.split else [piece])]

    def __call__(self, text, **_options):
        return {"input_ids": self.encode(text)}

    def decode(self, ids):
        names = list(self.pieces)
        return "".join(names[number] for number in ids)

    def get_vocab(self):
        return dict(self.pieces)

    def apply_chat_template(self, messages, *, tokenize=True, add_generation_prompt=False, **arguments):
        arguments.pop("return_dict", None)
        text = self.template(messages, add_generation_prompt=add_generation_prompt, **arguments)
        return {"input_ids": self.encode(text)} if tokenize else text
