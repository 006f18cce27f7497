"""What a draft's folder holds, read without torch: its config and the headers of its weights, in either layout."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import TrainingError
from draftkiln.export import check, layout
from draftkiln.extract import samples
from draftkiln.rundir import read_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SPECULATORS, HUGGING_FACE, UNKNOWN = "speculators (vLLM)", "Hugging Face layout (SGLang)", "unknown"
_HF_ARCHITECTURES = {"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"}
MLA = {"Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM"}
"""Drafts with multi-head latent attention, which this project neither trains nor checks."""
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth")
_POINTER = b"version https://git-lfs"
_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "I16": 2, "U16": 2,
          "F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1, "BOOL": 1}  # fmt: skip
_LARGEST_SIZE = 1 << 31
_MAPS = {layout.D2T, layout.T2D}


@dataclass(frozen=True)
class Draft:
    """A draft's folder, read.

    Attributes:
        folder: where it lies.
        config: its config.json; an empty one where that cannot be read.
        tensors: shapes and types by name, of all files.
        files: bytes of each file of weights.
        problems: what is wrong with it.
        unloadable: those of them that keep an engine from loading its weights.
    """

    folder: Path
    config: dict[str, Any]
    tensors: check.Header
    files: dict[str, int]
    problems: tuple[str, ...]
    unloadable: tuple[str, ...]

    @property
    def architecture(self) -> str:
        """Class that serves it."""
        named = self.config.get("architectures")
        return str(named[0]) if isinstance(named, list) and named else "not written"

    @property
    def format(self) -> str:
        """SPECULATORS, HUGGING_FACE or UNKNOWN."""
        return format_of(self.config, self.tensors)

    @property
    def layer(self) -> Mapping[str, Any]:
        """The part of the config that describes the decoder layer."""
        nested = self.config.get("transformer_layer_config")
        return nested if isinstance(nested, dict) else self.config

    @property
    def parameters(self) -> int:
        """Numbers in all tensors but the vocabulary maps."""
        return sum(math.prod(shape) for name, (shape, _) in self.tensors.items() if name not in _MAPS)

    @property
    def aux_ids(self) -> list[int] | None:
        """The layer ids as the config writes them."""
        nested = self.config.get("eagle_config")
        places = (self.config, nested if isinstance(nested, dict) else {})
        found = next(
            (place[key] for place in places for key in ("eagle_aux_hidden_state_layer_ids",) if place.get(key)), None
        )
        return list(found) if isinstance(found, list) else None

    @property
    def target(self) -> str | None:
        """The target's name, where the config writes it."""
        written = self.config.get("speculators_config")
        verifier = written.get("verifier") if isinstance(written, dict) else None
        return verifier.get("name_or_path") if isinstance(verifier, dict) else None


def read(folder: Path) -> Draft:
    """Read a draft's folder; what is wrong with it is in its problems.

    Raises:
        TrainingError: it is no folder.
    """
    if not folder.is_dir():
        raise TrainingError(
            f"{folder} is no draft",
            why="it is a file" if folder.exists() else "nothing has that name",
            fix="name a folder with a config.json and safetensors",
        )
    if (folder / "run.json").is_file():
        raise TrainingError(
            f"{folder} is no draft", why="it is a run directory", fix=f"name {folder / 'export' / 'vllm'}, its draft"
        )
    problems: list[str] = []
    config = _config(folder, problems)
    unloadable: list[str] = []
    tensors, files = _weights(folder, unloadable)
    if config is not None and tensors:
        unloadable += _misfits(config, tensors)
        problems += _fit(config, tensors)
    return Draft(folder, config or {}, tensors, files, (*problems, *unloadable), tuple(unloadable))


def file_problems(folder: Path) -> list[str]:
    """What keeps the weights of a draft's folder from being read at all, whatever tensors they are."""
    problems: list[str] = []
    _weights(folder, problems)
    return problems


def format_of(config: Mapping[str, Any], tensors: check.Header) -> str:
    """Which of the two layouts config and tensor names are of."""
    if config.get("speculators_model_type") or config.get("speculators_config"):
        return SPECULATORS
    named = config.get("architectures")
    architectures = set(named) if isinstance(named, list) and all(isinstance(one, str) for one in named) else set()
    if architectures & (_HF_ARCHITECTURES | MLA) or "eagle_config" in config:
        return HUGGING_FACE
    return HUGGING_FACE if any(name.startswith(layout.SGLANG_LAYER) for name in tensors) else UNKNOWN


def _config(folder: Path, problems: list[str]) -> dict[str, Any] | None:
    file = folder / "config.json"
    if not file.is_file():
        problems.append("config.json is not there")
        return None
    try:
        return read_json(file)
    except Exception as error:  # noqa: BLE001 - a broken file must not keep the rest from being told
        problems.append(f"config.json cannot be read: {getattr(error, 'why', error)}")
        return None


def _weights(folder: Path, problems: list[str]) -> tuple[check.Header, dict[str, int]]:
    found: check.Header = {}
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        try:
            raw = samples.header(file)
            problems += (f"{file.name}: {text}" for text in _entry_problems(raw))
            header = check.header(raw)
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            problems.append(f"{file.name} cannot be read: {_reason(file, error)}")
            continue
        problems += [f"tensor {name} is in {file.name} and in another file" for name in header.keys() & found.keys()]
        found |= header
    if not files:
        pickles = [file.name for pattern in _PICKLES for file in sorted(folder.glob(pattern))]
        more = f"; {', '.join(pickles)} is a pickle, which could run code and is not opened" if pickles else ""
        problems.append(f"there is no .safetensors file{more}")
    problems += _index_problems(folder, {file.name for file in files})
    return found, {file.name: file.stat().st_size for file in files}


def _entry_problems(raw: Mapping[str, Any]) -> Iterator[str]:
    """Tensors whose bytes are not those of their shape and type.

    Raises:
        ValueError: a shape holds something else than counts.
    """
    for name, entry in raw.items():
        if not all(type(extent) is int and extent >= 0 for extent in entry["shape"]):
            raise ValueError(f"the shape of {name} is {entry['shape']}")
        (begin, end), size = entry["data_offsets"], _BYTES.get(entry["dtype"])
        wanted = math.prod(entry["shape"]) * size if size is not None else end - begin
        if end - begin != wanted:
            yield f"tensor {name} has {end - begin} bytes, its shape and type need {wanted}"


def _reason(file: Path, error: Exception) -> str:
    try:
        with file.open("rb") as opened:
            if opened.read(len(_POINTER)) == _POINTER:
                return "it is a Git LFS pointer, the weights were not fetched"
    except OSError:
        pass
    return str(error) if isinstance(error, ValueError | OSError) else f"an entry of its header is broken ({error!r})"


def _index_problems(folder: Path, there: set[str]) -> Iterator[str]:
    index = folder / _INDEX
    if not index.is_file():
        return
    try:
        wanted = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        yield f"{_INDEX} cannot be read: {error!r}"
        return
    yield from (f"{name}, named by {_INDEX}, is not there" for name in sorted(set(wanted) - there))


def _misfits(config: Mapping[str, Any], tensors: check.Header) -> Iterator[str]:
    """Tensors that are not those of the config; nothing where that does not say what they are."""
    kind = format_of(config, tensors)
    if kind == UNKNOWN or _is_mla(config):
        return
    sglang = kind == HUGGING_FACE
    with contextlib.suppress(TrainingError, TypeError, AttributeError):
        sizes = layout.Sizes.of(_nested(config) if sglang else config)
        if all(map(_is_size, asdict(sizes).values())):
            yield from check.tensor_problems(tensors, sizes, sglang=sglang)


def _is_mla(config: Mapping[str, Any]) -> bool:
    named = config.get("architectures")
    return isinstance(named, list) and bool(MLA & {str(one) for one in named})


def _fit(config: Mapping[str, Any], tensors: check.Header) -> Iterator[str]:
    """What is wrong with the config, by itself and as that of these tensors."""
    kind = format_of(config, tensors)
    if kind == UNKNOWN:
        yield "config.json is that of no EAGLE-3 draft: it has no speculators_model_type and no EAGLE-3 architecture"
        return
    if _is_mla(config):
        yield "its attention is MLA's: this project neither trains nor checks such drafts yet"
        return
    sglang = kind == HUGGING_FACE
    try:
        sizes = layout.Sizes.of(_nested(config) if sglang else config)
    except TrainingError as error:
        yield error.what
    except (TypeError, AttributeError):
        yield "config.json: transformer_layer_config is no object"
    else:
        wrong = [f"{name} is {value!r}" for name, value in asdict(sizes).items() if not _is_size(value)]
        yield from (f"config.json: {text}, which is no size" for text in wrong)
    if sglang:
        yield from _flag_problems(config)
    elif isinstance(config.get("transformer_layer_config"), dict):
        if not config.get("eagle_aux_hidden_state_layer_ids"):
            yield "eagle_aux_hidden_state_layer_ids is not written: vLLM takes its own, whatever it was trained on"
        off = dict.fromkeys(layout.OFF_FLAGS, False)  # what vLLM takes where nothing is written
        yield from check.config_problems({**off, **config})


def _nested(config: Mapping[str, Any]) -> dict[str, Any]:
    """A flat config in speculators' form, with what its loaders take where nothing is written."""
    layer = dict(config)
    heads, hidden = layer.get("num_attention_heads"), layer.get("hidden_size")
    if layer.get("head_dim") is None and _is_size(heads) and _is_size(hidden):
        layer["head_dim"] = layer["hidden_size"] // layer["num_attention_heads"]
    layer.setdefault("num_key_value_heads", heads)
    draft_vocab = config.get("draft_vocab_size") or config.get("vocab_size")
    return {"transformer_layer_config": layer, "draft_vocab_size": draft_vocab}


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LARGEST_SIZE


def _flag_problems(config: Mapping[str, Any]) -> Iterator[str]:
    for flag in ("norm_before_residual", *layout.OFF_FLAGS):
        if config.get(flag):
            yield f"{flag} is {config[flag]!r}: SGLang's Llama drafts know no such flag and would be served without it"
