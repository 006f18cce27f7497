"""States of the real engine against transformers on the same weights, and the breaks that only that engine shows."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from speculators_trees import BREAKS_SHOWN_ON, LOUD

if TYPE_CHECKING:
    from pathlib import Path

    from speculators_trees import Engine, Run, Trees

pytestmark = pytest.mark.engine

LAYER_IDS = [0, 1, 3, 4]
SAME = 0.9995
"""Least cosine per token between the engine's bfloat16 and the reference's float32."""
_random = random.Random(20)


def sample(length: int) -> list[int]:
    return [_random.randrange(3, 512) for _ in range(length)]


_repeated, _prefix = sample(40), sample(64)
CALLS = {
    "split": [sample(500) for _ in range(18)],
    "whole": [sample(512) for _ in range(20)],
    "forty": [sample(length) for length in (1, 2, 7, 8, 15, 16, 17, 31) * 5],
    "repeated": [_repeated, sample(30), _repeated],
    "again": [_repeated, sample(30), _repeated],
    "prefix": [_prefix + sample(20), _prefix + sample(33), _prefix],
}
LONG = {
    "long": [sample(length) for length in (127, 128, 129, 500)],
    "mixed": [sample(length) for length in (100, 60, 300, 5, 128)],
}
LLAMA = {
    "max_model_len": 512,
    "layer_ids": LAYER_IDS,
    "max_num_batched_tokens": 128,
    "max_num_seqs": 4,
    "dtype": "float32",
}


def references(engine: Engine, target: Path, calls: dict[str, Any], folder: Path) -> dict[str, np.ndarray]:
    (folder / "samples.json").write_text(json.dumps(calls))
    engine.run("reference.py", target, folder / "samples.json", folder / "reference.safetensors")
    return load_file(folder / "reference.safetensors")


@pytest.fixture(scope="module")
def deepseek_reference(
    engine: Engine, targets: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, np.ndarray]:
    return references(engine, targets / "deepseek", CALLS, tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def deepseek(extract: Any, trees: Trees, targets: Path) -> Run:
    generator = {"model_path": str(targets / "deepseek"), "layer_ids": [4, 0, 3, 1], "max_model_len": 512}
    run: Run = extract(trees.full(), generator, CALLS)
    return run


@pytest.fixture(scope="module")
def leaves_out(trees: Trees) -> None:
    """For tests that leave patches out: skips on stacks where that is not shown."""
    if not trees.show_breaks:
        pytest.skip(f"patches are left out on {BREAKS_SHOWN_ON} only")


@pytest.fixture(scope="module")
def only_loud(extract: Any, trees: Trees, targets: Path, leaves_out: None) -> Run:
    generator = {"model_path": str(targets / "deepseek"), "layer_ids": LAYER_IDS, "max_model_len": 512}
    run: Run = extract(trees.only("only-loud", LOUD), generator, CALLS)
    return run


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Per row; 0 where the rows cannot be compared."""
    if one.shape != other.shape:
        return np.zeros(1)
    return (one * other).sum(-1) / (np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1))


def worst(
    run: Run, reference: dict[str, np.ndarray], call: str, samples: list[list[int]], shift: int = 1
) -> list[float]:
    """Least cosine of each sample's rows, over all captured layers; `shift` 1 is the output of the layer."""
    found = []
    for index, ids in enumerate(samples):
        states, expected = run.states[f"{call}/{index}/states"], reference[f"{call}/{index}"]
        same_ids = run.states[f"{call}/{index}/ids"].tolist() == ids
        slots = [cosines(states[k], expected[layer + shift]).min() for k, layer in enumerate(LAYER_IDS)]
        found.append(float(min(slots)) if same_ids and len(states) == len(LAYER_IDS) else 0.0)
    return found


@pytest.mark.parametrize("call", CALLS)
def test_states_equal_the_reference(deepseek: Run, deepseek_reference: dict[str, np.ndarray], call: str) -> None:
    assert min(worst(deepseek, deepseek_reference, call, CALLS[call])) >= SAME
    assert deepseek.report["calls"][call]["dtype"] == "torch.bfloat16"


def test_layers_shifted_by_one_differ(deepseek: Run, deepseek_reference: dict[str, np.ndarray]) -> None:
    assert max(worst(deepseek, deepseek_reference, "split", CALLS["split"], shift=0)) < 0.98


def test_prompts_split_over_steps(deepseek: Run, only_loud: Run, deepseek_reference: dict[str, np.ndarray]) -> None:
    """18 samples of 500 tokens do not fit a step of 8192: the 17th is split."""
    assert min(worst(deepseek, deepseek_reference, "split", CALLS["split"])) >= SAME
    wrong = worst(only_loud, deepseek_reference, "split", CALLS["split"])
    assert "error" not in only_loud.report["calls"]["split"]
    assert min(wrong[:16]) >= SAME
    assert max(wrong[16:]) < SAME


def test_sample_of_exactly_max_model_len(
    deepseek: Run, only_loud: Run, deepseek_reference: dict[str, np.ndarray]
) -> None:
    assert min(worst(deepseek, deepseek_reference, "whole", CALLS["whole"])) >= SAME
    assert {len(only_loud.states[f"whole/{index}/ids"]) for index in range(20)} == {511}


def test_repeated_prompts_and_shared_prefixes(
    deepseek: Run, only_loud: Run, deepseek_reference: dict[str, np.ndarray]
) -> None:
    for call in ("repeated", "again", "prefix"):
        assert min(worst(deepseek, deepseek_reference, call, CALLS[call])) >= SAME
        assert "error" not in only_loud.report["calls"][call]
        assert min(worst(only_loud, deepseek_reference, call, CALLS[call])) < SAME, call


@pytest.fixture(scope="module")
def llama(extract: Any, trees: Trees, targets: Path) -> Run:
    run: Run = extract(trees.full(), {"model_path": str(targets / "llama"), **LLAMA}, LONG)
    return run


@pytest.mark.parametrize("call", LONG)
def test_prompts_longer_than_the_budget(llama: Run, engine: Engine, targets: Path, tmp_path: Path, call: str) -> None:
    """Public case 6, on another family of models."""
    reference = references(engine, targets / "llama", {call: LONG[call]}, tmp_path)
    assert min(worst(llama, reference, call, LONG[call])) >= SAME


def test_states_in_float32(llama: Run) -> None:
    assert {call["dtype"] for call in llama.report["calls"].values()} == {"torch.float32"}


@pytest.mark.usefixtures("leaves_out")
def test_first_forward_pass(extract: Any, trees: Trees, targets: Path) -> None:
    run = extract(
        trees.before("capture-with-layer-hooks"), {"model_path": str(targets / "deepseek"), "max_model_len": 512}, {}
    )
    assert "get_input_embeddings" in run.report["start"]["message"]


@pytest.mark.usefixtures("leaves_out")
def test_reply_and_second_step(extract: Any, trees: Trees, targets: Path) -> None:
    tree = trees.before("reply-of-one-rank")
    run = extract(
        tree, {"model_path": str(targets / "deepseek"), "max_model_len": 512}, {"first": [[5, 6]], "second": [[7, 8]]}
    )
    assert "Boolean value of Tensor with more than one value is ambiguous" in run.report["calls"]["first"]["message"]
    assert "sample_tokens() must be called after execute_model()" in run.report["calls"]["second"]["message"]
