"""A CPU engine whose scheduler and worker share one process: a worker of its own would import everything once more.

On two cores that is half a minute of every start. Only a process that starts with it can bind threads to cores, so a
user's own binding keeps the worker apart; so does tensor parallelism.
"""

from __future__ import annotations

import os
from pathlib import Path

EXECUTOR = "uni"
"""vLLM's name for workers in the scheduler's own process."""
_SIBLINGS = Path("/sys/devices/system/cpu")


def possible(device: str, tensor_parallel_size: int) -> bool:
    """Whether an engine on `device` (`cpu` or `cuda`) can run so."""
    bound = os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "auto") not in {"auto", "nobind"}
    return device == "cpu" and tensor_parallel_size == 1 and not bound


def variables() -> dict[str, str]:
    """Environment variables for it; what the user set stays."""
    # vLLM moves the worker apart unless the first says otherwise, and goes down to one thread unless the second does.
    wanted = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(cores())}
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def cores() -> int:
    """Cores that this process may use; two threads of one core share its arithmetic units and count once."""
    return len({_core(cpu) for cpu in os.sched_getaffinity(0)})


def _core(cpu: int) -> str:
    try:
        return (_SIBLINGS / f"cpu{cpu}/topology/thread_siblings_list").read_text(encoding="ascii")
    except OSError:
        return str(cpu)
