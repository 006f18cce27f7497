"""Tokenizers of the known kinds, written anew: their masks, their faults, and the dataset that is made with them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftkiln.errors import DraftkilnError
from draftkiln.prepare import output, synthetic, tokenizer
from draftkiln.prepare.conversation import Conversation
from draftkiln.prepare.outcome import Outcome, Sample
from draftkiln.prepare.samples import Limits, from_conversations
from draftkiln.prepare.template import Template
from draftkiln.recipe.model import SyntheticData

TURNS = ["How are you today?", "I am fine, thank you.", "What is new?", "Nothing much."]
TALK = tuple({"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(TURNS))

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}"
    "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
BLOCKS = (
    "{% for m in messages %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>"
    "{% if m.role == 'assistant' %}<think></think>{% endif %}{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|><think>"
    "{% if thinking is false %}</think>{% endif %}{% endif %}"
)
"""An empty block of reasoning before each answer, as Kimi-K2.5 writes one."""
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin|>"]
CODE = '''
import json, os, re
from transformers import PreTrainedTokenizer

SPECIAL = ["<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>", "<think>", "</think>", "[BOS]"]

class ToyTokenizer(PreTrainedTokenizer):
    """Characters and special tokens, without offsets, as Kimi's is."""
    vocab_files_names = {"vocab_file": "toy.json"}

    def __init__(self, vocab_file=None, **options):
        with open(vocab_file) as file:
            self.table = json.load(file)
        self.back = {number: text for text, number in self.table.items()}
        super().__init__(**options)

    @property
    def vocab_size(self):
        return len(self.table)

    def get_vocab(self):
        return dict(self.table)

    def _tokenize(self, text, **options):
        return list(text)

    def _convert_token_to_id(self, token):
        return self.table.get(token, 0)

    def _convert_id_to_token(self, number):
        return self.back[number]

    def convert_tokens_to_string(self, tokens):
        return "".join(tokens)

    def save_vocabulary(self, folder, filename_prefix=None):
        return ()
'''


def write_fast(
    folder: Path,
    template: str,
    *,
    bos: str | None = None,
    special: Sequence[str] = SPECIAL,
    plain: Sequence[str] = (),
    eos: str = "<|im_end|>",
) -> None:
    """Write a byte-level BPE tokenizer with merges, of the kind that tokenizer.json holds."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    words = " ".join(f"{first}{second}" for first in "bdfgklmnprst" for second in ("ab", "ed", "ing", "ot", "um"))
    core.train_from_iterator([*TURNS, words] * 20, trainer)
    core.add_special_tokens([AddedToken(text, special=True) for text in special])
    core.add_tokens([AddedToken(text, special=False, normalized=False) for text in plain])
    if bos:
        number = core.token_to_id(bos)
        core.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, number)])
    fast = PreTrainedTokenizerFast(tokenizer_object=core, bos_token=bos, eos_token=eos)
    fast.chat_template = template
    fast.save_pretrained(str(folder))


def write_coded(folder: Path, code: str) -> None:
    """Write a tokenizer that is a Python file of its directory."""
    folder.mkdir()
    (folder / "tokenization_toy.py").write_text(code)
    special = ["<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>", "<think>", "</think>", "[BOS]"]
    characters = [chr(number) for number in range(32, 127)] + ["\n"]
    (folder / "toy.json").write_text(json.dumps({text: number for number, text in enumerate([*characters, *special])}))
    config = {
        "tokenizer_class": "ToyTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_toy.ToyTokenizer", None]},
        "chat_template": BLOCKS,
        "eos_token": "<|im_end|>",
        "added_tokens_decoder": {
            str(len(characters) + place): {"content": text, "special": True, "lstrip": False, "rstrip": False,
                                           "normalized": False, "single_word": False}
            for place, text in enumerate(special)
        },
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))


def trained(template: Template) -> dict[str, Any]:
    """Proof and trained texts of the conversation."""
    proof = template.prove()
    rendered = template.render(TALK)
    runs, run = [], []
    for number, bit in zip([*rendered.input_ids, 0], [*rendered.loss_mask, 0], strict=True):
        if bit:
            run.append(number)
        elif run:
            runs.append(template.tokenizer.decode(run))
            run = []
    bos = template.tokenizer.bos_token_id
    return {
        "class": type(template.tokenizer).__name__,
        "method": proof.method,
        "end": proof.end_of_turn,
        "trained": runs,
        "bos": rendered.input_ids.count(bos) if bos is not None else 0,
        "untrained": rendered.untrained_answers,
    }


def same_as_auto(folder: Path) -> bool:
    """Whether the tokenizer is the one that AutoTokenizer gives."""
    from transformers import AutoTokenizer

    ours, theirs = tokenizer.load(folder, trust_remote_code=False), AutoTokenizer.from_pretrained(str(folder))
    return bool(
        type(ours) is type(theirs)
        and ours.get_vocab() == theirs.get_vocab()
        and ours.all_special_ids == theirs.all_special_ids
        and ours.bos_token_id == theirs.bos_token_id
        and Template(ours).ids(TALK) == Template(theirs).ids(TALK)
        and all(ours(text).input_ids == theirs(text).input_ids for text in TURNS)
    )


def told(action: Any) -> str:
    """Text of the error that `action` raises."""
    try:
        action()
    except DraftkilnError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def dataset(folder: Path, template: Template) -> dict[str, Any]:
    """Write samples as the stage does and read them as speculators' trainer does."""
    import datasets
    import torch

    outcome = Outcome()
    made = synthetic.conversations(template, SyntheticData(synthetic=3, seed=5), max_tokens=96)
    from_conversations([*made, Conversation("talk:1", TALK)], template, Limits(96), "template", outcome)
    digest = output.write_dataset(folder, outcome.samples)
    again = output.write_dataset(folder, outcome.samples)
    rows = datasets.load_from_disk(str(folder / "dataset"))
    return {
        "columns": sorted(rows.column_names),
        "lengths": [int(number) for number in rows.with_format(None)["seq_len"]],
        "types": sorted({str(rows[0][name].dtype) for name in ("input_ids", "loss_mask")}),
        "equal": all(
            torch.equal(rows[place]["input_ids"], torch.tensor(sample.input_ids))
            and torch.equal(rows[place]["loss_mask"], torch.tensor(sample.loss_mask))
            for place, sample in enumerate(outcome.samples)
        ),
        "same_again": digest == again,
        "other_mask": digest == output.write_dataset(folder, [flipped(outcome.samples[0]), *outcome.samples[1:]]),
        "left_over": sorted(path.name for path in folder.iterdir() if path.name.startswith(".")),
    }


def flipped(sample: Sample) -> Sample:
    """The sample with another mask."""
    return Sample(sample.source, sample.input_ids, [1 - bit for bit in sample.loss_mask])


def outcomes(folder: Path) -> dict[str, Any]:
    """What came of tokenizers of the known kinds."""
    folder.mkdir()
    write_fast(folder / "chatml", CHATML)
    write_fast(folder / "marked", MARKED)
    write_fast(folder / "llama3", LLAMA3, bos="<|begin|>")
    write_coded(folder / "kimi", CODE)
    write_coded(folder / "broken", "from transformers import no_such_helper\n" + CODE)

    def load(name: str, *, trust: bool = False) -> Any:
        return tokenizer.load(folder / name, trust_remote_code=trust)

    found: dict[str, Any] = {name: trained(Template(load(name))) for name in ("chatml", "marked", "llama3")}
    found["same_as_auto"] = [same_as_auto(folder / name) for name in ("chatml", "llama3")]
    found["kimi"] = trained(Template(load("kimi", trust=True), {"thinking": False}))
    found["kimi_thinking"] = told(lambda: trained(Template(load("kimi", trust=True))))
    found["not_trusted"] = told(lambda: load("kimi"))
    found["broken"] = told(lambda: load("broken", trust=True))
    found["split"] = told(lambda: tokenizer.check_single_tokens(load("chatml"), {"<|im_end|>": None, "<think>": None}))
    found["whole"] = told(lambda: tokenizer.check_single_tokens(load("kimi", trust=True), {"<think>": None}))
    (folder / "run").mkdir()
    found["dataset"] = dataset(folder / "run", Template(load("chatml")))
    return found
