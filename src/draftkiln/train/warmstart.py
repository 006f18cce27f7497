"""A published draft to start from: read in speculators' or SGLang's layout, and held to the recipe before a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import durable, layers
from draftkiln.errors import ProblemsError, RunDirectoryError, TrainingError
from draftkiln.export import check, layout, reading
from draftkiln.extract import samples
from draftkiln.recipe.files import path_of
from draftkiln.recipe.model import HubDraft, HubTarget
from draftkiln.rundir import read_json
from draftkiln.train import verifier
from draftkiln.train.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import torch

    from draftkiln.recipe.model import PathDraft, Recipe
    from draftkiln.target.facts import TargetFacts

_SHAPE = (
    "hidden_size",
    "vocab_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "rms_norm_eps",
)


@dataclass(frozen=True)
class Published:
    """A draft as its folder says it is.

    Attributes:
        folder: of the draft.
        decoder: configuration of its layer.
        config: all of its configuration.
        files: name of each tensor by speculators' layout -> its name in the file, and the file.
    """

    folder: Path
    decoder: Mapping[str, Any]
    config: Mapping[str, Any]
    files: Mapping[str, tuple[str, Path]]

    def layer_ids(self, architecture: str) -> list[int] | None:
        """The auxiliary ids that it names, for a target of this architecture, in vLLM's convention."""
        nested = self.config.get("eagle_config") or {}
        found = self.config.get(_IDS) or nested.get(_IDS)
        if found is None or "transformer_layer_config" in self.config:
            return found
        return layers.from_sglang_ids(found, architecture)

    @property
    def draft_vocab_size(self) -> int:
        """Tokens that it can propose."""
        return int(self.config.get("draft_vocab_size") or self.decoder.get("vocab_size") or 0)

    @property
    def norm_before_residual(self) -> bool:
        """As it was trained; vLLM's default where speculators' layout does not say it, SGLang's layer knows one way."""
        return bool(self.config.get("norm_before_residual", "transformer_layer_config" in self.config))


_IDS = "eagle_aux_hidden_state_layer_ids"


def folder(source: PathDraft | HubDraft, working: Path, drafts: Path, token: str | None) -> Path:
    """The folder of a published draft; one on the Hub is fetched once, as its own pinned revision.

    Args:
        source: `train.init_from` of the recipe.
        working: directory that a path is relative to.
        drafts: folder that fetched drafts lie in.
        token: for the Hub.
    """
    if not isinstance(source, HubDraft):
        return working / path_of(source.path)
    from draftkiln.lock import held
    from draftkiln.target.hub import fetch_revision
    from draftkiln.target.record import NAME

    found = drafts / f"{source.hub.replace('/', '--')}-{source.revision[:12]}"
    with held(drafts / f".{found.name}.lock"):
        if not (found / NAME).exists():
            fetch_revision(source.hub, source.revision, found, token=token)
    return found


def read(folder: Path) -> Published:
    """Read what a draft's folder says.

    Raises:
        TrainingError: it holds no draft that this project can train on.
        ProblemsError: of `TrainingError`s, one a file of weights that cannot be read.
    """
    if not (folder / "config.json").is_file():
        raise TrainingError(
            f"train.init_from: {folder} holds no draft",
            why="there is no config.json",
            fix="name the folder that has config.json and the weights",
        )
    try:
        config = read_json(folder / "config.json")
    except RunDirectoryError as error:
        raise TrainingError(f"train.init_from: {error.what}", why=error.why, fix=_AGAIN) from error
    if unreadable := reading.file_problems(folder):
        raise ProblemsError([TrainingError(f"train.init_from: {folder}: {text}", fix=_AGAIN) for text in unreadable])
    files = {_own_name(name): (name, folder / file) for name, file in verifier.weight_map(folder).items()}
    return Published(folder, config.get("transformer_layer_config") or config, config, files)


def refuse_other(found: Published, recipe: Recipe, facts: TargetFacts, decoder: Mapping[str, Any]) -> None:
    """Refuse a draft that is not one of this target, these layers, this shape; all differences at once.

    Args:
        found: the draft.
        recipe: of the run.
        facts: of the target.
        decoder: the draft's decoder configuration by the recipe.

    Raises:
        ProblemsError: of `TrainingError`s.
    """
    texts = [*_target_differences(found, recipe, facts), *_shape_differences(found, recipe, decoder)]
    ids = found.layer_ids(facts.architecture)
    shown = ids or list(layers.default_aux_ids(facts.num_layers))
    if shown != list(recipe.layers.aux):
        by = "" if ids else " (it names none, and engines take these)"
        texts.append(f"its layers are {shown}{by}, layers.aux is {list(recipe.layers.aux)}")
    if not texts:
        texts += _tensor_differences(found, decoder)
    _stop(found, texts)


def vocabulary(found: Published, size: int | None, target_size: int) -> Vocabulary | None:
    """The draft's own vocabulary, which its head's rows belong to; None where it is the target's whole one.

    Raises:
        ProblemsError: its size is not the recipe's, or its maps contradict themselves.
    """
    wanted, there = size or target_size, found.draft_vocab_size
    if wanted != there:
        _stop(found, [f"its draft vocabulary has {there} tokens, train.draft.vocab_size makes it {wanted}"])
    if there == target_size:
        return None
    if layout.D2T not in found.files:
        _stop(found, [f"it has no {layout.D2T}, so nobody knows which {there} of {target_size} tokens it proposes"])
    d2t = _tensor(found, layout.D2T).tolist()
    targets = tuple(draft + offset for draft, offset in enumerate(d2t))
    made = Vocabulary(targets, target_size, there)
    t2d = _tensor(found, layout.T2D).bool().tolist() if layout.T2D in found.files else made.t2d
    texts = check.vocabulary_problems(d2t, t2d)
    if len(d2t) != there:
        texts.append(f"d2t has {len(d2t)} entries, draft_vocab_size is {there}")
    if len(t2d) != target_size:
        texts.append(f"t2d has {len(t2d)} entries, the target's vocabulary has {target_size} tokens")
    _stop(found, texts)
    return made


def hashes(found: Published) -> dict[str, str]:
    """Hex sha256 of the draft's configuration and weights, by file name."""
    files = {found.folder / "config.json", *(file for _, file in found.files.values())}
    return {file.name: durable.sha256_file(file) for file in sorted(files)}


def weights(found: Published) -> dict[str, torch.Tensor]:
    """The draft's weights by speculators' names, without the maps of its vocabulary and without embeddings."""
    left_out = {layout.D2T, layout.T2D, layout.EMBEDDINGS}
    return {name: _tensor(found, name) for name in found.files if name not in left_out}


def apply(model: Any, initial: Mapping[str, torch.Tensor]) -> None:
    """Give the trainer's model the published draft's values: every trained weight, and its head, which is not trained.

    Raises:
        TrainingError: a trained weight is missing, one has another shape, or is none of the model's.
    """
    import torch

    there = dict(model.named_parameters())
    trained = {name for name, weight in there.items() if weight.requires_grad}
    wrong = [
        *(f"{name} is missing" for name in sorted(trained - initial.keys())),
        *(f"{name} is none of the draft's weights" for name in sorted(initial.keys() - there.keys())),
        *(
            f"{name} has shape {list(initial[name].shape)}, not {list(weight.shape)}"
            for name, weight in there.items()
            if name in initial and initial[name].shape != weight.shape
        ),
    ]
    if wrong:
        raise TrainingError("train.init_from: the weights are not this draft's", why="; ".join(wrong), fix=_FIX)
    with torch.no_grad():
        for name, values in initial.items():
            there[name].copy_(values)


_AGAIN = "fetch or copy the draft again; `draftkiln inspect` shows all that is wrong with its folder"
_FIX = "name a draft of this target, change the recipe to the draft's values, or leave train.init_from out"


def _own_name(name: str) -> str:
    return layout.LAYER + name.removeprefix(layout.SGLANG_LAYER) if name.startswith(layout.SGLANG_LAYER) else name


def _tensor(found: Published, name: str) -> torch.Tensor:
    from safetensors import safe_open

    stored, file = found.files[name]
    with safe_open(str(file), framework="pt") as opened:
        tensor: torch.Tensor = opened.get_tensor(stored)
    return tensor


def _target_differences(found: Published, recipe: Recipe, facts: TargetFacts) -> Iterator[str]:
    source = (found.config.get("speculators_config") or {}).get("verifier") or {}
    name, wanted = source.get("name_or_path"), recipe.target.source
    if isinstance(wanted, HubTarget) and name and name.count("/") == 1 and name.casefold() != wanted.hub.casefold():
        yield f"it was trained for {name}, the recipe's target is {wanted.hub}"
    architectures = source.get("architectures") or []
    if architectures and facts.architecture not in architectures:
        yield f"it was trained for a {', '.join(architectures)}, the recipe's target is a {facts.architecture}"


def _shape_differences(found: Published, recipe: Recipe, decoder: Mapping[str, Any]) -> Iterator[str]:
    for key in _SHAPE:
        there = found.decoder.get(key)
        if there != decoder[key]:
            yield f"its {key} is {there}, here it is {decoder[key]}"
    if found.decoder.get("num_hidden_layers") != 1:
        yield f"it has {found.decoder.get('num_hidden_layers')} layers, drafts here have one"
    rope = found.decoder.get("rope_parameters") or found.decoder.get("rope_scaling") or {}
    theta = found.decoder.get("rope_theta") or rope.get("rope_theta")
    if theta is not None and float(theta) != decoder["rope_parameters"]["rope_theta"]:
        yield f"its rope_theta is {theta}, here it is {decoder['rope_parameters']['rope_theta']}"
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind != "default":
        yield f"its rotary positions are of type {kind}, drafts here have plain ones"
    if found.norm_before_residual != recipe.train.norm_before_residual:
        yield (
            f"its norm_before_residual is {found.norm_before_residual}, "
            f"train.norm_before_residual is {recipe.train.norm_before_residual}"
        )
    yield from (f"its {flag} is true, drafts here have it false" for flag in layout.OFF_FLAGS if found.config.get(flag))


def _tensor_differences(found: Published, decoder: Mapping[str, Any]) -> list[str]:
    config = {"transformer_layer_config": decoder, "draft_vocab_size": found.draft_vocab_size}
    wanted = layout.tensors(layout.Sizes.of(config))
    wanted.pop(layout.T2D, None)
    headers = {file: samples.header(file) for _, file in found.files.values()}
    shapes = {name: tuple(headers[file][stored]["shape"]) for name, (stored, file) in found.files.items()}
    return [
        f"tensor {name} is missing"
        if name not in shapes
        else f"tensor {name} is {list(shapes[name])}, not {list(shape)}"
        for name, shape in wanted.items()
        if shapes.get(name) != shape
    ]


def _stop(found: Published, texts: list[str]) -> None:
    if texts:
        raise ProblemsError([TrainingError(f"train.init_from: {found.folder}: {text}", fix=_FIX) for text in texts])
