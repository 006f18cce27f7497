"""`draftkiln export`: write the trained draft as vLLM and SGLang load it, and check it against what they read."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from draftkiln import durable, stage
from draftkiln.errors import ProblemsError, TrainingError
from draftkiln.export import card, check, folders, layout
from draftkiln.extract import manifest, samples
from draftkiln.recipe.load import load
from draftkiln.rundir import read_json
from draftkiln.target import resolve
from draftkiln.train import verifier

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from draftkiln.recipe.model import Recipe
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

VLLM, SGLANG = "vllm", "sglang"
_REDO = "remove the run's folder `train` and run `draftkiln train` again with this draftkiln"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments every stage takes."""
    stage.add_arguments(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run the stage, and write the model cards from what is known now, also where the stage was done before."""
    code = stage.run("export", arguments, _export, error=TrainingError)
    card.write(arguments.run, resolve.location(load(arguments.recipe).target.source))
    return code


def _export(context: Context, terminal: Terminal) -> dict[str, Any]:
    import safetensors.torch

    recipe, facts = context.recipe, context.facts
    checkpoint = context.run.path / context.run.require("train")["results"]["checkpoint"]
    trained = read_json(checkpoint / "config.json")
    head = manifest.read(context.run.path / "extract" / manifest.FILE).head
    decoder = read_json(context.run.path / "train" / "draft.json")
    _stop([*_id_disagreements(recipe, head.layer_ids, trained), *_decoder_disagreements(decoder, trained)])
    config = folders.vllm_config(
        decoder,
        aux=recipe.layers.aux,
        draft_vocab=trained["draft_vocab_size"],
        norm_before_residual=trained["norm_before_residual"],
        draft_tokens=recipe.evaluate.num_draft_tokens,
        target=_named_target(recipe, context.target),
    )
    tensors = safetensors.torch.load_file(checkpoint / folders.WEIGHTS)
    for name in (layout.D2T, layout.T2D):
        if tensors.get(name) is not None and not layout.Sizes.of(config).maps_vocabulary:
            del tensors[name]
    _stop(_content_problems(tensors, context.target))
    tensors.pop(layout.EMBEDDINGS, None)  # the target's, as just checked; vLLM shares them
    headers = check.header(samples.header(checkpoint / folders.WEIGHTS))
    found = {name: headers[name] for name in tensors}
    for one in (trained | {"transformer_layer_config": decoder}, config):
        _stop(check.problems(one, found, recipe.layers.aux, facts.num_layers))
    folder = context.run.folder("export")
    hashes = {VLLM: _write(folder / VLLM, config, tensors)}
    sizes = layout.Sizes.of(config)
    aux, architecture = recipe.layers.aux, facts.architecture
    refusal = folders.sglang_refusal(
        norm_before_residual=trained["norm_before_residual"], aux=aux, architecture=architecture
    )
    if refusal is None:
        plain = folders.sglang_config(decoder, aux=aux, architecture=architecture, draft_vocab=sizes.draft_vocab)
        hashes[SGLANG] = _write(folder / SGLANG, plain, folders.sglang_tensors(tensors, sizes))
    else:
        shutil.rmtree(folder / SGLANG, ignore_errors=True)
        terminal.line(f"export: no {SGLANG} folder: {refusal}")
    parameters = sum(tensor.numel() for name, tensor in tensors.items() if name not in {layout.D2T, layout.T2D})
    terminal.line(f"export: {parameters / 1e6:.0f} M parameters, {len(tensors)} tensors checked, in {folder}")
    return {
        "weights_sha256": hashes,
        "parameters": parameters,
        "sglang_refused": refusal,
        "layer_ids": list(recipe.layers.aux),
    }


def _id_disagreements(recipe: Recipe, slots: tuple[int, ...], trained: Mapping[str, Any]) -> list[str]:
    """Layer ids in the three places that must say the same: recipe, manifest, the checkpoint's own config."""
    places = {
        "the recipe's layers.aux": list(recipe.layers.aux),
        "the manifest's slots but the last": list(slots[:-1]),
        "the checkpoint's eagle_aux_hidden_state_layer_ids": trained.get("eagle_aux_hidden_state_layer_ids"),
    }
    first, *others = places.items()
    return [f"{first[0]} is {first[1]}, {name} is {ids}" for name, ids in others if ids != first[1]]


def _decoder_disagreements(decoder: Mapping[str, Any], trained: Mapping[str, Any]) -> list[str]:
    """What the trainer made of its decoder configuration that is not what it was given."""
    made = trained.get("transformer_layer_config", {})
    return [
        f"the checkpoint's transformer_layer_config.{key} is {made[key]!r}, the trainer was given {value!r}"
        for key, value in decoder.items()
        if key in made and made[key] != value
    ]


def _named_target(recipe: Recipe, target: Path) -> dict[str, Any]:
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    name = getattr(recipe.target.source, "hub", None) or str(target)
    return {"name_or_path": name, "architectures": config.get("architectures") or []}


def _content_problems(tensors: Mapping[str, torch.Tensor], target: Path) -> list[str]:
    """Values that loading would not question: embeddings or head that are not the target's, NaN, wrong maps."""
    import torch
    from safetensors import safe_open

    files = verifier.weight_map(target)
    weights = verifier.find(files, tied=True)
    found = [
        f"tensor {name} holds values that are no numbers"
        for name, tensor in tensors.items()
        if tensor.is_floating_point() and not tensor.isfinite().all()
    ]
    if layout.EMBEDDINGS in tensors:
        with safe_open(str(target / files[weights.embeddings]), framework="pt") as file:
            theirs = file.get_tensor(weights.embeddings)
        ours = tensors[layout.EMBEDDINGS]
        if theirs.shape != ours.shape or not torch.equal(theirs.to(ours.dtype), ours):
            found.append(
                f"tensor {layout.EMBEDDINGS} is not the target's {weights.embeddings}: vLLM would serve the draft with "
                "embeddings that it was not trained on"
            )
    if layout.D2T in tensors:
        found += check.vocabulary_problems(tensors[layout.D2T].tolist(), tensors[layout.T2D].tolist())
    return found


def _write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> str:
    """Write a draft's folder, all or nothing; gives the sha256 of its weights."""
    import safetensors.torch

    temporary = folder.with_name(f".{folder.name}.tmp")
    with durable.storage_errors(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        data = safetensors.torch.save(dict(tensors), metadata={"format": "pt"})
        durable.write_bytes(temporary / folders.WEIGHTS, data)
        durable.write_json(temporary / "config.json", config)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
        durable.sync_folder(folder.parent)
    return durable.sha256_file(folder / folders.WEIGHTS)


def _stop(texts: list[str]) -> None:
    if texts:
        unique = list(dict.fromkeys(texts))
        raise ProblemsError([TrainingError(text, fix=_REDO) for text in unique])
