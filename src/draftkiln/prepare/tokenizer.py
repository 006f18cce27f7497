"""The target's tokenizer: loaded as the recipe allows, its special tokens checked, its files hashed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "tiktoken.model",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
_GENERIC = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""The class that wraps a tokenizer.json, as transformers 4 and 5 name it."""
_NO_LIMIT = int(1e30)
_SPECIMEN = "How  are\tyou?\n\n 12345 don't_know, naïve 你好"
"""A text on which tokenizers differ that split words, digits, spaces or scripts in other ways."""


def close_stdin() -> None:
    """Let nothing that runs here ask a question: reading stdin gives the end of file."""
    handle = os.open(os.devnull, os.O_RDONLY)
    os.dup2(handle, 0)
    os.close(handle)
    sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - open for as long as the process runs


def load(folder: Path, *, trust_remote_code: bool) -> Any:
    """Load the tokenizer of a model directory, never asking and never downloading.

    Raises:
        TargetError: there is none, it needs Python files of the model directory that the recipe does not allow, or it
            fails while it loads.
    """
    if not folder.is_dir():
        raise TargetError(
            f"{folder}: no such target", why="the directory does not exist", fix="make or fetch the target first"
        )
    import transformers

    transformers.logging.set_verbosity_error()
    try:
        if _is_generic(folder):
            tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                str(folder), trust_remote_code=trust_remote_code, local_files_only=True
            )
            _refuse_other_than_file(folder, tokenizer)
    except TargetError:
        raise
    except Exception as error:  # remote code fails in any way it likes
        raise _not_loaded(folder, error, trust_remote_code=trust_remote_code) from error
    tokenizer.model_max_length = _NO_LIMIT
    return tokenizer


def _refuse_other_than_file(folder: Path, tokenizer: Any) -> None:
    """Hold a tokenizer that transformers builds from tokenizer.json by its class to that file.

    Raises:
        TargetError: it gives other ids, as transformers 5 does with DeepSeek-V3's file where config.json names another
            model.
    """
    file = folder / "tokenizer.json"
    if not (getattr(tokenizer, "is_fast", False) and file.is_file()):
        return
    from tokenizers import Tokenizer

    written = Tokenizer.from_file(str(file))
    written.no_padding()
    written.no_truncation()
    wanted = written.encode(_SPECIMEN, add_special_tokens=False).ids
    if tokenizer(_SPECIMEN, add_special_tokens=False)["input_ids"] != wanted:
        raise TargetError(
            f"{folder}: {type(tokenizer).__name__} gives other token ids than the target's tokenizer.json",
            why="transformers builds the tokenizer anew for the class that tokenizer_config.json names",
            fix="give config.json its model_type, or let tokenizer_class be PreTrainedTokenizerFast, the file as it is",
        )


def check_single_tokens(tokenizer: Any, wanted: Mapping[str, int | None]) -> None:
    """Hold the tokenizer to the special tokens that the recipe names.

    Raises:
        TargetError: a text splits into several tokens, or has another id than the recipe says; all of them are named.
    """
    found = []
    for text, number in wanted.items():
        ids = tokenizer.encode(text, add_special_tokens=False)
        if len(ids) != 1:
            found.append(f"{text} splits into {[tokenizer.decode([piece]) for piece in ids]}")
        elif number is not None and ids[0] != number:
            found.append(f"{text} is id {ids[0]}, the recipe says {number}")
    if found:
        raise TargetError(
            f"{type(tokenizer).__name__}: target.must_be_single_token does not hold",
            why="; ".join(found),
            fix="use the model revision and the transformers version that the recipe was made for, or mend the recipe",
        )


def hashes(folder: Path) -> dict[str, str]:
    """Sha256 of each file that decides how text becomes tokens, Python files included."""
    files = [folder / name for name in FILES] + sorted(folder.glob("*.py"))
    return {file.name: durable.sha256_file(file) for file in files if file.is_file()}


def content_hash(path: Path) -> str | None:
    """Sha256 of a file, or of the names and contents of a folder's files; None where nothing is."""
    if path.is_file():
        return durable.sha256_file(path)
    if not path.is_dir():
        return None
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return durable.sha256_json({str(file.relative_to(path)): durable.sha256_file(file) for file in files})


def _not_loaded(folder: Path, error: Exception, *, trust_remote_code: bool) -> TargetError:
    import transformers

    reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
    if not trust_remote_code and "trust_remote_code" in str(error):
        return TargetError(
            f"{folder}: the tokenizer needs Python files of the model directory",
            why="the recipe does not allow them (target.trust_remote_code is false)",
            fix="read those files, then set `trust_remote_code: true` under `target`",
        )
    named = _class_named(folder)
    return TargetError(
        f"{folder}: the tokenizer {named} cannot be loaded with transformers {transformers.__version__}",
        why=reason,
        fix="check that the directory holds the tokenizer's files; remote code may need another transformers version "
        "or a later revision of the model",
    )


def _is_generic(folder: Path) -> bool:
    """Whether tokenizer.json is all there is to the tokenizer: its class is the generic one and brings no code.

    `AutoTokenizer` ends at the same class, after importing torch and the generation code: 23 s of CPU time against 3 s.
    """
    return (
        (folder / "tokenizer.json").is_file()
        and _config(folder).get("tokenizer_class") in _GENERIC
        and "auto_map" not in _config(folder)
    )


def _class_named(folder: Path) -> str:
    return str(_config(folder).get("tokenizer_class") or "(class not named)")


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
