"""The real engine: speculators' patched generator over vLLM, driven batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import layers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import torch

    from draftkiln.recipe.model import Recipe


@dataclass(frozen=True)
class Sample:
    """One sample's states as the engine gave them.

    Attributes:
        index: of the row in the dataset.
        token_ids: int64 `[tokens]`, as the engine echoed them.
        hidden_states: bfloat16 `[tokens, slots, hidden]`, slots in the order of the recipe's ids.
    """

    index: int
    token_ids: torch.Tensor
    hidden_states: torch.Tensor


def start(recipe: Recipe, target: Path, num_layers: int, longest: int, dtype: str) -> Any:
    """Load the target into the engine with capture set up; returns speculators' generator.

    Args:
        recipe: names layers, parallelism and the token budget.
        target: model directory.
        num_layers: of the target.
        longest: tokens of the longest sample.
        dtype: that the engine computes in.
    """
    from speculators.data_generation.vllm_hidden_states_generator import VllmHiddenStatesGenerator

    return VllmHiddenStatesGenerator(
        model_path=str(target),
        layer_ids=layers.to_generator_ids(recipe.layers.captured(num_layers)),
        max_model_len=longest,
        gpu_memory_utilization=recipe.extract.gpu_memory_utilization,
        tensor_parallel_size=recipe.target.tensor_parallel_size,
        max_num_batched_tokens=recipe.extract.token_budget,
        max_num_seqs=recipe.extract.max_num_seqs,
        trust_remote_code=recipe.target.trust_remote_code,
        dtype=dtype,
    )


def batches(lengths: Sequence[tuple[int, int]], budget: int, most: int) -> Iterator[list[int]]:
    """Group samples, in order, into batches of at most `budget` tokens and `most` samples.

    Args:
        lengths: pairs of index and tokens.
        budget: tokens of a batch; a longer sample is a batch of its own.
        most: samples of a batch.
    """
    batch: list[int] = []
    tokens = 0
    for index, length in lengths:
        if batch and (tokens + length > budget or len(batch) == most):
            yield batch
            batch, tokens = [], 0
        batch.append(index)
        tokens += length
    if batch:
        yield batch


def states(generator: Any, indices: Sequence[int], prompts: Sequence[list[int]]) -> Iterator[Sample]:
    """Compute the states of one batch of prompts."""
    import torch

    results = generator.generate([list(prompt) for prompt in prompts])
    for index, result in zip(indices, results, strict=True):
        stacked = torch.stack(result["hidden_states"], dim=1).to(torch.bfloat16).contiguous()
        yield Sample(index, result["input_ids"], stacked)
