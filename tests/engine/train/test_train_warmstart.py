"""A draft that starts from a published one."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftkiln.errors import ProblemsError
from draftkiln.stagelog import Terminal
from draftkiln.train.command import _train

pytestmark = pytest.mark.engine


@pytest.fixture
def fresh(small: Any, tmp_path: Path) -> Any:
    folder = tmp_path / "run"
    folder.mkdir()
    for stage in ("prepare", "extract", "validate"):
        (folder / stage).symlink_to(small.path / stage, target_is_directory=True)
    return type(small)(folder, small.target)


@pytest.mark.parametrize("layout", ["vllm", "sglang"])
def test_a_published_draft_goes_on_where_it_was(
    small: Any, trained: dict[str, Any], exported: dict[str, Any], fresh: Any, layout: str
) -> None:
    assert exported["weights_sha256"][layout]
    draft = small.path / "export" / layout
    results = _train(fresh.context(train__max_steps=1, train__init_from={"path": str(draft)}), Terminal(io.StringIO()))
    assert results["loss_first"] < trained["loss_first"] / 5


def test_a_published_draft_of_other_layers_is_refused_by_both(
    small: Any, exported: dict[str, Any], fresh: Any, tmp_path: Path
) -> None:
    assert exported["layer_ids"] == [2, 4, 5]
    draft = tmp_path / "draft"
    shutil.copytree(small.path / "export" / "vllm", draft)
    config = json.loads((draft / "config.json").read_text())
    config["eagle_aux_hidden_state_layer_ids"] = [1, 4, 5]
    (draft / "config.json").write_text(json.dumps(config))
    with pytest.raises(ProblemsError, match=r"its layers are \[1, 4, 5\], layers.aux is \[2, 4, 5\]"):
        _train(fresh.context(train__init_from={"path": str(draft)}), Terminal(io.StringIO()))


def test_a_published_draft_keeps_its_own_vocabulary(
    small: Any, exported: dict[str, Any], fresh: Any, tmp_path: Path
) -> None:
    assert exported["parameters"]
    draft = tmp_path / "draft"
    shutil.copytree(small.path / "export" / "vllm", draft)
    tensors = load_file(draft / "model.safetensors")
    rows, size = tensors["lm_head.weight"].shape[0], 100
    targets = torch.arange(0, 2 * size, 2)
    tensors["lm_head.weight"] = tensors["lm_head.weight"][targets].contiguous()
    tensors["d2t"] = targets - torch.arange(size)
    tensors["t2d"] = torch.zeros(rows, dtype=torch.bool).index_fill(0, targets, value=True)
    save_file(tensors, draft / "model.safetensors")
    config = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps({**config, "draft_vocab_size": size}))
    changes = {"train__init_from": {"path": str(draft)}, "train__draft__vocab_size": size, "train__max_steps": 1}
    results = _train(fresh.context(**changes), Terminal(io.StringIO()))
    made = load_file(fresh.path / results["checkpoint"] / "model.safetensors")
    assert torch.equal(made["d2t"], tensors["d2t"])
    with pytest.raises(ProblemsError, match="its draft vocabulary has 100 tokens, train.draft.vocab_size makes it 90"):
        _train(fresh.context(**{**changes, "train__draft__vocab_size": 90}), Terminal(io.StringIO()))
