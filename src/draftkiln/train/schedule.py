"""Which samples each step sees, known before the first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import DataError

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
    lengths: tuple[int, ...] = ()
    """Tokens of each sample that are used."""

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        total = sum(len(epoch) for epoch in self.epochs)
        return total if self.max_steps is None else min(total, self.max_steps)

    @property
    def tokens(self) -> int:
        """Tokens of all steps."""
        return self.tokens_until(self.steps)

    def tokens_until(self, step: int) -> int:
        """Tokens of the first `step` steps."""
        return sum(self.tokens_of(earlier) for earlier in range(step))

    def tokens_of(self, step: int) -> int:
        """Tokens of step `step`, counted from 0."""
        return sum(self.lengths[index] for index in self.batch(step))

    def batch(self, step: int) -> tuple[int, ...]:
        """Indices of the samples of step `step`, counted from 0."""
        for epoch in self.epochs:
            if step < len(epoch):
                return epoch[step]
            step -= len(epoch)
        return ()


@dataclass(frozen=True)
class Plan:
    """What decides the steps of a run.

    Attributes:
        tokens_per_step: tokens packed into a step, on each device; a longer sample is cut there.
        seed: of the order.
        epochs: passes over the samples, where `max_steps` is None.
        max_steps: optimizer steps.
        devices: that train together.
    """

    tokens_per_step: int
    seed: int
    epochs: int
    max_steps: int | None
    devices: int = 1

    def schedule(self, lengths: Sequence[int]) -> Schedule:
        """The steps over samples of these lengths, with the trainer's own packing.

        With `max_steps`, just as many epochs are planned as hold so many steps: the trainer would take one more step
        in every further epoch.

        Raises:
            DataError: an epoch has no step, because there are fewer samples than devices.
        """
        training, ratio = split(len(lengths), self.devices)
        if training < self.devices:
            raise DataError(
                f"{len(lengths)} samples for {self.devices} devices",
                why="each device takes at least one sample of a step, and one is set apart for each",
                fix="prepare more conversations, or lower train.devices",
            )
        samplers = [self._sampler(lengths[:training], rank) for rank in range(self.devices)]
        planned: list[tuple[tuple[int, ...], ...]] = []
        steps = 0
        while steps < self.max_steps if self.max_steps is not None else len(planned) < self.epochs:
            for sampler in samplers:
                sampler.set_epoch(len(planned))
            planned.append(tuple(_together(batches) for batches in zip(*samplers, strict=True)))
            steps += len(planned[-1])
        used = tuple(min(length, self.tokens_per_step) for length in lengths)
        return Schedule(tuple(planned), training, ratio, self.max_steps, used)

    def _sampler(self, lengths: Sequence[int], rank: int) -> Any:
        from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2

        return MultipackDistributedBatchSamplerV2(
            batch_max_length=self.tokens_per_step, lengths=lengths, num_replicas=self.devices, rank=rank, seed=self.seed
        )


def split(samples: int, devices: int = 1) -> tuple[int, float]:
    """Samples to train on, and the ratio that makes the trainer split there (it takes `int(samples * ratio)`).

    Each device needs a held-out sample: the trainer drops what it cannot deal out evenly.
    """
    held = max(devices, int(samples * _VALIDATION_SHARE))
    return samples - held, (samples - held + 0.5) / samples


def _together(batches: tuple[Sequence[int], ...]) -> tuple[int, ...]:
    """The samples of one step on all devices."""
    return tuple(int(index) for batch in batches for index in batch)
