import json
from pathlib import Path
from typing import Any

import pytest

from draftkiln.errors import ExitCode, ProblemsError, TrainingError
from draftkiln.export import folders, layout
from draftkiln.recipe.model import HubDraft, PathDraft, Recipe
from draftkiln.target.facts import TargetFacts
from draftkiln.train import warmstart

TARGET = "moonshotai/Kimi-K2.5"
DECODER: dict[str, Any] = {
    "model_type": "llama",
    "head_dim": 32,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
    "vocab_size": 100,
}
FACTS = TargetFacts(
    Path("target"), "KimiK25ForConditionalGeneration", "kimi_k25", 8, 64, 4, 100, "bfloat16", 512, None,
    has_weights=True, weight_bytes=1, tokenizer_needs_remote_code=False, model_needs_remote_code=False,
)  # fmt: skip


def recipe(**train: Any) -> Recipe:
    shape = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 96}
    content = {
        "schema_version": 1,
        "name": "r",
        "stacks": {"extract": "a", "train": "b", "evaluate": "b"},
        "target": {"source": {"hub": TARGET, "revision": "0" * 40}},
        "layers": {"aux": [2, 4, 5]},
        "data": {"source": {"path": "x"}},
        "train": {"draft": shape, "norm_before_residual": False, **train},
    }
    return Recipe.model_validate(content)


def published(folder: Path, config: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> warmstart.Published:
    """Write a draft of these shapes, its values zero, and read it."""
    entries, end = {}, 0
    for name, shape in shapes.items():
        size = 2
        for rows in shape:
            size *= rows
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(entries).encode()
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
    (folder / "config.json").write_text(json.dumps(config))
    return warmstart.read(folder)


def vllm(folder: Path, **changes: Any) -> warmstart.Published:
    """A draft in speculators' layout; `decoder__` and `drop` change its layer and its tensors."""
    decoder = dict(DECODER)
    shapes = layout.tensors(layout.Sizes.of({"transformer_layer_config": DECODER, "draft_vocab_size": 100}))
    config = folders.vllm_config(
        decoder, aux=[2, 4, 5], draft_vocab=100, norm_before_residual=False, draft_tokens=3,
        target={"name_or_path": TARGET, "architectures": ["KimiK25ForConditionalGeneration"]},
    )  # fmt: skip
    for key, value in changes.items():
        if key.startswith("decoder__"):
            config["transformer_layer_config"][key.removeprefix("decoder__")] = value
        elif key == "shapes":
            shapes |= value
        elif key == "drop":
            del shapes[value]
        else:
            config[key] = value
    return published(folder, config, shapes)


def refusal(found: warmstart.Published, made: Recipe | None = None) -> str:
    with pytest.raises(ProblemsError) as caught:
        warmstart.refuse_other(found, made or recipe(), FACTS, DECODER)
    return str(caught.value)


def test_the_same_draft_passes_in_both_layouts(tmp_path: Path) -> None:
    warmstart.refuse_other(vllm(tmp_path / "vllm"), recipe(), FACTS, DECODER)
    shapes = layout.tensors(layout.Sizes.of({"transformer_layer_config": DECODER, "draft_vocab_size": 100}))
    config = folders.sglang_config(DECODER, aux=[2, 4, 5], architecture=FACTS.architecture, draft_vocab=100)
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 3, 4]
    found = published(tmp_path / "sglang", config, {layout.sglang_name(name): shape for name, shape in shapes.items()})
    assert "midlayer.hidden_norm.weight" in {stored for stored, _ in found.files.values()}
    warmstart.refuse_other(found, recipe(), FACTS, DECODER)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"decoder__hidden_size": 128}, "its hidden_size is 128, here it is 64"),
        ({"decoder__vocab_size": 99}, "its vocab_size is 99, here it is 100"),
        ({"decoder__head_dim": 16}, "its head_dim is 16, here it is 32"),
        ({"decoder__num_hidden_layers": 2}, "it has 2 layers, drafts here have one"),
        ({"decoder__rope_parameters": {"rope_theta": 10000.0}}, "its rope_theta is 10000.0, here it is 50000.0"),
        ({"decoder__rope_parameters": {"rope_theta": 50000.0, "rope_type": "yarn"}}, "of type yarn"),
        ({"norm_before_residual": True}, "its norm_before_residual is True, train.norm_before_residual is False"),
        ({"fc_norm": True}, "its fc_norm is true"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 4, 8]}, "its layers are [2, 4, 8], layers.aux is [2, 4, 5]"),
        (
            {"speculators_config": {"verifier": {"name_or_path": "meta/Llama", "architectures": ["Llama"]}}},
            "it was trained for meta/Llama, the recipe's target is moonshotai/Kimi-K2.5",
        ),
        (
            {"speculators_config": {"verifier": {"architectures": ["Llama"]}}},
            "trained for a Llama, the recipe's target",
        ),
        ({"drop": "fc.weight"}, "tensor fc.weight is missing"),
        ({"shapes": {"fc.weight": (64, 128)}}, "tensor fc.weight is [64, 128], not [64, 192]"),
    ],
)
def test_a_draft_of_something_else_is_refused_by_the_difference(
    tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    assert text in refusal(vllm(tmp_path / "draft", **changes))


def test_a_draft_that_names_no_layers_was_trained_on_those_that_engines_take(tmp_path: Path) -> None:
    found = vllm(tmp_path / "draft", eagle_aux_hidden_state_layer_ids=None)
    warmstart.refuse_other(found, recipe(), FACTS, DECODER)
    other = recipe().model_copy(update={"layers": recipe().layers.model_copy(update={"aux": (1, 4, 5)})})
    assert "its layers are [2, 4, 5] (it names none, and engines take these)" in refusal(found, other)


def test_all_differences_are_told_at_once(tmp_path: Path) -> None:
    text = refusal(vllm(tmp_path / "draft", decoder__head_dim=16, fc_norm=True))
    assert "head_dim" in text
    assert "fc_norm" in text


def test_another_size_of_draft_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError, match="draft vocabulary has 100 tokens, train.draft.vocab_size makes it 64"):
        warmstart.vocabulary(vllm(tmp_path / "draft"), 64, 100)
    assert warmstart.vocabulary(vllm(tmp_path / "draft"), None, 100) is None


def test_a_folder_without_a_draft_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="holds no draft"):
        warmstart.read(tmp_path)


def test_a_path_is_relative_to_the_working_directory_and_a_fetched_draft_is_kept(tmp_path: Path) -> None:
    assert warmstart.folder(PathDraft(path="d"), tmp_path, tmp_path, None) == tmp_path / "d"
    source = HubDraft(hub="a/b", revision="1" * 40)
    there = tmp_path / "a--b-111111111111"
    there.mkdir()
    (there / "target.json").write_text("{}")
    assert warmstart.folder(source, tmp_path, tmp_path, None) == there


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "config.json").write_text("{"), "config.json"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"version https://git-lfs"), "it is a Git LFS pointer"),
        (lambda folder: cut(folder / WEIGHTS), "model.safetensors cannot be read: "),
        (lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"), "pytorch_model.bin is a pickle"),
        (lambda folder: (folder / INDEX).write_text("{}"), f"{INDEX} cannot be read"),
        (
            lambda folder: (folder / INDEX).write_text('{"weight_map": {"a": "b"}}'),
            f"b, named by {INDEX}, is not there",
        ),
    ],
    ids=["config", "pointer", "cut", "pickle", "index", "shard"],
)
def test_a_folder_that_cannot_be_read_is_told_by_its_file(tmp_path: Path, spoil: Any, words: str) -> None:
    vllm(tmp_path / "draft")
    spoil(tmp_path / "draft")
    with pytest.raises((TrainingError, ProblemsError)) as caught:
        warmstart.read(tmp_path / "draft")
    assert words in str(caught.value)
    assert str(caught.value).startswith("train.init_from: ")
    assert caught.value.code == ExitCode.TRAINING
