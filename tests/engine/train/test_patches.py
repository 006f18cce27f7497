"""Each patch of the series for speculators 0.9.0: the test that its `Check:` trailer names, failing without it."""

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(torch.accelerator.is_available(), reason="the patches are for hosts without an accelerator"),
]


def test_trainer_uses_the_cpu_where_no_accelerator_is(trained: dict[str, Any]) -> None:
    assert trained["device"] == "cpu"
    assert trained["steps"] == 80


def test_checkpoints_load_onto_the_cpu(small: Any, trained: dict[str, Any]) -> None:
    from speculators.model import SpeculatorModel
    from speculators.train.checkpointer import SingleGPUCheckpointer

    checkpoint: Path = small.path / trained["checkpoint"]
    model = SpeculatorModel.from_pretrained(str(checkpoint))
    with torch.no_grad():
        model.fc.weight.zero_()
    SingleGPUCheckpointer(checkpoint.parent).load_model_state_dict(model)
    assert model.fc.weight.device.type == "cpu"
    assert model.fc.weight.any()


def test_batches_are_not_pinned_without_an_accelerator(small: Any, trained: dict[str, Any]) -> None:
    from speculators.models.eagle3.data import shift_batch
    from speculators.train.dataloader import create_train_val_loaders

    loaders = create_train_val_loaders(
        data_path=str(small.path / "train" / "data"),
        total_seq_len=trained["settings"]["total_seq_len"],
        hidden_states_dtype=torch.float32,
        vllm_endpoint="",
        on_missing="raise",
        verifier_name_or_path="",
        request_timeout=1,
        max_retries=0,
        generation_validation_retries=0,
        max_consecutive_generation_failures=1,
        hidden_size=256,
        num_target_layers=3,
        num_workers=0,
        prefetch_factor=1,
        preprocess=shift_batch,
        train_data_ratio=trained["settings"]["train_data_ratio"],
    )
    assert [loader.pin_memory for loader in loaders] == [False, False]


class Products(TorchDispatchMode):
    """Notes the dtypes of the matrix products inside."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.dtypes.add(args[-1].dtype)
        return function(*args, **(kwargs or {}))


def test_adamw_is_fused_on_the_cpu() -> None:
    from speculators.train.optimizers import build_optimizers
    from speculators.train.trainer import TrainerConfig

    torch.manual_seed(0)
    ours, plain = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
    plain.load_state_dict(ours.state_dict())
    config = TrainerConfig(lr=1e-2, num_epochs=1, save_path="")
    (fused,) = build_optimizers(ours, config)
    assert fused.defaults["fused"]
    reference = torch.optim.AdamW(plain.parameters(), lr=config.lr, weight_decay=config.weight_decay, foreach=False)
    for _ in range(5):
        batch = torch.randn(8, 64)
        for model, optimizer in ((ours, fused), (plain, reference)):
            optimizer.zero_grad()
            model(batch).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours.weight, plain.weight, rtol=1e-5, atol=1e-6)


def test_muon_iterates_in_float32_on_the_cpu() -> None:
    from speculators.train.optimizers import build_optimizers
    from speculators.train.trainer import TrainerConfig

    torch.manual_seed(0)
    ours, plain = torch.nn.Linear(96, 64, bias=False), torch.nn.Linear(96, 64, bias=False)
    plain.load_state_dict(ours.state_dict())
    config = TrainerConfig(lr=1e-3, num_epochs=1, save_path="", optimizer="muon", muon_lr=3e-3)
    (muon,) = build_optimizers(ours, config)
    reference = torch.optim.Muon(
        plain.parameters(),
        lr=config.muon_lr,
        momentum=config.muon_momentum,
        weight_decay=config.muon_weight_decay,
        ns_steps=config.muon_ns_steps,
        adjust_lr_fn=config.muon_adjust_lr_fn,
    )
    start = ours.weight.detach().clone()
    dtypes = set()
    for _ in range(5):
        batch = torch.randn(8, 96)
        for model, optimizer in ((ours, muon), (plain, reference)):
            optimizer.zero_grad()
            model(batch).square().sum().backward()
            with Products() as products:
                optimizer.step()
            if optimizer is muon:
                dtypes |= products.dtypes
    assert dtypes == {torch.float32}
    moved, expected = ours.weight.detach() - start, plain.weight.detach() - start
    cosine = torch.nn.functional.cosine_similarity(moved.flatten(), expected.flatten(), dim=0)
    assert cosine > 0.99  # torch iterates in bfloat16
    torch.testing.assert_close(moved.norm(), expected.norm(), rtol=0.02, atol=0)


def test_dense_mask_is_broadcast_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    from speculators.models.eagle3 import core

    class Model:
        _create_mask_fn = staticmethod(core.create_mask)

    lengths = [7, 1, 30, 20]
    documents = torch.repeat_interleave(torch.tensor([0, 1, 2, -1]), torch.tensor(lengths))
    for window in (None, 5):
        mask_mod = core.create_combined_mask_mod(documents, len(documents), sliding_window=window)
        mapped = core.create_mask(mask_mod, B=None, H=None, Q_LEN=58, KV_LEN=58, device="cpu")
        with monkeypatch.context() as patch:
            patch.setattr(torch.nn.attention.flex_attention, "_vmap_for_bhqkv", None)
            mask = core.Eagle3DraftModel._build_attn_mask(Model(), documents, 58, "cpu", window)
        assert mask.equal(mapped)
        assert not mask.all()
