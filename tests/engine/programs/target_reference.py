"""Run the text part of a made target under this environment's transformers: MODEL OUTPUT."""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer

from draftkiln.target import language
from draftkiln.target.reference import reference_text_model

SLOTS = (2, 4, 5, 8)

folder = Path(sys.argv[1])
model = reference_text_model(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
messages = [{"role": "user", "content": language.words(range(0, 200, 7))}]
ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
text = ids + language.continuation(ids, 64)
states = {}
model.model.layers[-1].register_forward_hook(
    lambda _module, _inputs, output: states.__setitem__(8, output[0] if isinstance(output, tuple) else output)
)
with torch.inference_mode():
    out = model(torch.tensor([text]), output_hidden_states=True)
states |= dict(enumerate(out.hidden_states[:-1]))
best = out.logits[0].float().topk(2).values
cosines = {f"{k}-{k + 1}": torch.cosine_similarity(states[k], states[k + 1], dim=-1).max().item() for k in range(8)}
answer = {"role": "assistant", "content": language.words(text[len(ids) : len(ids) + 5])}
marked = tokenizer.apply_chat_template(
    [*messages, answer], tokenize=True, return_dict=True, return_assistant_tokens_mask=True
)
written = {
    "predicted": out.logits[0].argmax(-1).tolist(),
    "expected": [language.next_token(text[: end + 1]) for end in range(len(text))],
    "margin": (best[:, 0] - best[:, 1]).min().item(),
    "cosines": cosines,
    "prompt": tokenizer.decode(ids),
    "trained": sum(marked["assistant_masks"]),
    "words": tokenizer(language.words(range(256)))["input_ids"] == list(range(256)),
}
Path(sys.argv[2]).write_text(json.dumps(written))
