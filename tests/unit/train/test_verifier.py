import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from draftkiln.errors import ProblemsError, TargetError
from draftkiln.train import verifier

PARTS = (verifier.EMBEDDINGS, verifier.NORM, verifier.HEAD)
VISION = "vision_tower.encoder.final_layernorm.weight"


@pytest.mark.parametrize("prefix", ["", "language_model."])
def test_case_53_weights_are_found_with_and_without_a_wrapper(prefix: str) -> None:
    found = verifier.find([prefix + part for part in PARTS] + [VISION], tied=False)
    assert found.names == [prefix + part for part in PARTS]


def test_case_53_a_wrapper_inside_the_model() -> None:
    names = ["model.language_model.embed_tokens.weight", "model.language_model.norm.weight", "lm_head.weight"]
    assert verifier.find(names, tied=False).names == names


def test_case_53_a_tied_head_may_be_absent() -> None:
    assert verifier.find(PARTS[:2], tied=True).head is None
    with pytest.raises(ProblemsError, match=r"no lm_head\.weight"):
        verifier.find(PARTS[:2], tied=False)


def test_case_53_unknown_names_are_refused_with_the_near_ones() -> None:
    names = ["backbone.embed_tokens.weight", "backbone.norm.weight", "lm_head.weight"]
    with pytest.raises(ProblemsError) as caught:
        verifier.find(names, tied=False)
    text = str(caught.value)
    assert "no model.embed_tokens.weight" in text
    assert "backbone.embed_tokens.weight" in text
    assert "no model.norm.weight" in text


def test_case_53_a_norm_of_a_layer_is_not_taken_for_the_final_one() -> None:
    with pytest.raises(ProblemsError, match=r"no model\.norm\.weight"):
        verifier.find([verifier.EMBEDDINGS, verifier.HEAD, "model.layers.0.norm.weight"], tied=False)


def write(folder: Path, *, sharded: bool) -> Path:
    folder.mkdir()
    tensors = {f"language_model.{part}": np.full((2, 2), number, np.float32) for number, part in enumerate(PARTS)}
    tensors["vision_tower.lm_head.weight"] = np.zeros((9, 9), np.float32)
    (folder / "config.json").write_text("{}")
    if sharded:
        for number, (name, value) in enumerate(tensors.items()):
            save_file({name: value}, folder / f"model-{number}.safetensors")
        names = {name: f"model-{number}.safetensors" for number, name in enumerate(tensors)}
        (folder / verifier.INDEX).write_text(json.dumps({"weight_map": names}))
    else:
        save_file(tensors, folder / verifier.SINGLE)
    return folder


@pytest.mark.parametrize("sharded", [True, False])
def test_case_53_the_folder_for_the_trainer_holds_the_text_weights_alone(tmp_path: Path, *, sharded: bool) -> None:
    target = write(tmp_path / "target", sharded=sharded)
    files = verifier.weight_map(target)
    verifier.write_folder(target, tmp_path / "verifier", verifier.find(files, tied=False), files)
    index = json.loads((tmp_path / "verifier" / verifier.INDEX).read_text())["weight_map"]
    assert sorted(index) == sorted(f"language_model.{part}" for part in PARTS)
    for file in index.values():
        assert (tmp_path / "verifier" / file).resolve() == target / file
    assert (tmp_path / "verifier" / "config.json").read_text() == "{}"


def test_a_target_without_weights_by_name(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no weights that can be read by name"):
        verifier.weight_map(tmp_path)


def test_a_target_with_code_of_its_own_is_described_by_its_sizes(tmp_path: Path) -> None:
    """The trainer would have to run that code: transformers 5.8 does not know Kimi-K2.5 by itself."""
    target = write(tmp_path / "target", sharded=False)
    sizes = {"hidden_size": 7168, "num_hidden_layers": 61, "vocab_size": 163840}
    described = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "auto_map": {"AutoConfig": "configuration_kimi_k25.KimiK25Config"},
        "model_type": "kimi_k25",
        "text_config": {**sizes, "model_type": "kimi_k2"},
    }
    (target / "config.json").write_text(json.dumps(described))
    (target / "configuration_kimi_k25.py").write_text("raise SystemExit\n")
    files = verifier.weight_map(target)
    verifier.write_folder(target, tmp_path / "verifier", verifier.find(files, tied=False), files)
    found = json.loads((tmp_path / "verifier" / "config.json").read_text())
    assert {key: found[key] for key in sizes} == sizes
    assert found["architectures"] == ["KimiK25ForConditionalGeneration"]
    assert found["model_type"] == "llama"
    assert not list((tmp_path / "verifier").glob("*.py"))
