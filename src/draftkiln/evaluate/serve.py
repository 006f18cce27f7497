"""Engines one after the other: `python -m draftkiln.evaluate.serve JOB.json ANSWERS.json [JOB.json ANSWERS.json …]`.

Each answers in a process of its own, so that neither the memory nor the state of one reaches the next. They are forks
of this one, which has imported vLLM and nothing else: that takes as long as an engine's work on a small target.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from draftkiln import durable, one_process
from draftkiln.evaluate import rounds
from draftkiln.evaluate.job import Answers, Job

METHOD = "eagle3"
_WARM_TOKENS = 8
_TEXT_ONLY_KEYS = frozenset({"image", "video", "audio", "vision_chunk"})
_CPU_MODULES = ("vllm.v1.worker.cpu_worker", "vllm.v1.worker.cpu_model_runner", "vllm.v1.engine.llm_engine")
"""What an engine in this process imports late; on a GPU its workers do, and nothing here may touch the device."""


def main() -> int:
    """Read each job, answer it, write the answers; ends at the first engine that does not end well."""
    pairs = [(Path(request), Path(answers)) for request, answers in zip(sys.argv[1::2], sys.argv[2::2], strict=True)]
    jobs = [Job.of_json(json.loads(request.read_text(encoding="utf-8"))) for request, _ in pairs]
    _import_engine(jobs[0])
    for job, (_, answers) in zip(jobs, pairs, strict=True):
        code = _forked(job, answers)
        if code:
            return code
    return 0


def _import_engine(job: Job) -> None:
    """Import what all engines need, and start no thread: one that runs now would be missing in the forks."""
    # The process of an engine is its own: a scheduler in one more would only import everything once more.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM, SamplingParams  # noqa: F401

    if _in_one_process(job):
        for module in _CPU_MODULES:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)


def _forked(job: Job, answers: Path) -> int:
    """Answer `job` in a fork, whose output goes behind `answers` into a `.log`; gives its exit code as a shell does."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code
    code = 1
    try:
        _lead_output(answers.with_suffix(".log"))
        durable.write_json(answers, asdict(_answer(job)))
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, this fork must not go on as its parent
        traceback.print_exc()
    finally:
        # vLLM's own end waits 5 s for workers that have nothing left to do.
        for worker in multiprocessing.active_children():
            worker.kill()
            worker.join()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _lead_output(log: Path) -> None:
    with log.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)


def _answer(job: Job) -> Answers:
    began = time.monotonic()
    import vllm

    if _in_one_process(job):
        _prepare_one_process()
    if job.draft is not None and any(sampling.temperature for sampling in job.samplings):
        _refuse_garbled_sampling()
    engine = vllm.LLM(**_engine_arguments(job))
    warm = vllm.SamplingParams(temperature=0.0, max_tokens=_WARM_TOKENS, ignore_eos=True)
    first = job.sets[0][1][0]
    engine.generate([{"prompt_token_ids": first.ids}], warm, use_tqdm=False)
    ready = time.monotonic()
    answered = [
        rounds.ask(engine, job, place, sampling) for sampling in job.samplings for place in range(len(job.sets))
    ]
    return Answers(answered, ready - began, vllm.__version__)


def _in_one_process(job: Job) -> bool:
    return one_process.possible(job.device, job.tensor_parallel_size)


def _prepare_one_process() -> None:
    os.environ.update(one_process.variables())
    with contextlib.suppress(ImportError, AttributeError):
        from llvmlite.binding.ffi import lib

        # vLLM 0.32 rebinds its CPU kernels in all modules and takes the `__dict__` of whatever they hold for a mapping;
        # this object makes one up of a C library's symbols.
        lib._fntab.setdefault("__dict__", {})  # noqa: SLF001


def _refuse_garbled_sampling() -> None:
    """Ask the engine's own function which temperature it divides the logits of drafted tokens by.

    The CPU kernel of vLLM 0.32.0 (`utils/cpu_triton_utils.py`, `_expand_kernel_impl`) writes temperatures into a copy
    that it throws away, so that drafted tokens are judged by unwritten memory: next to none is accepted, and the
    answers are not drawn from the target's distribution.

    Raises:
        RuntimeError: it is another one than was asked for.
    """
    try:
        import torch
        from vllm.platforms import current_platform
        from vllm.v1.sample.rejection_sampler import expand_batch_to_tokens

        if not current_platform.is_cpu():
            return
        current_platform.import_kernels()
        current_platform.register_triton_kernel_overrides()
    except (ImportError, AttributeError):  # an engine that has no such kernels of its own
        return
    asked = torch.tensor([0.5, 0.25])
    if expand_batch_to_tokens(asked, torch.tensor([2, 3], dtype=torch.int32), 3).tolist() != [0.5, 0.5, 0.25]:
        raise RuntimeError(
            "this vLLM garbles the temperature of drafted tokens on a CPU, so that sampled answers mean nothing: "
            "remove evaluate.sampled, or evaluate on a GPU's stack"
        )


def _engine_arguments(job: Job) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": job.target,
        "dtype": job.dtype,
        "tensor_parallel_size": job.tensor_parallel_size,
        "trust_remote_code": job.trust_remote_code,
        "load_format": job.load_format,
        "max_model_len": job.max_model_len,
        "enforce_eager": job.device == "cpu",  # compiling for a CPU takes longer than these prompts
        "distributed_executor_backend": one_process.EXECUTOR if _in_one_process(job) else "mp",
        "enable_prefix_caching": False,
        "disable_log_stats": False,
        "seed": 0,
    }
    if "vision_config" in json.loads((Path(job.target) / "config.json").read_text(encoding="utf-8")):
        arguments["limit_mm_per_prompt"] = dict.fromkeys(_TEXT_ONLY_KEYS, 0)
    if job.device != "cpu":
        arguments["gpu_memory_utilization"] = job.gpu_memory_utilization
    if job.draft is not None:
        arguments["speculative_config"] = {
            "model": job.draft,
            "method": METHOD,
            "num_speculative_tokens": job.num_draft_tokens,
        }
    return arguments


if __name__ == "__main__":
    raise SystemExit(main())
