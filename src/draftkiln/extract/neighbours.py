"""Other ways to hidden states, for the benchmark: speculators' own `generate()`, and vLLM's own extraction."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import importlib.util
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import layers
from draftkiln.errors import EngineError
from draftkiln.extract import samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from draftkiln.extract.engine import Settings

Prompts = list[list[int]]

_CONNECTOR = "ExampleHiddenStatesConnector"
_CONNECTORS = "vllm.distributed.kv_transfer.kv_connector.v1"


class Generator:
    """The way that the stage went before it had a sink: states back to the driver, `torch.save` there."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        from speculators.data_generation import vllm_hidden_states_generator as upstream
        from vllm.config import LoadConfig

        recipe = settings.recipe
        # The generator has no word for weights that are made up.
        upstream.LoadConfig = functools.partial(LoadConfig, load_format=recipe.target.load_format)
        self._folder = folder / "generate"
        self._generator = upstream.VllmHiddenStatesGenerator(
            model_path=str(settings.target),
            layer_ids=layers.to_generator_ids(settings.captured()),
            max_model_len=settings.longest,
            gpu_memory_utilization=recipe.extract.gpu_memory_utilization,
            tensor_parallel_size=recipe.target.tensor_parallel_size,
            max_num_batched_tokens=recipe.extract.token_budget,
            max_num_seqs=recipe.extract.max_num_seqs,
            trust_remote_code=recipe.target.trust_remote_code,
            dtype=settings.dtype,
        )

    def save(self, prompts: Prompts) -> float:
        """Seconds until every sample is saved (not synced)."""
        import torch

        self._folder.mkdir(parents=True)
        began = time.monotonic()
        at = 0
        for batch in _batches(prompts, 32):
            for result in self._generator.generate(batch):
                torch.save(result, self._folder / f"data_{at}.pt")
                at += 1
        seconds = time.monotonic() - began
        shutil.rmtree(self._folder)
        return seconds


def _batches(prompts: Prompts, size: int) -> Iterator[Prompts]:
    for at in range(0, len(prompts), size):
        yield prompts[at : at + size]


def own_path_missing() -> str | None:
    """Why this vLLM cannot extract by itself; None when it can be tried."""
    import vllm

    found = importlib.util.find_spec(f"{_CONNECTORS}.example_hidden_states_connector")
    return None if found else f"not in vLLM {vllm.__version__}"


class OwnPath:
    """vLLM's own way: the draft method `extract_hidden_states` keeps states in the KV cache, a connector saves them.

    Args:
        settings: of the engine.
        layer_ids: to capture; builds before 0.32 end at the id after the last layer of DeepSeek-like targets.
        folder: where files go.
    """

    def __init__(self, settings: Settings, layer_ids: tuple[int, ...], folder: Path) -> None:
        from vllm import LLM, SamplingParams

        self._folder = folder / "own"
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(layer_ids)}}
        more = {"shared_storage_path": str(self._folder), "num_writer_threads": settings.recipe.extract.writers}
        arguments = settings.arguments()
        del arguments["worker_extension_cls"]
        self._shape = len(layer_ids), settings.facts.hidden_size
        self._sampling = SamplingParams(max_tokens=1, temperature=0.0, detokenize=False, ignore_eos=True)
        self._llm = LLM(
            **arguments
            # A request whose drafted token would pass the end is not drafted for, and then not captured either.
            | {"max_model_len": settings.longest + 2},
            speculative_config={
                "method": "extract_hidden_states",
                "num_speculative_tokens": 1,
                "draft_model_config": draft,
            },
            kv_transfer_config={
                "kv_connector": _CONNECTOR,
                "kv_role": "kv_producer",
                "kv_connector_extra_config": more,
            },
        )

    def save(self, prompts: Prompts) -> float:
        """Seconds until every sample is saved (not synced).

        Raises:
            EngineError: a file has other rows than its prompt.
        """
        began = time.monotonic()
        asked: Any = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = self._llm.generate(asked, self._sampling, use_tqdm=False)
        paths = [Path(output.kv_transfer_params["hidden_states_path"]) for output in outputs]
        _wait_for(paths)
        seconds = time.monotonic() - began
        for ids, path in zip(prompts, paths, strict=True):
            found = samples.header(path)["hidden_states"]["shape"]
            if found != [len(ids), *self._shape]:
                raise EngineError(f"vLLM's own extraction gave states of shape {found} for {len(ids)} tokens")
        for path in self._folder.iterdir():
            path.unlink()
        return seconds

    def shut_down(self) -> None:
        """End the engine's processes, dead or alive."""
        with contextlib.suppress(Exception):
            self._llm.llm_engine.engine_core.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)


def _wait_for(paths: Iterable[Path]) -> None:
    """Wait for the connector's threads, which hold a lock on a file beside each that they still write."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError), path.with_name(f"{path.name}.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
