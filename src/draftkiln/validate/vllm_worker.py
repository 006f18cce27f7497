"""The worker's side of the comparison with vLLM: the states that the engine itself has, one sample at a time.

Nothing here comes from the patched extension or the sink. A model that can feed an EAGLE-3 draft gives the states it
would hand that draft, counted by vLLM itself; one that cannot (vLLM 0.16.0's DeepSeek) gives what its layers put out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from vllm.distributed import get_tp_group

from draftkiln.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence


class ReferenceExtension:
    """Worker extension that keeps the states of one sample and saves them; vLLM mixes it into its worker class."""

    model_runner: Any
    _reference_kept: dict[int, list[torch.Tensor]]

    def _reference_open(self, layer_ids: list[int], last: int) -> str | None:
        """Keep the states of `layer_ids`, of which `last` is the one that enters the final norm.

        Returns:
            Where they are taken, for people; None on ranks that keep nothing.
        """
        if get_tp_group().rank_in_group != 0:
            return None
        self._reference_kept = {}
        decoder = decoder_of(self.model_runner.model, last)
        inner = [layer for layer in sorted(layer_ids) if layer < last]
        if last in layer_ids:
            decoder.norm.register_forward_pre_hook(lambda _module, inputs: self._reference_keep(last, inputs))
        if hasattr(decoder, "aux_hidden_state_layers"):
            decoder.aux_hidden_state_layers = tuple(inner)
            decoder.forward = partial(self._reference_forward, decoder.forward, inner)
            return "as it would hand them to a draft"
        for layer in inner:
            hook = partial(self._reference_output, layer)
            decoder.layers[layer - 1].register_forward_hook(hook)
        return "as its layers put them out"

    def _reference_begin(self) -> None:
        """Forget what is kept."""
        if hasattr(self, "_reference_kept"):
            self._reference_kept.clear()

    def _reference_save(self, path: str, rows: int) -> None:
        """Save the first `rows` rows of what is kept, a tensor a layer."""
        if not hasattr(self, "_reference_kept"):
            return
        whole = {str(layer): torch.cat(parts)[:rows].contiguous() for layer, parts in self._reference_kept.items()}
        self._reference_kept.clear()
        save_file(whole, path)

    def _reference_forward(self, forward: Any, inner: list[int], *args: Any, **kwargs: Any) -> Any:
        """The decoder's own forward pass; the runner gets what it gets without a draft."""
        output = forward(*args, **kwargs)
        if not isinstance(output, tuple):
            return output
        output, states = output
        for layer, state in zip(inner, states, strict=True):
            self._reference_keep(layer, (state,))
        return output

    def _reference_output(self, layer: int, _module: Any, _inputs: Any, output: Any) -> None:
        self._reference_keep(layer, output if isinstance(output, tuple) else (output,))

    def _reference_keep(self, layer: int, parts: Sequence[torch.Tensor | None]) -> None:
        """Keep a state, given as the sum of hidden states and residual or as both."""
        state, *residual = [part for part in parts[:2] if part is not None]
        total = state + residual[0] if residual else state
        self._reference_kept.setdefault(layer, []).append(total.to("cpu", copy=True))


def decoder_of(model: Any, layers: int) -> Any:
    """The text decoder of `layers` layers inside a model, which a wrapper for images may lie around.

    Raises:
        EngineError: there is none that looks like one.
    """
    for module in model.modules():
        if len(getattr(module, "layers", ())) == layers and hasattr(module, "norm"):
            return module
    raise EngineError(
        f"{type(model).__name__} has no decoder with `layers` and `norm` of {layers} layers",
        why="this model is built otherwise than vLLM's other decoders",
        fix="compare with `--against transformers`",
    )
