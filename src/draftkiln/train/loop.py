"""speculators' trainer with states saved on the way: an interrupted training goes on at the very step it was at.

The trainer's own checkpoints round weights and optimizer to bfloat16, come at fractions of an epoch and are not written
all or nothing; a signal breaks off the step it is in. What it does in a step is left as it is.
"""

from __future__ import annotations

import random
import shutil
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from speculators.train.trainer import Trainer

from draftkiln.train import warmstart
from draftkiln.train.curve import no_number
from draftkiln.train.state import Position

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from draftkiln.train.schedule import Schedule
    from draftkiln.train.state import Saves

_ALL = 1 << 60
"""More batches than an epoch has."""


class StopAskedError(Exception):
    """The end was asked for and the state is saved."""


class _Order(IntEnum):
    GO_ON, SAVE, STOP = 0, 1, 2


class SavingTrainer(Trainer):  # type: ignore[misc] # speculators has no types where this is checked
    """Trainer that saves whole states.

    Args:
        saves: when and where to, and the position to go on from.
        planned: the steps of the whole run.
        initial: weights of a published draft to start from, by the trainer's names.
    """

    checkpointer: Any

    def __init__(
        self, *arguments: Any, saves: Saves, planned: Schedule, initial: dict[str, torch.Tensor] | None, **named: Any
    ) -> None:
        self._saves, self._planned, self._steps, self._initial = saves, planned, planned.steps, initial
        self._epoch = self._epoch_steps = 0
        super().__init__(*arguments, **named)

    def setup_trainer(self) -> None:
        """Begin at the saved position, or at the first step."""
        self._final = self.checkpointer
        self.checkpointer = type(self.checkpointer)(self._saves.folder)
        begin = self._saves.begin or Position(0, 0, 0, 0.0)
        self.resume_from_checkpoint = self._saves.begin is not None
        self.current_epoch = begin.epoch
        # The trainer asks whether it has done enough steps only after one more.
        self._resume_local_step = begin.epoch_steps if begin.step < self._steps else _ALL
        self._resume_global_step = self.global_step = begin.step
        self.best_val_loss = float("inf")

    def setup_model(self) -> None:
        """Place the model, with the weights of a published draft where one is named and nothing is saved."""
        if self._initial is not None and not self.resume_from_checkpoint:
            warmstart.apply(self.model, self._initial)
        self._initial = None
        super().setup_model()

    def run_training(self) -> None:
        """Train without the trainer's signal handlers, which break off a step."""
        try:
            Trainer.run_training.__wrapped__(self)
        except RuntimeError:
            # A signal to the whole process group also ended what reads samples, between two steps.
            if self.is_distributed or not self._saves.ending.asked():
                raise
            self._save()
            raise StopAskedError from None

    def train_epoch(self, epoch: int, *, step_callback: Callable[[], None] | None = None) -> None:
        """Train an epoch, or what is left of it."""
        del step_callback
        self._epoch, self._epoch_steps = epoch, self._resume_local_step
        if self._resume_local_step:
            self._restore_random_states_at_first_batch()
        super().train_epoch(epoch, step_callback=self._after_step)

    def val_epoch(self, epoch: int) -> dict[str, float] | None:
        """Compute the held-out values; the end is looked for before each batch, where one process decides alone."""
        watch = None if self.is_distributed else self.model.register_forward_pre_hook(self._look_in_validation)
        try:
            found: dict[str, float] | None = super().val_epoch(epoch)
        finally:
            if watch is not None:
                watch.remove()
        return found

    def maybe_save_checkpoint(self, epoch: int | str, local_step: int = 0) -> None:
        """Write the draft after the last epoch, in bfloat16; what a resume needs is saved elsewhere."""
        del local_step
        if epoch == self.config.num_epochs - 1:
            self._refuse_weights_that_are_no_numbers()
            optimizers = self.optimizers if self.config.fsdp_shard else []
            self._final.save_checkpoint(self.model, optimizers, epoch)

    def maybe_update_best(self, epoch: int, val_metrics: dict[str, Any] | None) -> None:
        """The last draft is taken: held-out values are in the curve."""

    def _after_step(self) -> None:
        self._epoch_steps += 1
        order = _Order.GO_ON
        if self._saves.ending.asked():
            order = _Order.STOP
        elif self._saves.due(self.global_step) and self.global_step < self._steps:
            order = _Order.SAVE
        order = self._agreed(order)
        if order is not _Order.GO_ON:
            self._save()
        if order is _Order.STOP:
            raise StopAskedError

    def _look_in_validation(self, *_: object) -> None:
        if self._saves.ending.asked():
            self._save()
            raise StopAskedError

    def _agreed(self, order: _Order) -> _Order:
        """What the first process says, so that all save the same step."""
        if not self.is_distributed:
            return order
        told = torch.tensor([int(order)], device=self.device)
        dist.broadcast(told, src=0)
        return _Order(int(told.item()))

    def _save(self) -> None:
        self._refuse_weights_that_are_no_numbers()
        name = self._saves.temporary(self.global_step)
        folder = self._saves.folder / name
        if self.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self._wait()
        self.checkpointer.save_checkpoint(self.model, self.optimizers, name, float_dtype=torch.float32)
        self.checkpointer.save_scheduler_state_dict(self.schedulers, name)
        torch.save(_random_states(), _random_file(folder, self.rank))
        self._wait()
        if self.rank == 0:
            done = Position(self.global_step, self._epoch, self._epoch_steps, self._saves.seconds())
            self._saves.publish(done)
        self._wait()

    def _refuse_weights_that_are_no_numbers(self) -> None:
        """Keep the state before this one: a gradient that overflows spoils all weights after a loss that was a number.

        Raises:
            TrainingError: naming the weights and the last step's batch.
        """
        # Of a weight that is spread over devices, the part that is here.
        here = ((name, getattr(weight, "to_local", lambda weight=weight: weight)()) for name, weight in self._trained())
        wrong = [name for name, weight in here if not weight.isfinite().all()]
        if wrong:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            what = f"weight {wrong[0]}{more} holds values that are no numbers after step {self.global_step}"
            raise no_number(what, self.global_step, self._planned, self._saves.folder.parent)

    def _trained(self) -> list[tuple[str, torch.Tensor]]:
        return [(name, weight.detach()) for name, weight in self.model.named_parameters() if weight.requires_grad]

    def _wait(self) -> None:
        if self.is_distributed:
            dist.barrier()

    def _restore_random_states_at_first_batch(self) -> None:
        # Only then: the loader draws a number of its own when an epoch begins.
        file = _random_file(self._saves.folder / str(self._resume_global_step), self.rank)
        states = torch.load(file, weights_only=True)

        def restore(*_: object) -> None:
            hook.remove()
            _set_random_states(states)

        hook = self.model.register_forward_pre_hook(restore)


def _random_file(folder: Path, rank: int) -> Path:
    return folder / f"random-{rank}.pt"


def _random_states() -> dict[str, Any]:
    name, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002 - the state that libraries draw from
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss),
        "torch": torch.get_rng_state(),
    }
    if torch.accelerator.is_available():
        states["accelerator"] = torch.get_device_module().get_rng_state()
    return states


def _set_random_states(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002 - as above
    torch.set_rng_state(states["torch"])
    if "accelerator" in states and torch.accelerator.is_available():
        torch.get_device_module().set_rng_state(states["accelerator"])
