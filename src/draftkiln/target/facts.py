"""What a target directory says about itself, read without any engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import ProblemsError, TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TEXT_PREFIX = "language_model."
"""Prefix of the text part's weights in wrappers such as Kimi-K2.5's checkpoints."""
_LONGEST_HEADER = 100_000_000
"""What safetensors itself allows."""
INDEX = "model.safetensors.index.json"
_NESTED = ("text_config", "language_config", "llm_config")
_FAST_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class TargetFacts:
    """Facts of a target; sizes are those of its text part."""

    path: Path
    architecture: str
    """Class that serves the whole model, such as `KimiK25ForConditionalGeneration`."""
    model_type: str
    num_layers: int
    hidden_size: int
    num_heads: int
    vocab_size: int
    dtype: str
    """Type of the weights, such as `bfloat16`."""
    max_positions: int
    quantization: str | None
    """Method of the checkpoint's quantization, such as `compressed-tensors`."""
    has_weights: bool
    weight_bytes: int
    tokenizer_needs_remote_code: bool
    model_needs_remote_code: bool
    """config.json maps a class to a Python file; engines that know the model type do without it."""


def text_config(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The text part's section of a config.json: a nested one where there is one, else the whole."""
    for key in _NESTED:
        if isinstance(raw.get(key), dict):
            nested: Mapping[str, Any] = raw[key]
            return nested
    return raw


def read(path: Path) -> TargetFacts:
    """Read the facts of the target directory `path`.

    Raises:
        TargetError: it is missing, or its config.json is missing, broken or incomplete.
    """
    if not path.is_dir():
        raise TargetError(
            f"target directory {path} is not there",
            why="it is a file" if path.exists() else "nothing has that name",
            fix="write the right path, or let a recipe make or fetch the target",
        )
    raw = _read_json(path / "config.json")
    text = text_config(raw)
    needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
    if wrong := [key for key in needed if not isinstance(text.get(key), int) or text[key] < 1]:
        where = "its text section" if text is not raw else "config.json"
        raise TargetError(
            f"{path / 'config.json'}: {where} has no usable {', '.join(wrong)}",
            why="every text model says its sizes there",
            fix="take the config.json that belongs to the weights",
        )
    dtypes = (text.get("dtype"), text.get("torch_dtype"), raw.get("dtype"), raw.get("torch_dtype"))
    quantization = text.get("quantization_config") or raw.get("quantization_config") or {}
    files = weight_files(path)
    return TargetFacts(
        path=path,
        architecture=str((raw.get("architectures") or ["unknown"])[0]),
        model_type=str(raw.get("model_type", "unknown")),
        num_layers=text["num_hidden_layers"],
        hidden_size=text["hidden_size"],
        num_heads=text["num_attention_heads"],
        vocab_size=text["vocab_size"],
        dtype=next((str(dtype) for dtype in dtypes if dtype), "unknown"),
        max_positions=int(text.get("max_position_embeddings") or 0),
        quantization=quantization.get("quant_method"),
        has_weights=bool(files) and all(file.is_file() for file in files),
        weight_bytes=sum(file.stat().st_size for file in files if file.is_file()),
        tokenizer_needs_remote_code=_tokenizer_needs_remote_code(path),
        model_needs_remote_code="AutoConfig" in (raw.get("auto_map") or {}),
    )


def weight_files(path: Path) -> list[Path]:
    """The safetensors files of a checkpoint, those of its index where it has one; they need not exist."""
    index = path / INDEX
    if index.is_file():
        names = _read_json(index).get("weight_map")
        if not isinstance(names, dict):
            raise TargetError(f"{index} has no weight_map", why="it is not an index of safetensors", fix="restore it")
        return [path / name for name in sorted(set(names.values()))]
    return sorted(path.glob("*.safetensors"))


def check(path: Path, *, trust_remote_code: bool, weights: bool = True) -> TargetFacts:
    """Facts of `path`, after refusing what no run can use; all problems at once.

    Args:
        path: the target directory.
        trust_remote_code: whether the recipe allows Python files of the directory to run.
        weights: whether the run needs weights (not with `load_format: dummy`).

    Raises:
        ProblemsError: of `TargetError`s: files of the checkpoint missing, no tokenizer, remote code not allowed.
        TargetError: the directory or its config.json cannot be read.
    """
    facts = read(path)
    problems: list[TargetError] = []
    if weights and not facts.has_weights:
        missing = [file.name for file in weight_files(path) if not file.is_file()]
        problems.append(
            TargetError(
                f"{path} has no complete weights",
                why=f"{len(missing)} files of {INDEX} are missing, such as {missing[0]}"
                if missing
                else "it holds no .safetensors file",
                fix="fetch the target again (`draftkiln fetch-target` resumes), or set target.load_format to dummy",
            )
        )
    elif weights:
        problems.extend(_cut(file) for file in weight_files(path) if not _whole(file))
    if not any((path / name).is_file() for name in (_FAST_TOKENIZER, "tokenizer_config.json", "tokenizer.model")):
        problems.append(
            TargetError(
                f"{path} has no tokenizer",
                why="neither tokenizer.json nor tokenizer_config.json is there",
                fix="copy the tokenizer's files beside the weights",
            )
        )
    if facts.tokenizer_needs_remote_code and not trust_remote_code:
        problems.append(
            TargetError(
                f"{path}: its tokenizer is a Python file of the directory",
                why="target.trust_remote_code is false, and there is no tokenizer.json to do without that code",
                fix="read that file, then set target.trust_remote_code: true in the recipe",
            )
        )
    if problems:
        raise ProblemsError(problems)
    return facts


def _whole(file: Path) -> bool:
    """Whether a safetensors file has the size that its header tells; false where it has no such header."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if not 0 < length <= min(size, _LONGEST_HEADER):
            return False
        try:
            header = json.loads(opened.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return False
    return size == 8 + length + max(ends, default=0)


def _cut(file: Path) -> TargetError:
    return TargetError(
        f"{file} is not a whole safetensors file",
        why=f"it has {file.stat().st_size} bytes, not what its header says (a cut copy, or a pointer of git-lfs?)",
        fix="copy or fetch it again",
    )


def _tokenizer_needs_remote_code(path: Path) -> bool:
    file = path / "tokenizer_config.json"
    if not file.is_file():
        return False
    settings = _read_json(file)
    return "AutoTokenizer" in (settings.get("auto_map") or {}) and not (path / _FAST_TOKENIZER).is_file()


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = "it is not there" if isinstance(error, FileNotFoundError) else str(error)
        raise TargetError(f"cannot read {file}", why=why, fix="take the file that belongs to the weights") from error
    if not isinstance(value, dict):
        raise TargetError(f"cannot read {file}", why="it is not a JSON object", fix="restore it")
    return value
