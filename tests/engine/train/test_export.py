import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from draftkiln import durable
from draftkiln.errors import ProblemsError
from draftkiln.export.command import _export
from draftkiln.rundir import RunDirectory, read_json
from draftkiln.stagelog import Terminal

pytestmark = pytest.mark.engine


@pytest.fixture
def copy(small: Any, exported: dict[str, Any], tmp_path: Path) -> Any:
    """The trained run with links to its data and a checkpoint of its own to spoil."""
    assert exported
    run = tmp_path / "run"
    shutil.copytree(small.path / "train", run / "train", symlinks=True)
    (run / "extract").symlink_to(small.path / "extract")
    return type(small)(run, small.target)


def checkpoint(run: Any) -> Path:
    found: Path = run.path / json.loads((run.path / "train" / "stage.json").read_text())["results"]["checkpoint"]
    return found


def refusal(run: Any, **changes: Any) -> str:
    with pytest.raises(ProblemsError) as caught:
        _export(run.context(**changes), Terminal(io.StringIO()))
    assert not (run.path / "export" / "vllm").exists()
    return str(caught.value)


def test_both_layouts_hold_the_same_weights(small: Any, exported: dict[str, Any]) -> None:
    folder = small.path / "export"
    ours, theirs = (load_file(folder / name / "model.safetensors") for name in ("vllm", "sglang"))
    assert exported["sglang_refused"] is None
    assert ours["layers.0.mlp.up_proj.weight"].equal(theirs["midlayer.mlp.up_proj.weight"])
    assert ours["fc.weight"].shape == (256, 768)
    assert "embed_tokens.weight" not in ours
    config = json.loads((folder / "vllm" / "config.json").read_text())
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
    assert config["norm_before_residual"] is False


def test_the_same_checkpoint_gives_the_same_bytes(copy: Any, exported: dict[str, Any]) -> None:
    again = copy.stage("export", _export)
    assert again == exported
    assert durable.sha256_file(copy.path / "export" / "vllm" / "model.safetensors") == again["weights_sha256"]["vllm"]


def recorded(run: Any) -> None:
    """Let the record of `train` be of the checkpoint as it is now: `export` looks at more than sizes."""
    directory = RunDirectory(run.path)
    record = read_json(run.path / "train" / "stage.json")
    directory.finish("train", record["inputs"], record["results"])


def spoil(run: Any, change: Any) -> None:
    file = checkpoint(run) / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
    recorded(run)


def test_case_52_embeddings_that_are_not_the_targets_are_refused(copy: Any) -> None:
    spoil(copy, lambda tensors: tensors["embed_tokens.weight"].mul_(1.5))
    assert "is not the target's language_model.model.embed_tokens.weight" in refusal(copy)


def test_values_that_are_no_numbers_are_refused(copy: Any) -> None:
    spoil(copy, lambda tensors: tensors["fc.weight"][0].fill_(float("nan")))
    assert "fc.weight holds values that are no numbers" in refusal(copy)


def test_case_23_a_renamed_tensor_is_refused(copy: Any) -> None:
    spoil(copy, lambda tensors: tensors.update({"final.weight": tensors.pop("norm.weight")}))
    text = refusal(copy)
    assert "norm.weight is missing" in text
    assert "final.weight is none that vLLM" in text


def test_case_23_a_tensor_of_another_shape_is_refused(copy: Any) -> None:
    spoil(copy, lambda tensors: tensors.update({"lm_head.weight": tensors["lm_head.weight"][:-1]}))
    assert "a row for each draft token" in refusal(copy)


def test_case_51_a_flag_of_the_trainer_that_nobody_serves_is_refused(copy: Any) -> None:
    file = checkpoint(copy) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"norm_output": True}))
    recorded(copy)
    assert "norm_output is True" in refusal(copy)


def test_case_9_ids_must_agree_in_all_three_places(copy: Any) -> None:
    text = refusal(copy, layers__aux=[1, 3, 4])
    assert "the manifest's slots but the last is [2, 4, 5]" in text
    assert "the checkpoint's eagle_aux_hidden_state_layer_ids is [2, 4, 5]" in text


def test_case_51_no_sglang_folder_for_a_draft_that_sglang_would_change(copy: Any) -> None:
    file = checkpoint(copy) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"norm_before_residual": True}))
    recorded(copy)
    results = copy.stage("export", _export)
    assert "norm_before_residual" in results["sglang_refused"]
    assert not (copy.path / "export" / "sglang").exists()
