"""The stage beside what speculators itself does with the same settings."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from draftkiln.stagelog import Terminal
from draftkiln.train import bench, curve
from draftkiln.train.command import _train

pytestmark = pytest.mark.engine


def test_losses_are_those_of_speculators_own_command(small: Any, tmp_path: Path) -> None:
    for stage in ("prepare", "extract", "validate"):
        (tmp_path / stage).symlink_to(small.path / stage, target_is_directory=True)
    run = type(small)(tmp_path, small.target)
    _train(run.context(train__max_steps=5), Terminal(io.StringIO()))
    theirs = bench.by_hand(tmp_path / "train", tmp_path / "by-hand")
    ours = [line["loss"] for line in curve.read(tmp_path / "train" / "curve.jsonl") if not line.get("validation")]
    assert len(ours) == 5
    assert ours == pytest.approx(theirs.losses, abs=1e-5)
    assert (len(theirs.pace), theirs.start_seconds > 0) == (5, True)


@pytest.mark.parametrize("layers", [1, 2])
def test_case_70_losses_are_finite_with_padding_and_a_sample_shorter_than_the_draft_steps(
    small: Any, trained: dict[str, Any], layers: int
) -> None:
    from speculators.losses import resolve_loss_config
    from speculators.models.eagle3.core import Eagle3DraftModel
    from speculators.models.eagle3.data import shift_batch
    from speculators.train.data import CollateFn
    from transformers import LlamaConfig

    assert trained["steps"]
    hidden, steps, room = 256, 3, 24
    decoder = json.loads((small.path / "train" / "draft.json").read_text())
    torch.manual_seed(0)
    model = Eagle3DraftModel.from_training_args(
        verifier_config=LlamaConfig(**{**decoder, "num_hidden_layers": layers}),
        verifier_name_or_path=str(small.path / "train" / "verifier"),
        target_layer_ids=[2, 4, 5],
        draft_vocab_size=decoder["vocab_size"],
        norm_before_residual=False,
        ttt_steps=steps,
        draft_attn_impl="sdpa",
    )

    def sample(tokens: int) -> dict[str, torch.Tensor]:
        return {
            "input_ids": torch.arange(tokens),
            "hidden_states": torch.randn(tokens, 3 * hidden),
            "verifier_last_hidden_states": torch.randn(tokens, hidden),
            "loss_mask": torch.ones(tokens, dtype=torch.bool),
            "lengths": torch.tensor([tokens]),
            "position_ids": torch.arange(tokens),
        }

    collate = CollateFn(room, hidden, num_target_layers=3, dtype=torch.float32, preprocess=shift_batch)
    batch = collate([sample(12), sample(2)])  # the second is shorter than the draft steps; 10 places are padding
    given = {key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}
    trained_weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained_weights, lr=1e-3)
    found = []
    for _ in range(3):
        _, loss, _ = model(**given, ttt_steps=steps, loss_config=resolve_loss_config("kl_div", "eager"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss))
    assert all(torch.isfinite(weight).all() for weight in trained_weights)
    assert found[2] < found[0]
