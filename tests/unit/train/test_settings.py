"""The trainer's settings."""

import types
from pathlib import Path

import pytest

from draftkiln.recipe.load import load
from draftkiln.train.settings import settings

RECIPE = load(Path(__file__).parents[3] / "recipes" / "tiny-cpu.yaml")
SCHEDULE = types.SimpleNamespace(steps=70, epochs=(1,), ratio=0.9, max_steps=70)


@pytest.mark.parametrize(
    ("accelerator", "torch", "loss"),
    [(False, "2.13.0", "eager"), (True, "2.11.0+cu130", "eager"), (True, "2.12.0", "fused"), (True, "2.13.0", "fused")],
)
def test_the_loss_is_fused_where_torch_can_trace_it(accelerator, torch, loss):
    found = settings(RECIPE, Path("r"), SCHEDULE, accelerator=accelerator, torch_version=torch)
    assert found["loss_implementation"] == loss
