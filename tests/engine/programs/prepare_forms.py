"""Checked templates, a tokenizer of tiktoken's kind and every container, with the real libraries.

Run by a stack's Python: `prepare_forms.py FOLDER`. FOLDER receives the tokenizers, the files and `outcomes.json`.
"""

import base64
import contextlib
import datetime as dt
import json
import sys
from pathlib import Path
from typing import Any

from prepare import KIMI, told, write_fast

from draftkiln.prepare import output, pool, presets, rows, samples, tokenizer
from draftkiln.prepare.forms import Rules, parse
from draftkiln.prepare.outcome import Refusal, Sample
from draftkiln.prepare.rows import Source
from draftkiln.prepare.samples import Limits, Renderer
from draftkiln.prepare.template import Template, template_text

PRESETS = Path(__file__).parents[1] / "data" / "presets"
KIMI_SPECIAL = {
    "[BOS]": 163584, "[EOS]": 163585, "<|im_end|>": 163586, "<|im_user|>": 163587, "<|im_assistant|>": 163588,
    "<|im_system|>": 163594, "<|im_middle|>": 163601, "<think>": 163606, "</think>": 163607, "[PAD]": 163839,
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
# Keys in alphabetical order, as pyarrow infers a struct: templates write tools in the order that they are given.
TOOLS = [
    {
        "function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}, "type": "object"}},
        "type": "function",
    }
]
CALL = {"id": "c0", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Rome"}'}}
ROWS = [
    {
        "id": "1",
        "messages": [
            {"role": "user", "content": "How are you?"},
            {"role": "assistant", "content": "Fine.", "reasoning_content": "all is well"},
        ],
    },
    {
        "id": "2",
        "messages": [
            {"role": "user", "content": "Sun?"},
            {"role": "assistant", "content": None, "reasoning_content": "look it up", "tool_calls": [CALL]},
            {"role": "tool", "content": "sunny", "tool_call_id": "c0"},
            {"role": "assistant", "content": "Sunny.", "reasoning_content": "so"},
        ],
        "tools": TOOLS,
    },
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


def preset(folder: Path, name: str) -> dict[str, Any]:
    """What becomes of the conversations that were written out by hand for a template."""
    data = json.loads((PRESETS / f"{name}.json").read_text())
    text = (PRESETS / f"{name}.jinja").read_text()
    end = data["specials"][-1]
    write_fast(folder, text, bos=data["bos"], special=data["specials"], plain=data["added"], eos=end)
    loaded = tokenizer.load(folder, trust_remote_code=False)
    checked = presets.of(template_text(loaded))
    outcomes: dict[str, Any] = {"checked": checked.name if checked else None}
    for written in data["conversations"]:
        template = Template(loaded, written["arguments"])
        template.prove()
        row = parse("x:1", {"messages": written["messages"], "tools": written.get("tools")}, Rules())
        made = Renderer(template, Limits(4096)).render(row)
        today = dt.datetime.now().astimezone().date().isoformat()
        wanted = [[piece.replace("{today}", today), bit] for piece, bit in written["expected"]]
        if isinstance(made, Refusal):
            outcomes[written["name"]] = [made.reason, made.detail]
            continue
        (sample,) = made.parts
        whole = loaded("".join(piece for piece, _ in wanted), add_special_tokens=False)["input_ids"]
        got = runs(template, sample)
        outcomes[written["name"]] = "equal" if got == wanted and sample.input_ids == whole else [got, wanted]
    return outcomes


def write_kimi(folder: Path) -> None:
    """Write a tokenizer of Kimi-K2.5's kind: remote code over tiktoken, its special tokens at their ids."""
    folder.mkdir()
    (folder / "tokenization_kimi.py").write_text(KIMI_CODE)
    texts = [bytes([number]) for number in range(256)] + [b"th", b"is", b"th" + b"is"]
    lines = (f"{base64.b64encode(text).decode()} {rank}" for rank, text in enumerate(texts))
    (folder / "tiktoken.model").write_text("\n".join(lines))
    added = {
        str(number): {"content": text, "special": True, "lstrip": False, "rstrip": False, "normalized": False,
                      "single_word": False}
        for text, number in KIMI_SPECIAL.items()
    }  # fmt: skip
    config = {
        "tokenizer_class": "TikTokenTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
        "chat_template": KIMI.replace("<think></think>", "<think>{{ m.reasoning_content }}</think>"),
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "pad_token": "[PAD]",
        "added_tokens_decoder": added,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))


def kimi(folder: Path) -> dict[str, Any]:
    """Samples with Kimi's kind of tokenizer, thinking on and off."""
    write_kimi(folder)
    loaded = tokenizer.load(folder, trust_remote_code=True)
    tokenizer.check_single_tokens(loaded, {text: number for text, number in KIMI_SPECIAL.items() if text != "[PAD]"})
    answer = {"role": "assistant", "content": "Yes, this is é."}
    asked = {"role": "user", "content": "Is this it?"}
    outcomes: dict[str, Any] = {"class": type(loaded).__name__, "fast": loaded.is_fast}
    for name, thinking, reasoning in (("off", False, ""), ("on", True, "because so")):
        template = Template(loaded, {"thinking": thinking})
        outcomes[f"{name} proof"] = template.prove().method
        row = parse("x:1", {"messages": [asked, answer | {"reasoning_content": reasoning}]}, Rules())
        made = Renderer(template, Limits(512)).render(row)
        outcomes[name] = made.reason if isinstance(made, Refusal) else runs(template, made.parts[0])
    return outcomes


def write_containers(folder: Path) -> dict[str, Path]:
    """The same rows in every container."""
    import datasets
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    files = {name: folder / f"d.{name}" for name in ("jsonl", "json", "parquet")} | {"dataset": folder / "saved"}
    files["jsonl"].write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    files["json"].write_text(json.dumps(ROWS, indent=1))
    table = pa.Table.from_pylist([{"tools": None, **row} for row in ROWS])  # columns are those of the first row
    parquet.write_table(table, files["parquet"])
    datasets.Dataset(table).save_to_disk(str(files["dataset"]))
    return files


def prepared(folder: Path, template: Template, file: Path, workers: int) -> dict[str, Any]:
    """Prepare a file as the stage does."""
    with output.writing(folder) as outcome:
        for made in pool.render(Renderer(template, Limits(4096)), rows.read([Source(file)], Rules()), workers):
            samples.record(made, outcome)
        outcome.finish_refusals()
        digest = outcome.finish()
    lines = (folder / "sources.jsonl").read_text().splitlines()
    return {
        "sha256": digest,
        "left": sorted(path.name for path in folder.iterdir()),
        "sources": [json.loads(line)["source"].removeprefix(str(file)) for line in lines],
    }


def bad_files(folder: Path) -> dict[str, str]:
    """What is told about files that hold no rows."""
    (folder / "cut.parquet").write_bytes(b"PAR1")
    (folder / "text.parquet").write_text("{}")

    def read(name: str) -> str:
        text = told(lambda: list(rows.read([Source(folder / name)], Rules())))
        return text.replace(str(folder), "")

    return {name: read(name) for name in ("cut.parquet", "text.parquet", "none.parquet", "")}


def interrupted(folder: Path) -> list[str]:
    """What is left where the stage fails while it writes."""
    with contextlib.suppress(ZeroDivisionError), output.writing(folder) as outcome:
        outcome.add(Sample("d:1", [1, 2], [0, 1 // 0]))
    return sorted(path.name for path in folder.iterdir())


def main() -> None:
    """Write the outcomes."""
    tokenizer.close_stdin()
    folder = Path(sys.argv[1])
    outcomes: dict[str, Any] = {
        "presets": {name: preset(folder / name, name) for name in ("qwen3", "llama3", "gptoss")}
    }
    outcomes["kimi"] = kimi(folder / "kimi")
    template = Template(tokenizer.load(folder / "qwen3", trust_remote_code=False))
    files = write_containers(folder / "files")
    outcomes["containers"] = {
        name: prepared(folder / f"out-{name}", template, file, workers=1) for name, file in files.items()
    }
    outcomes["two workers"] = prepared(folder / "out-two", template, files["jsonl"], workers=2)
    outcomes["bad"] = bad_files(folder / "files")
    outcomes["interrupted"] = interrupted(folder / "out-interrupted")
    (folder / "outcomes.json").write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main()
