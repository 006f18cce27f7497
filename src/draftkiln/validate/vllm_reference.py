"""Another vLLM as the reference: unpatched, one sample at a time, its own account of what its layers put out.

For targets that no single process can load, and to ask the very build that serves: what it would hand a draft is what
the draft must have been trained on.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln.errors import EngineError
from draftkiln.validate import reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from draftkiln.extract.engine import Settings
    from draftkiln.validate.reference import Agreement

EXTENSION = "draftkiln.validate.vllm_worker.ReferenceExtension"


class VllmReference:
    """vLLM as it is, with hooks that keep states.

    Args:
        settings: how it is started.
        layer_ids: of the states to be compared.

    Attributes:
        version: of vLLM.
        taken: where states are taken, for people.
    """

    def __init__(self, settings: Settings, layer_ids: Sequence[int]) -> None:
        import vllm

        settings.set_environment()
        self.version = str(vllm.__version__)
        self._last = settings.facts.num_layers
        self._needed = [layer for layer in reference.with_neighbours(layer_ids, self._last) if layer > 0]
        self._sampling = vllm.SamplingParams(max_tokens=1, temperature=0.0, detokenize=False, ignore_eos=True)
        self._llm = vllm.LLM(**settings.arguments() | {"worker_extension_cls": EXTENSION, "max_num_seqs": 1})
        replies = self._llm.collective_rpc("_reference_open", args=(self._needed, self._last))
        self.taken = next(str(reply) for reply in replies if reply is not None)

    def states(self, token_ids: Sequence[int]) -> dict[int, torch.Tensor]:
        """States `[tokens, hidden]` by layer id, of the layers to be compared and of those beside them.

        Raises:
            EngineError: they are not complete.
        """
        import safetensors.torch

        self._llm.collective_rpc("_reference_begin")
        asked: Any = [{"prompt_token_ids": list(token_ids)}]
        self._llm.generate(asked, self._sampling, use_tqdm=False)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "states.safetensors"
            self._llm.collective_rpc("_reference_save", args=(str(path), len(token_ids)))
            found = {int(layer): states for layer, states in safetensors.torch.load_file(path).items()}
        short = [layer for layer in self._needed if layer not in found or len(found[layer]) != len(token_ids)]
        if short:
            raise EngineError(f"vLLM {self.version} gave no whole states of layers {short} for {len(token_ids)} tokens")
        return found

    def compare(
        self, index: int, token_ids: Sequence[int], captured: torch.Tensor, layer_ids: Sequence[int]
    ) -> list[Agreement]:
        """Compare captured states `[tokens, slots, hidden]` of one sample, slot by slot."""
        wanted = self.states(token_ids)
        found: list[Agreement] = reference.agreements(index, captured, layer_ids, wanted, self._last)
        return found

    def shut_down(self) -> None:
        """End the engine's processes."""
        with contextlib.suppress(Exception):
            self._llm.llm_engine.engine_core.shutdown()


@contextlib.contextmanager
def started(settings: Settings, layer_ids: Sequence[int]) -> Iterator[VllmReference]:
    """An engine that is ready, ended afterwards."""
    found = VllmReference(settings, layer_ids)
    try:
        yield found
    finally:
        found.shut_down()
