"""The trainer's settings: every one that decides the result is written down, none is guessed by the trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from draftkiln.recipe.model import Recipe
    from draftkiln.train.schedule import Schedule

LOSS = "kl_div"
_MUON_DECAY = 0.1
"""The trainer's own default."""
_STEPS_WORTH_A_PROCESS = 200
_FUSED_LOSS_FROM = Version("2.12")
"""torch before cannot trace a kernel with pruned tiles twice in one function (pytorch/pytorch#177600), as the unrolled
draft steps have it; the plain loss gives the same numbers and is fused by the compiler."""


_DECIDES_NOTHING = frozenset({"logger", "log_dir", "run_name"})


def deciding(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings that decide the result: without those of the loggers and without paths into the run."""
    return {
        key: value
        for key, value in values.items()
        if key not in _DECIDES_NOTHING and not str(value).startswith(str(folder))
    }


def settings(
    recipe: Recipe, folder: Path, schedule: Schedule, *, accelerator: bool, torch_version: str
) -> dict[str, Any]:
    """Flat settings for speculators' `TrainConfig.from_flat`.

    On a CPU the draft computes in float32: on AVX2 cores the bfloat16 products of a backward pass take 7 to 70 times
    as long (measured), and the trainer keeps its weights in float32 anyway.

    Args:
        recipe: the run's.
        folder: RUN/train, with `verifier`, `data` and `draft.json` inside.
        schedule: steps and split.
        accelerator: whether one is used.
        torch_version: of the trainer's environment.
    """
    train = recipe.train
    fused = accelerator and Version(torch_version) >= _FUSED_LOSS_FROM
    return {
        "speculator_type": "eagle3",
        "seed": train.seed,
        "verifier_name_or_path": str(folder / "verifier"),
        "trust_remote_code": False,
        "draft_config": str(folder / "draft.json"),
        "draft_vocab_size": train.draft.vocab_size,
        "target_layer_ids": list(recipe.layers.aux),
        "mask_token_id": 0,  # unused by EAGLE-3; without it the trainer loads the target's tokenizer to find one
        "norm_before_residual": train.norm_before_residual,
        "norm_before_fc": False,
        "fc_norm": False,
        "norm_output": False,
        "embed_requires_grad": False,
        "draft_attn_impl": "simple_flex_attention" if accelerator else "sdpa",
        "data_path": str(folder / "data"),
        "hidden_states_backend": "file" if recipe.extract.storage == "bfloat16" else "fp8",
        "hidden_states_path": None,
        "hidden_states_dtype": "bfloat16" if accelerator else "float32",
        "total_seq_len": train.tokens_per_step,
        "train_data_ratio": schedule.ratio,
        "num_workers": _loader_processes(schedule, accelerator=accelerator),
        "on_missing": "raise",
        "loss_fn": LOSS,
        "loss_implementation": "fused" if fused else "eager",
        "ttt_steps": train.ttt_steps,
        "ttt_step_loss_decay": train.ttt_step_loss_decay,
        "optimizer": train.optimizer,
        "lr": train.lr,
        "weight_decay": 0.01,
        "muon_lr": train.muon_lr or train.lr,
        "muon_momentum": 0.95,
        "muon_weight_decay": _MUON_DECAY if train.muon_weight_decay is None else train.muon_weight_decay,
        "muon_ns_steps": 5,
        "muon_adjust_lr_fn": "match_rms_adamw",
        "scheduler_type": "linear",
        "epochs": len(schedule.epochs),
        "max_steps": schedule.max_steps,
        "save_path": str(folder / "checkpoints"),
        "checkpoint_freq": float(len(schedule.epochs)),  # after the first epoch, always saved, and after the last
        "no_resume_from_checkpoint": True,
        "log_freq": 1,
        "fsdp_shard": train.shard,
        "logger": ",".join(train.loggers),
        "log_dir": str(folder / "logs"),
        "run_name": recipe.name,
    }


def _loader_processes(schedule: Schedule, *, accelerator: bool) -> int:
    """Processes that read samples for the trainer.

    On a CPU one, where the run is long enough to pay for its start (15 s of imports): more would take cores away from
    the products, none leaves all but one idle while it reads.
    """
    if accelerator:
        return 8
    return int(schedule.steps > _STEPS_WORTH_A_PROCESS)
