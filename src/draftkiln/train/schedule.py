"""Which samples each step sees, known before the first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_VALIDATION_SHARE = 0.05


@dataclass(frozen=True)
class Schedule:
    """The steps of a run: batches of sample indices, epoch after epoch."""

    epochs: tuple[tuple[tuple[int, ...], ...], ...]
    training: int
    """Samples trained on: the first ones of the dataset; the rest is the validation split."""
    ratio: float
    """What the trainer must be told so that it splits there."""
    max_steps: int | None

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        total = sum(len(epoch) for epoch in self.epochs)
        return total if self.max_steps is None else min(total, self.max_steps)

    def tokens(self, lengths: Sequence[int], most: int) -> int:
        """Tokens of all steps; of a longer sample `most` are used."""
        batches = [batch for epoch in self.epochs for batch in epoch][: self.steps]
        return sum(min(lengths[index], most) for batch in batches for index in batch)

    def batch(self, step: int) -> tuple[int, ...]:
        """Indices of the samples of step `step`, counted from 0."""
        for epoch in self.epochs:
            if step < len(epoch):
                return epoch[step]
            step -= len(epoch)
        return ()


def split(samples: int) -> tuple[int, float]:
    """Samples to train on, and the ratio that makes the trainer split there (it takes `int(samples * ratio)`)."""
    held = max(1, int(samples * _VALIDATION_SHARE))
    return samples - held, (samples - held + 0.5) / samples


def plan(lengths: Sequence[int], tokens_per_step: int, seed: int, epochs: int, max_steps: int | None) -> Schedule:
    """Plan a run over samples of these lengths, with the trainer's own packing.

    With `max_steps`, just as many epochs are planned as hold so many steps: the trainer would take one more step in
    every further epoch.
    """
    from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2

    training, ratio = split(len(lengths))
    sampler: Any = MultipackDistributedBatchSamplerV2(
        batch_max_length=tokens_per_step, lengths=lengths[:training], num_replicas=1, rank=0, seed=seed
    )
    planned: list[tuple[tuple[int, ...], ...]] = []
    steps = 0
    while steps < max_steps if max_steps is not None else len(planned) < epochs:
        sampler.set_epoch(len(planned))
        planned.append(tuple(tuple(int(index) for index in batch) for batch in sampler))
        steps += len(planned[-1])
    return Schedule(tuple(planned), training, ratio, max_steps)
