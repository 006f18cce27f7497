"""One engine, one job: `python -m draftkiln.evaluate.serve JOB.json ANSWERS.json`.

A process of its own for each engine, so that neither the memory nor the state of one run reaches the other.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from draftkiln import durable

METHOD = "eagle3"
_COUNTERS = {
    "vllm:spec_decode_num_drafts": "drafts",
    "vllm:spec_decode_num_draft_tokens": "draft_tokens",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "accepted_per_position",
}
_WARM_TOKENS = 8
_TEXT_ONLY_KEYS = frozenset({"image", "video", "audio", "vision_chunk"})


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn."""

    temperature: float = 0.0
    """0 = greedy."""
    top_p: float = 1.0
    seed: int = 0
    """Seed of the first prompt of a set; each further one adds its place. Without effect at temperature 0."""

    def __str__(self) -> str:
        if not self.temperature:
            return "greedy"
        return f"temperature {self.temperature:g}, top_p {self.top_p:g}, seed {self.seed}"


GREEDY = Sampling()


@dataclass(frozen=True)
class Job:
    """What an engine is asked: all prompts of all sets once for each way of sampling."""

    target: str
    draft: str | None
    """Folder of the draft in a layout that vLLM loads; None: the target alone."""
    num_draft_tokens: int
    sets: list[tuple[str, list[list[int]]]]
    """Names of the prompt sets and the token ids of their prompts, in the order in which they are answered. No mapping:
    files of this project are written with sorted keys, and the first set is the one that stands for the whole."""
    samplings: list[Sampling]
    max_tokens: int
    ignore_eos: bool
    dtype: str
    tensor_parallel_size: int
    trust_remote_code: bool
    load_format: str
    enforce_eager: bool

    @property
    def max_model_len(self) -> int:
        """Room for the longest prompt, its answer, and the drafts beyond it."""
        longest = max(len(prompt) for _, prompts in self.sets for prompt in prompts)
        return longest + self.max_tokens + self.num_draft_tokens + 1

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Job:
        """The job that `dataclasses.asdict` made `value` of."""
        samplings = [Sampling(**one) for one in value["samplings"]]
        return cls(**{**value, "sets": [(name, rows) for name, rows in value["sets"]], "samplings": samplings})


@dataclass(frozen=True)
class Round:
    """Answers to one set, drawn in one way."""

    set: str
    sampling: Sampling
    outputs: list[list[int]]
    seconds: float
    """Time for all prompts together, warm."""
    counters: dict[str, Any]
    """`drafts`, `draft_tokens`, `accepted`, `accepted_per_position`; empty without a draft."""

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        return sum(map(len, self.outputs))


@dataclass(frozen=True)
class Answers:
    """What an engine answered."""

    rounds: list[Round]
    start_seconds: float
    """Time until the engine was loaded."""
    vllm: str

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Answers:
        """The answers that `dataclasses.asdict` made `value` of."""
        rounds = [Round(**{**one, "sampling": Sampling(**one["sampling"])}) for one in value["rounds"]]
        return cls(**{**value, "rounds": rounds})


def main() -> int:
    """Read the job, answer it, write the answers."""
    job = Job.of_json(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    answers = _answer(job)
    durable.write_json(Path(sys.argv[2]), asdict(answers))
    return 0


def _answer(job: Job) -> Answers:
    began = time.monotonic()
    # This process is the engine's alone: a scheduler in one more would only import everything once more.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    import vllm

    if job.draft is not None and any(sampling.temperature for sampling in job.samplings):
        _refuse_garbled_sampling()
    engine = vllm.LLM(**_engine_arguments(job))
    warm = vllm.SamplingParams(temperature=0.0, max_tokens=_WARM_TOKENS, ignore_eos=True)
    first = job.sets[0][1][0]
    engine.generate([{"prompt_token_ids": first}], warm, use_tqdm=False)
    ready = time.monotonic()
    rounds = [_round(engine, job, place, sampling) for sampling in job.samplings for place in range(len(job.sets))]
    return Answers(rounds, ready - began, vllm.__version__)


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


def _round(engine: Any, job: Job, place: int, sampling: Sampling) -> Round:
    from vllm import SamplingParams

    name, rows = job.sets[place]
    prompts: Any = [{"prompt_token_ids": ids} for ids in rows]
    wanted = {"max_tokens": job.max_tokens, "ignore_eos": job.ignore_eos, "temperature": sampling.temperature}
    if sampling.temperature:
        wanted["top_p"] = sampling.top_p
    parameters = [
        SamplingParams(**wanted, seed=sampling.seed + number if sampling.temperature else None)
        for number in range(len(prompts))
    ]
    before = _counters(engine) if job.draft else {}
    began = time.monotonic()
    outputs = engine.generate(prompts, parameters, use_tqdm=False)
    seconds = time.monotonic() - began
    counters = _difference(_counters(engine), before) if job.draft else {}
    return Round(name, sampling, [list(output.outputs[0].token_ids) for output in outputs], seconds, counters)


def _engine_arguments(job: Job) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": job.target,
        "dtype": job.dtype,
        "tensor_parallel_size": job.tensor_parallel_size,
        "trust_remote_code": job.trust_remote_code,
        "load_format": job.load_format,
        "max_model_len": job.max_model_len,
        "enforce_eager": job.enforce_eager,
        # Workers stay processes: vLLM 0.32 rebinds CPU kernels through all modules and trips over llvmlite's.
        "distributed_executor_backend": "mp",
        "enable_prefix_caching": False,
        "disable_log_stats": False,
        "seed": 0,
    }
    if "vision_config" in json.loads((Path(job.target) / "config.json").read_text(encoding="utf-8")):
        arguments["limit_mm_per_prompt"] = dict.fromkeys(_TEXT_ONLY_KEYS, 0)
    if job.draft is not None:
        arguments["speculative_config"] = {
            "model": job.draft,
            "method": METHOD,
            "num_speculative_tokens": job.num_draft_tokens,
        }
    return arguments


def _counters(engine: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for metric in engine.get_metrics():
        if metric.name in _COUNTERS:
            found[_COUNTERS[metric.name]] = list(metric.values) if hasattr(metric, "values") else metric.value
    return found


def _difference(after: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [new - old for new, old in zip(value, before[name], strict=True)]
        if isinstance(value, list)
        else value - before[name]
        for name, value in after.items()
    }


if __name__ == "__main__":
    raise SystemExit(main())
