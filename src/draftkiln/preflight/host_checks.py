"""The recipe against the host: disk, shared memory, GPUs, kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftkiln.preflight import capability, device_memory
from draftkiln.preflight.finding import Finding, failed, passed, unknown, warned
from draftkiln.preflight.host import SHM

if TYPE_CHECKING:
    from draftkiln.preflight.host import Host
    from draftkiln.recipe.model import Recipe
    from draftkiln.target.facts import TargetFacts

BYTES_A_VALUE = 2
"""bfloat16."""
MIN_SHM = 1 << 30
"""Shared memory that tensor parallel workers need; the default of containers, 64 MB, hangs NCCL."""
_NEARLY_FULL = 0.8
_CONTEXT = 1 << 30
"""What CUDA itself takes of a GPU, about."""
_NO_GPU = "no GPU is visible"
_ON_THE_HOST = "run preflight on the GPU host"


def state_bytes(samples: int, tokens: int, slots: int, hidden_size: int) -> int:
    """Bytes of hidden states: samples x tokens x slots x hidden size x 2."""
    return samples * tokens * slots * hidden_size * BYTES_A_VALUE


def check_disk(recipe: Recipe, facts: TargetFacts, samples: int | None, host: Host) -> Finding:
    """The most that the states can take against what is free."""
    slots = len(recipe.layers.captured(facts.num_layers))
    if samples is None:
        one = state_bytes(1, recipe.data.max_tokens, slots, facts.hidden_size)
        return unknown(
            "disk", f"the data cannot be counted; a full sample takes {one / 1e6:.1f} MB", "check data.source"
        )
    needed = state_bytes(samples, recipe.data.max_tokens, slots, facts.hidden_size)
    told = (
        f"at most {needed / 1e9:.2f} GB ({samples} samples x {recipe.data.max_tokens} tokens x {slots} slots x "
        f"{facts.hidden_size} x {BYTES_A_VALUE} bytes), {host.disk_free / 1e9:.2f} GB free on {host.disk_path}"
    )
    fix = "name a --run directory on a larger disk, or lower data.limit or data.max_tokens"
    if needed > host.disk_free:
        return failed("disk", told, fix)
    return warned("disk", told, fix) if needed > host.disk_free * _NEARLY_FULL else passed("disk", told)


def check_shared_memory(recipe: Recipe, host: Host) -> Finding:
    """Shared memory, which tensor parallel workers talk through."""
    size = recipe.target.tensor_parallel_size
    if size == 1:
        return passed(SHM, "not needed for one device")
    if host.shm_bytes is None:
        return unknown(SHM, "there is none to measure", "run preflight where the engine will run")
    told = f"{host.shm_bytes / (1 << 20):.0f} MB for {size} devices"
    if host.shm_bytes < MIN_SHM:
        return failed(
            SHM,
            f"{told}; {MIN_SHM >> 20} MB are needed",
            "start the container with --ipc=host or a larger --shm-size",
        )
    return passed(SHM, told)


def check_devices(recipe: Recipe, device: str, host: Host) -> Finding:
    """Number of devices against the recipe's tensor parallel size."""
    size = recipe.target.tensor_parallel_size
    if device == "cpu":
        if size > host.cores:
            fix = "set target.tensor_parallel_size: 1"
            return failed("devices", f"CPU mode: {size} workers want {size} cores, {host.cores} are here", fix)
        if size > 1:
            ranges = "|".join(map(str, range(size)))
            return warned("devices", f"CPU mode with {size} workers", f'set VLLM_CPU_OMP_THREADS_BIND="{ranges}"')
        return passed("devices", f"CPU mode, {host.cores} cores")
    if not host.gpus:
        fix = "run on the GPU host, or name a CPU stack under stacks.extract"
        return failed("devices", f"CPU mode: the stack needs {size} GPUs, none is visible", fix)
    if len(host.gpus) < size:
        fix = f"lower target.tensor_parallel_size to {len(host.gpus)}, or take a larger host"
        return failed("devices", f"{size} GPUs asked for, {len(host.gpus)} visible", fix)
    return passed("devices", f"{len(host.gpus)} x {host.gpus[0].name}, {size} used")


def check_memory(recipe: Recipe, facts: TargetFacts, device: str, host: Host) -> Finding:
    """Weights, KV cache and capture against the memory of each GPU and the share that the engine takes."""
    if device == "cpu":
        return passed("GPU memory", "not needed in CPU mode")
    needed = device_memory.need(recipe, facts)
    size, utilization = recipe.target.tensor_parallel_size, recipe.extract.gpu_memory_utilization
    if not host.gpus:
        return unknown("GPU memory", f"{_NO_GPU}; {size} GPUs are asked for: {needed.told()}", _ON_THE_HOST)
    used = host.gpus[:size]
    share = needed.weights or 0
    room = min(gpu.memory for gpu in used) * utilization
    told = f"{needed.told()}; {room / 1e9:.1f} GB for the engine"
    if share > room:
        return failed("GPU memory", told, "spread the target over more GPUs, or take GPUs with more memory")
    busy = [gpu for gpu in used if gpu.free < gpu.memory * utilization]
    if busy:
        freest = min(gpu.free for gpu in busy) / 1e9
        return failed(
            "GPU memory", f"{told}; another process leaves only {freest:.1f} GB free", "end the other process"
        )
    outside = used[0].memory * (1 - utilization)
    if outside < needed.capture + _CONTEXT:
        return warned(
            "GPU memory",
            f"{told}; {outside / 1e9:.1f} GB lie outside of its share for capture and CUDA itself",
            "lower extract.gpu_memory_utilization or extract.token_budget",
        )
    if share + needed.kv > room * 0.9:
        return warned("GPU memory", f"{told}; little is left for activations", "spread the target over more GPUs")
    return passed("GPU memory", told)


def check_kernels(facts: TargetFacts, text_model_type: str, device: str, host: Host) -> Finding:
    """Compute capability against the kernels of the target's family and quantisation."""
    if device == "cpu":
        return passed("kernels", "CPU mode: a CPU build brings its own")
    if not host.gpus:
        return unknown("kernels", _NO_GPU, _ON_THE_HOST)
    for gpu in host.gpus:
        answer, why = capability.answer(text_model_type, facts.quantization, gpu.capability)
        told = f"{gpu.name} (compute capability {gpu.capability[0]}.{gpu.capability[1]}): {why}"
        if answer == "refuse":
            return failed("kernels", told, "use another generation of GPU for this target")
        if answer == "unknown":
            fix = "let the target continue a fixed prompt: one token repeated means broken kernels"
            return unknown("kernels", told, fix)
    return passed("kernels", f"{why} ({facts.model_type}, {facts.quantization or 'unquantised'})")
