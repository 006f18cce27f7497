import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from draftkiln.errors import ExitCode, TrainingError
from draftkiln.extract import samples
from draftkiln.stagelog import Terminal
from draftkiln.train import job, verifier
from draftkiln.train.command import _train
from draftkiln.train.schedule import Plan

pytestmark = pytest.mark.engine


def test_the_curve_falls_and_the_draft_learns(small: Any, trained: dict[str, Any]) -> None:
    lines = [json.loads(line) for line in (small.path / "train" / "curve.jsonl").read_text().splitlines()]
    steps = [line for line in lines if not line.get("validation")]
    assert [line["step"] for line in steps] == list(range(1, 81))
    assert trained["loss_first"] == steps[0]["loss"]
    assert trained["loss_last"] < trained["loss_first"] / 10
    assert trained["validation_accuracy"][0] > 0.9
    assert trained["start_seconds"] >= 0


def test_what_decides_the_result_is_written_into_the_checkpoint(small: Any, trained: dict[str, Any]) -> None:
    config = json.loads((small.path / trained["checkpoint"] / "config.json").read_text())
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
    flags = {key: config[key] for key in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")}
    assert flags == dict.fromkeys(flags, False)
    assert config["transformer_layer_config"]["head_dim"] == 64


def test_case_53_frozen_weights_come_from_under_the_wrappers_prefix(small: Any, trained: dict[str, Any]) -> None:
    tensors = load_file(small.path / trained["checkpoint"] / "model.safetensors")
    files = verifier.weight_map(small.target)
    for ours, theirs in (("embed_tokens.weight", verifier.EMBEDDINGS), ("lm_head.weight", verifier.HEAD)):
        name = f"language_model.{theirs}"
        with safe_open(small.target / files[name], framework="pt") as file:
            assert torch.equal(tensors[ours], file.get_tensor(name).bfloat16())


def uneven_target(folder: Path, prefix: str) -> Path:
    """A target whose final norm is far from even, so that leaving it out changes what it answers."""
    torch.manual_seed(3)
    folder.mkdir()
    tensors = {
        f"{prefix}{verifier.EMBEDDINGS}": torch.randn(50, 32),
        f"{prefix}{verifier.HEAD}": torch.randn(50, 32),
        f"{prefix}{verifier.NORM}": torch.rand(32) ** 6 * 20,
        "vision_tower.norm.weight": torch.ones(7),
    }
    save_file(tensors, folder / "model.safetensors")
    sizes = {"hidden_size": 32, "num_hidden_layers": 6, "vocab_size": 50, "num_attention_heads": 4}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **sizes}))
    return folder


@pytest.mark.parametrize("prefix", ["", "language_model."])
def test_case_50_the_trainers_targets_are_head_of_norm_of_the_last_state(tmp_path: Path, prefix: str) -> None:
    from speculators.models.eagle3.core import Eagle3DraftModel
    from transformers import LlamaConfig

    target = uneven_target(tmp_path / "target", prefix)
    files = verifier.weight_map(target)
    verifier.write_folder(target, tmp_path / "verifier", verifier.find(files, tied=False), files)
    decoder = LlamaConfig(
        hidden_size=32, vocab_size=50, num_attention_heads=2, num_key_value_heads=2, head_dim=16, num_hidden_layers=1
    )
    model = Eagle3DraftModel.from_training_args(
        verifier_config=decoder,
        verifier_name_or_path=str(tmp_path / "verifier"),
        target_layer_ids=[1, 2, 3],
        draft_vocab_size=50,
        norm_before_residual=False,
        ttt_steps=3,
        draft_attn_impl="sdpa",
    )
    weights = load_file(target / "model.safetensors")
    norm, head = weights[f"{prefix}{verifier.NORM}"], weights[f"{prefix}{verifier.HEAD}"]
    last = torch.randn(200, 32)
    normed = last * torch.rsqrt(last.square().mean(-1, keepdim=True) + decoder.rms_norm_eps) * norm
    answers = (normed @ head.T).argmax(-1)
    with torch.no_grad():
        theirs = model.verifier_lm_head(model.verifier_norm(last)).argmax(-1)
    assert torch.equal(theirs, answers)
    assert ((last @ head.T).argmax(-1) == answers).float().mean() < 0.5


def test_case_69_the_loss_mask_moves_with_the_inputs() -> None:
    from speculators.models.eagle3.data import shift_batch
    from speculators.train.data import CollateFn

    prompt, answer = 5, 3
    tokens = torch.arange(100, 100 + prompt + answer)
    sample = {
        "input_ids": tokens,
        "hidden_states": (tokens - 100)[:, None].float(),
        "verifier_last_hidden_states": (tokens - 100)[:, None].float(),
        "loss_mask": torch.tensor([0] * prompt + [1] * answer),
        "lengths": torch.tensor([prompt + answer]),
        "position_ids": torch.arange(prompt + answer),
    }
    batch = CollateFn(10, 1, num_target_layers=1, dtype=torch.float32, preprocess=shift_batch)([sample])
    used = batch["loss_mask"][0].bool()
    columns = (batch["input_ids"], batch["hidden_states"][..., 0], batch["verifier_last_hidden_states"][..., 0])
    triples = [tuple(int(value) for value in row) for row in torch.stack([c[0][used].float() for c in columns], 1)]
    # (token read, state it is read with, state whose head gives the token to predict)
    assert triples == [(105, 4, 5), (106, 5, 6), (107, 6, 7)]
    assert int(used.sum()) == answer


def test_a_loss_that_is_no_number_stops_names_the_batch_and_keeps_the_state_before_it(
    small: Any, tmp_path: Path
) -> None:
    for stage in ("prepare", "extract", "validate"):
        shutil.copytree(small.path / stage, tmp_path / "run" / stage)
    run = type(small)(tmp_path / "run", small.target)
    context = run.context(train__max_steps=4, train__save_steps=1)
    train = context.recipe.train
    lengths = job.lengths(tmp_path / "run" / "prepare" / "dataset")
    batch = Plan(train.tokens_per_step, train.seed, train.epochs, train.max_steps).schedule(lengths).batch(2)
    for index in batch:
        file = tmp_path / "run" / "extract" / "hidden_states" / samples.name(index)
        tensors = load_file(file)
        tensors["hidden_states"][40:] = torch.nan
        save_file(tensors, file)
    with pytest.raises(TrainingError, match="the loss of step 3 is nan") as caught:
        _train(context, Terminal(io.StringIO()))
    assert f"samples {', '.join(map(str, batch))}: rows of prepare/dataset" in caught.value.why
    assert f"the states of {', '.join(map(str, batch))} are not those that were validated" in caught.value.why
    assert "draftkiln extract --check-existing full" in caught.value.fix
    assert caught.value.code == ExitCode.TRAINING
    assert [entry.name for entry in (tmp_path / "run" / "train" / "state").iterdir()] == ["2"]
    assert not list((tmp_path / "run" / "train" / "checkpoints").glob("*/model.safetensors"))


@pytest.mark.parametrize("step", [2, 4])
def test_weights_that_are_no_numbers_replace_no_state_and_become_no_draft(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    from draftkiln.train.loop import SavingTrainer

    for stage in ("prepare", "extract", "validate"):
        (tmp_path / stage).symlink_to(small.path / stage, target_is_directory=True)
    context = type(small)(tmp_path, small.target).context(train__max_steps=4, train__save_steps=1)

    def overflow(self: Any) -> None:
        SavingTrainer.__base__._optimizers_step(self)
        if self.global_step == step - 1:
            with torch.no_grad():
                self.model.get_parameter("fc.weight")[3, 5] = torch.inf

    monkeypatch.setattr(SavingTrainer, "_optimizers_step", overflow)
    told = f"weight fc.weight holds values that are no numbers after step {step}"
    with pytest.raises(TrainingError, match=told) as caught:
        _train(context, Terminal(io.StringIO()))
    assert "its batch were samples" in caught.value.why
    assert f"the state after step {step - 1} is kept" in caught.value.fix
    assert [entry.name for entry in (tmp_path / "train" / "state").iterdir()] == [str(step - 1)]
    assert not list((tmp_path / "train" / "checkpoints").glob("*/model.safetensors"))
