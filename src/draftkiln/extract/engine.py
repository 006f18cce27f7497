"""The real engine: vLLM itself, its scheduler kept full, its worker writing what it captures."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import layers
from draftkiln.errors import DraftkilnError, EngineError, StorageError
from draftkiln.extract import ranks, top_tokens
from draftkiln.extract.drive import Limits, Report
from draftkiln.extract.manifest import Receipt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from draftkiln.recipe.model import Recipe
    from draftkiln.target.facts import TargetFacts

EXTENSION = "draftkiln.extract.worker.SinkExtension"
_STEPS_AHEAD = 32
"""Steps of work that wait in the engine, so that it never waits for a driver that syncs its manifest."""
_AMPLE_STEPS = 4
"""Steps that a KV cache holds from which on no request is preempted: two are in flight, one is chunked."""


@dataclass(frozen=True)
class Settings:
    """How the engine is started.

    Attributes:
        target: model directory.
        facts: of the target.
        recipe: names layers, parallelism and the tokens of a step.
        longest: tokens of the longest sample.
        dtype: that it computes in.
        executor: vLLM's own way to run its workers, `ray` where one engine spreads over hosts; None: its choice.
        layer_ids: of the captured states; None: the recipe's.
    """

    target: Path
    facts: TargetFacts
    recipe: Recipe
    longest: int
    dtype: str
    executor: str | None = None
    layer_ids: tuple[int, ...] | None = None

    def captured(self) -> tuple[int, ...]:
        """Ids of the captured states, in slot order."""
        return self.layer_ids or self.recipe.layers.captured(self.facts.num_layers)

    def set_environment(self) -> None:
        """Set vLLM's environment variables; before it is started."""
        if self.longest + 1 > self.facts.max_positions:
            os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
        # The capture reads the batch of the runner that all supported builds have.
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"

    def arguments(self) -> dict[str, Any]:
        """Arguments of vLLM's `EngineArgs`."""
        target, extract = self.recipe.target, self.recipe.extract
        return {
            "model": str(self.target),
            "trust_remote_code": target.trust_remote_code,
            "dtype": self.dtype,
            "load_format": target.load_format,
            "tensor_parallel_size": target.tensor_parallel_size,
            # The token that ends a prefill is sampled, never computed; it may lie past the target's last position.
            "max_model_len": self.longest + 1,
            "max_num_batched_tokens": extract.token_budget,
            "max_num_seqs": extract.max_num_seqs,
            "gpu_memory_utilization": extract.gpu_memory_utilization,
            # A cached token is not computed again, so it would leave no state.
            "enable_prefix_caching": False,
            "enable_chunked_prefill": True,
            # Hooks on layers run in eager mode only.
            "enforce_eager": True,
            "disable_log_stats": True,
            "worker_extension_cls": EXTENSION,
            **({"distributed_executor_backend": self.executor} if self.executor else {}),
        }


class VllmEngine:
    """vLLM with the sink in its worker.

    Args:
        settings: how it is started.
        asked: samples whose most likely next tokens it is asked for as well.

    Attributes:
        answers: these tokens, by index of the sample, as soon as a sample is computed and until they are taken.
        lost: what the storage loses of each slot, as relative error and least cosine; empty when nothing is.
        rows_compared: rows that all ranks were found to have alike.

    Raises (from the constructor):
        EngineError: a sample of the longest length does not fit into the KV cache.
    """

    def __init__(self, settings: Settings, asked: frozenset[int] = frozenset()) -> None:
        from vllm import SamplingParams
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        settings.set_environment()
        before = {process.pid for process in multiprocessing.active_children()}
        self._settings = settings
        self._engine = LLMEngine.from_engine_args(EngineArgs(**settings.arguments()))
        if settings.recipe.target.load_format == "dummy":
            self._engine.collective_rpc("_sink_make_up")
        self.processes = [
            process.pid for process in multiprocessing.active_children() if process.pid not in before and process.pid
        ]
        self._sampling = SamplingParams(max_tokens=1, temperature=0.0, detokenize=False, ignore_eos=True)
        self._asked = asked
        self._asking = SamplingParams(
            max_tokens=1, temperature=0.0, detokenize=False, ignore_eos=True, prompt_logprobs=1
        )
        self.answers: dict[int, list[int]] = {}
        self.lost: tuple[tuple[float, float], ...] = ()
        self.rows_compared = 0
        self._compared: set[int] = set()
        """Samples to compare between ranks that are not computed yet."""
        self._comparing = False
        cache = self._engine.vllm_config.cache_config
        # One block is the null block.
        self._cache_tokens = (cache.num_gpu_blocks - 1) * cache.block_size
        self._block = cache.block_size
        self._closed = False
        self.in_flight: set[int] = set()

    def limits(self) -> Limits:
        """How much it takes at a time."""
        extract = self._settings.recipe.extract
        step = max(extract.token_budget, self._settings.longest)
        ahead = _STEPS_AHEAD * step
        if self._cache_tokens < _AMPLE_STEPS * step:
            # All that was added fits at the same time, so that nothing is preempted and no token computed twice.
            ahead = self._cache_tokens
        limits = Limits(ahead, _STEPS_AHEAD * extract.max_num_seqs, extract.token_budget, self._block)
        if limits.cost(self._settings.longest) > self._cache_tokens:
            raise EngineError(
                f"the KV cache holds {self._cache_tokens} tokens, the longest sample has {self._settings.longest}",
                why="such a sample would never be served",
                fix="raise extract.gpu_memory_utilization (VLLM_CPU_KVCACHE_SPACE on a CPU) or lower data.max_tokens",
            )
        return limits

    def open(self, folder: Path, compared: Sequence[int] = ()) -> list[dict[str, Any]]:
        """Begin to write what is computed into `folder`.

        Args:
            folder: of the samples.
            compared: samples of which rows are compared between ranks.

        Returns:
            Of each rank its number, its process and whether it writes.
        """
        facts = self._settings.facts
        ids = layers.to_generator_ids(self._settings.captured())
        extract, cpus = self._settings.recipe.extract, sorted(os.sched_getaffinity(0))
        shape = facts.hidden_size, extract.writers, extract.token_budget
        self._compared, self._comparing = set(compared), bool(compared)
        driver = os.getpid(), socket.gethostname()
        return self._call(
            "_sink_open", ids, str(folder), *shape, *driver, cpus, extract.storage, sorted(self._compared)
        )

    def add(self, index: int, token_ids: Sequence[int]) -> None:
        """Queue a sample."""
        self.in_flight.add(index)
        sampling = self._asking if index in self._asked else self._sampling
        self._engine.add_request(str(index), {"prompt_token_ids": list(token_ids)}, sampling)

    def cancel(self, indices: list[int]) -> None:
        """Take back samples that were added."""
        self.in_flight.difference_update(indices)
        self._engine.abort_request([str(index) for index in indices])

    def step(self) -> list[int]:
        """Wait for the engine; indices of the samples whose states are computed."""
        finished = []
        for output in self._engine.step():
            if output.finished:
                finished.append(index := int(output.request_id))
                if output.prompt_logprobs is not None:
                    sampled = output.outputs[0].token_ids[0]
                    self.answers[index] = top_tokens.of_output(output.prompt_logprobs, sampled)
        self.in_flight.difference_update(finished)
        self._compared.difference_update(finished)
        return finished

    def take_answers(self) -> dict[int, list[int]]:
        """The answers since the last call."""
        found, self.answers = self.answers, {}
        return found

    def report(self) -> Report:
        """Ask the sink."""
        return self._report("_sink_report")

    def close(self) -> Report:
        """Have everything written; the last report."""
        return self._report("_sink_close")

    def compare_ranks(self) -> None:
        """Compare what the ranks hold of the rows that were asked for; before receipts of them are recorded.

        Raises:
            EngineError: they differ.
        """
        if self._comparing:
            self._comparing = bool(self._compared)
            self.rows_compared = ranks.compare(self._call("_sink_rows"))

    def shut_down(self) -> None:
        """End the engine's processes, dead or alive."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(Exception):
                self._engine.engine_core.shutdown()

    def leave(self) -> None:
        """Let signals end the engine's processes again; the last call before `shut_down`."""
        self._call("_sink_leave")

    def _report(self, method: str) -> Report:
        found = report_of(self._call(method))
        self.lost = found.lost or self.lost
        return found

    def _call(self, method: str, *arguments: Any) -> list[Any]:
        replies: list[Any] = self._engine.collective_rpc(method, args=arguments)
        return replies


def report_of(replies: Sequence[dict[str, Any] | None]) -> Report:
    """The report of the one rank that writes.

    Raises:
        EngineError: none does, or more than one.
    """
    found = [reply for reply in replies if reply is not None]
    if len(found) != 1:
        raise EngineError(f"{len(found)} of {len(replies)} ranks report samples, exactly one must")
    failure: DraftkilnError | None = None
    if found[0]["failure"] is not None:
        kind, what, why, fix = found[0]["failure"]
        failure = (StorageError if kind == "storage" else EngineError)(what, why=why, fix=fix)
    lost = tuple((error, cosine) for error, cosine in found[0].get("lost", ()))
    return Report([Receipt(*values) for values in found[0]["receipts"]], failure, lost)
