"""Jobs for Slurm: an array over shards, a Ray cluster inside an allocation, training on one host."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from draftkiln.scale.launch_command import Job

_GRACE_SECONDS = 600
"""Between the signal and the limit: what an engine has begun is finished."""
_RAY_PORT = 6379


def script(job: Job) -> str:
    """The batch script of a stage: an array of shards for extraction, one host for training."""
    recipe, run = _quoted(job)
    if job.stage == "train":
        # With `train.devices` above 1 the stage itself starts torchrun, one process a device.
        return _lines([*_head(job, nodes=1), *_SETTING_UP, f"exec draftkiln train --recipe {recipe} --run {run}"])
    return _lines(
        [
            *_head(job, nodes=1, array=job.hosts),
            *_SETTING_UP,
            "number=$((SLURM_ARRAY_TASK_ID + 1))",
            f'part={run}.parts/"$number"',
            'mkdir -p "$part"',
            f'cp -r {run}/run.json {run}/prepare "$part"/',
            "# The shell's place is taken by draftkiln, so that Slurm's signal reaches it.",
            f'exec draftkiln extract --recipe {recipe} --run "$part" --shard "$number/{job.hosts}"',
            "# When all parts are done:",
            f"# draftkiln merge --run {run} {run}.parts/*",
        ]
    )


def ray_script(job: Job) -> str:
    """The batch script that makes a Ray cluster of an allocation and extracts over it."""
    recipe, run = _quoted(job)
    gpus = f" --num-gpus={job.devices}" if job.device == "cuda" else f" --num-gpus=0 --num-cpus={job.devices}"
    start = f"ray start{gpus} --disable-usage-stats --block"
    extract = f'draftkiln extract --ray "$address" --replicas {job.hosts} --recipe {recipe} --run {run}'
    others = [
        'srun --overlap --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head" \\',
        f'  {start} --address="$address" &',
    ]
    return _lines(
        [
            *_head(job, nodes=job.hosts),
            *_SETTING_UP,
            'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            f'address="$head:{_RAY_PORT}"',
            'srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \\',
            f"  {start} --head --port={_RAY_PORT} &",
            'until ray status --address="$address" >/dev/null 2>&1; do sleep 2; done',
            *(others if job.hosts > 1 else []),
            f"{extract} &",
            "extraction=$!",
            "# Slurm's signal is handed on; the second wait is for what is finished after it.",
            "trap 'kill -TERM \"$extraction\"' TERM",
            'wait "$extraction" || wait "$extraction"',
        ]
    )


_SETTING_UP = ("set -euo pipefail", 'cd "$SLURM_SUBMIT_DIR"')


def _head(job: Job, *, nodes: int, array: int | None = None) -> list[str]:
    devices = f"--gpus-per-node={job.devices}" if job.device == "cuda" else f"--cpus-per-task={job.devices}"
    options = [
        f"--job-name={job.name}",
        *([f"--array=0-{array - 1}"] if array is not None else []),
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        devices,
        f"--time={job.time}",
        "--requeue",
        "--open-mode=append",
        f"--signal=B:TERM@{_GRACE_SECONDS}",
        f"--output={job.name}-%{'A-%a' if array is not None else 'j'}.log",
    ]
    return ["#!/usr/bin/env bash", f"# Made by: {job.command}", *(f"#SBATCH {option}" for option in options)]


def _quoted(job: Job) -> tuple[str, str]:
    return shlex.quote(str(job.recipe_file)), shlex.quote(str(job.run))


def _lines(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
