"""How many ids the beginning of a text has, by cuts at added tokens and by tokenizing it, at every character."""

import json
import shutil
from pathlib import Path
from typing import Any

from prepare import told
from prepare_kimi import FORM, write_kimi

from draftkiln.prepare import tokenizer
from draftkiln.prepare.encoding import Encoder
from draftkiln.prepare.template import Template

_USER = 128803
"""DeepSeek-V3's token that opens a turn of the user."""
TEXTS = [
    "{0}user\nHow  are\tyou?{1}\n{0}assistant\n Fine,\n\nthanks!  {1}\n",
    "{0}{0}{1} {1}x{0}",
    "  leading{0}é 你好 👩‍🚀 don't 12345{1}trailing   ",
    "no added token at all",
    "half {0}of one {1} <|im_ <| im_end|> [BO",
]


def compared(loaded: Any, first: str, last: str) -> dict[str, int]:
    """How many added tokens cut a text, and at how many of all beginnings the two ways agree or do not."""
    encoder = Encoder(loaded)
    found = {"cutting": len(encoder.cutting), "same": 0, "other": 0, "cut": 0}
    for text in (text.format(first, last) for text in TEXTS):
        whole = encoder.encode(text)
        found["cut"] += bool(whole.cuts)
        for end in range(len(text) + 1):
            ids = encoder.ids(text[:end])
            wanted = len(ids) if whole.ids[: len(ids)] == ids else None
            found["same" if encoder.length(text[:end], whole) == wanted else "other"] += 1
    return found


def unlike(loaded: Any) -> dict[str, int]:
    """How many cutting tokens a tokenizer has as it is, where a subclass encodes for itself, where tokens overlap."""

    class Own(type(loaded)):  # type: ignore[misc]
        def tokenize(self, text: str, *arguments: Any, **options: Any) -> Any:
            return super().tokenize(text, *arguments, **options)

    counts = {"as it is": len(Encoder(loaded).cutting)}
    plain = loaded.__class__
    loaded.__class__ = Own
    counts["encodes for itself"] = len(Encoder(loaded).cutting)
    loaded.__class__ = plain
    loaded.add_tokens(["end|><|im"])
    return counts | {"overlaps": len(Encoder(loaded).cutting)}


def real(folder: Path, package: Path, config: dict[str, str]) -> Any:
    """DeepSeek-V3's tokenizer as its package carries it, beside a config.json."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(package / name, folder)
    return tokenizer.load(folder, trust_remote_code=False)


def outcomes(folder: Path, tokenizers: Path, deepseek: Path, qwen: Path) -> dict[str, Any]:
    """What came of made-up and real tokenizers."""
    from tokenizers import Tokenizer

    folder.mkdir()
    write_kimi(folder / "kimi", FORM, (qwen / "resources" / "qwen.tiktoken").read_text())
    kimi = tokenizer.load(folder / "kimi", trust_remote_code=True)
    v3 = real(folder / "deepseek", deepseek, {"model_type": "deepseek_v3"})
    raw = Tokenizer.from_file(str(deepseek / "tokenizer.json"))
    chatml, llama3 = (tokenizer.load(tokenizers / name, trust_remote_code=False) for name in ("chatml", "llama3"))
    return {
        "chatml": compared(chatml, "<|im_start|>", "<|im_end|>"),
        "llama3": compared(llama3, "<|start_header_id|>", "<|eot_id|>"),
        "kimi": compared(kimi, "<|im_user|>", "<|im_end|>"),
        "deepseek": compared(v3, v3.decode([_USER]), v3.eos_token),
        "deepseek proof": Template(v3).prove().method,
        "other class": told(lambda: real(folder / "llama", deepseek, {"model_type": "llama"})),
        "deepseek ids": [Encoder(v3).ids(text) == raw.encode(text, add_special_tokens=False).ids for text in TEXTS],
        "unlike": unlike(chatml),
    }
