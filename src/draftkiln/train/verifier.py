"""The target's frozen weights that the trainer needs: embeddings, head and final norm, found by name or refused.

speculators looks them up by suffix, takes the shortest match and falls back to ones and ties with a warning. Here the
names are settled first, and the trainer is given a folder whose index holds these names and nothing else.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import durable
from draftkiln.errors import ProblemsError, TargetError
from draftkiln.extract import samples
from draftkiln.target.facts import text_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

PREFIXES = ("", "language_model.", "model.language_model.", "language_model.model.")
"""Prefixes of the text part's weights, in the order in which they are tried (Kimi-K2.5: the second)."""
EMBEDDINGS, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
CONFIG, INDEX = "config.json", "model.safetensors.index.json"
SINGLE = "model.safetensors"
_NEAR = 3


@dataclass(frozen=True)
class TextWeights:
    """Names of the frozen weights in the target's checkpoint."""

    embeddings: str
    norm: str
    head: str | None
    """None: the head is tied to the embeddings."""

    @property
    def names(self) -> list[str]:
        """The names that are there."""
        return [name for name in (self.embeddings, self.norm, self.head) if name is not None]


def weight_map(target: Path) -> dict[str, str]:
    """Name of every tensor of the checkpoint `target` -> name of the file that holds it.

    Raises:
        TargetError: neither an index nor a single safetensors file is there.
    """
    if (target / INDEX).is_file():
        found: dict[str, str] = json.loads((target / INDEX).read_text(encoding="utf-8"))["weight_map"]
        return found
    if (target / SINGLE).is_file():
        return dict.fromkeys(samples.header(target / SINGLE), SINGLE)
    raise TargetError(
        f"{target} has no weights that can be read by name",
        why=f"neither {INDEX} nor {SINGLE} is there",
        fix="fetch the target again",
    )


def find(names: Iterable[str], *, tied: bool) -> TextWeights:
    """Find the text part's embeddings, final norm and head among the names of a checkpoint.

    Args:
        names: of all tensors.
        tied: whether the target's configuration ties the head to the embeddings.

    Raises:
        ProblemsError: of `TargetError`s, one for each weight that is missing, with the nearest names there are.
    """
    known = set(names)
    prefix = next((prefix for prefix in PREFIXES if _with(prefix, EMBEDDINGS) in known), "")
    wanted = {part: _with(prefix, part) for part in (EMBEDDINGS, NORM, HEAD)}
    missing = [name for part, name in wanted.items() if name not in known and not (part == HEAD and tied)]
    if missing:
        raise ProblemsError([_missing(name, known) for name in missing])
    return TextWeights(wanted[EMBEDDINGS], wanted[NORM], wanted[HEAD] if wanted[HEAD] in known else None)


def write_folder(target: Path, folder: Path, weights: TextWeights, files: Mapping[str, str]) -> None:
    """Write the folder that the trainer reads as its verifier.

    It holds an index of `weights` alone and links to the target's config.json and weight files; nothing is copied. A
    target whose configuration class is code of its own (Kimi-K2.5's) is described by its sizes in its place: the
    trainer reads no more of it, runs no foreign code then, and not every transformers knows such a model by itself.

    Args:
        target: the target directory.
        folder: where to write; made when absent.
        weights: what `find` found.
        files: what `weight_map` gave.
    """
    folder.mkdir(parents=True, exist_ok=True)
    index = {"metadata": {}, "weight_map": {name: files[name] for name in weights.names}}
    durable.write_json(folder / INDEX, index)
    config = json.loads((target / CONFIG).read_text(encoding="utf-8"))
    links = set(index["weight_map"].values())
    if "auto_map" in config:
        durable.write_json(folder / CONFIG, _sizes(config))
    else:
        links.add(CONFIG)
    for name in sorted(links):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to((target / name).resolve())


def _sizes(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration that every transformers reads, with what the trainer takes from it."""
    text = text_config(config)
    copied = {key: text[key] for key in ("hidden_size", "num_hidden_layers", "vocab_size")}
    return {"model_type": "llama", "architectures": config["architectures"], "num_attention_heads": 1, **copied}


def _with(prefix: str, name: str) -> str:
    # Wrappers put the head beside the inner model, or the inner model's own `model.` in front of the prefix.
    if prefix == "model.language_model.":
        return name if name == HEAD else prefix + name.removeprefix("model.")
    return prefix + name


def _missing(name: str, known: set[str]) -> TargetError:
    leaf = name.rpartition("model.")[2]
    near = difflib.get_close_matches(name, known, n=_NEAR, cutoff=0.5)
    near += [other for other in sorted(known) if other.endswith(leaf) and other not in near][:_NEAR]
    return TargetError(
        f"the target's checkpoint has no {name}",
        why=f"the nearest names are {', '.join(near)}" if near else "no name comes near",
        fix="use a checkpoint in Hugging Face's layout",
    )
