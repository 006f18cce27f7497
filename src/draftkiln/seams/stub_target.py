"""A target without weights for the probe: every captured row says which token, position and layer it came from.

A state is `hidden + residual`, as in vLLM's decoders. The layers change their inputs in place, so that a capture that
leaves out the residual or keeps a view shows a wrong row. All numbers are integers up to 255, exact in bfloat16.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.interfaces import SupportsEagle3

from draftkiln.seams.probe_scenarios import BASE, HIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ARCHITECTURE = "DraftkilnProbeForCausalLM"
NUM_LAYERS = 4
VOCAB = 256
_HEADS = 8
_HEAD_DIM = 128
_EMBEDDING_NAMES: list[str] = []
_ATTENTION = ("vllm.model_executor.layers.attention", "vllm.attention.layer", "vllm.attention")


class _Layer(nn.Module):  # type: ignore[misc]
    """Adds one to the layer's mark, half of it to the hidden part and half to the residual, in place."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.self_attn = nn.Module()
        self.self_attn.attn = attention

    def forward(
        self,
        positions: torch.Tensor,
        hidden_states: torch.Tensor,
        residual: torch.Tensor | None = None,
        *_rest: object,
        **_more: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if residual is None:
            residual = torch.zeros_like(hidden_states)
            residual[:, 1] = (positions // BASE).to(residual.dtype)
            residual[:, 2] = (positions % BASE).to(residual.dtype)
        hidden_states[:, 3] += 2
        residual[:, 3] -= 1
        return hidden_states, residual


class _Norm(nn.Module):  # type: ignore[misc]
    def forward(self, hidden_states: torch.Tensor, residual: torch.Tensor | None = None) -> Any:
        return hidden_states if residual is None else (hidden_states.add_(residual), residual)


class _Decoder(nn.Module):  # type: ignore[misc]
    """Has what the worker relies on: layers, norm, start_layer, end_layer and the embedding method."""

    def __init__(self, vllm_config: Any, prefix: str) -> None:
        super().__init__()
        attention = _attention_class()
        self.layers = nn.ModuleList(
            _Layer(
                attention(
                    _HEADS,
                    _HEAD_DIM,
                    1.0,
                    num_kv_heads=_HEADS,
                    cache_config=vllm_config.cache_config,
                    prefix=f"{prefix}.layers.{layer}.self_attn.attn",
                )
            )
            for layer in range(NUM_LAYERS)
        )
        self.start_layer, self.end_layer = 0, NUM_LAYERS
        self.norm = _Norm()
        self.weight = nn.Parameter(torch.zeros(1))
        for name in _EMBEDDING_NAMES:
            setattr(self, name, self._embed)

    def _embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        rows = torch.zeros(input_ids.shape[0], HIDDEN, dtype=torch.bfloat16, device=input_ids.device)
        rows[:, 0] = input_ids.to(rows.dtype)
        return rows

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        intermediate_tensors: object = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        del intermediate_tensors
        hidden_states = self._embed(input_ids) if inputs_embeds is None else inputs_embeds
        residual = None
        for layer in self.layers:
            hidden_states, residual = layer(positions, hidden_states, residual)
        return self.norm(hidden_states, residual)[0]


class ProbeForCausalLM(nn.Module, SupportsEagle3):  # type: ignore[misc]
    """The whole target; its next token is always 0."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        self.config = vllm_config.model_config.hf_config
        self.model = _Decoder(vllm_config, f"{prefix}.model" if prefix else "model")

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings, under the name of newer builds."""
        return self.model._embed(input_ids)  # noqa: SLF001 - its own decoder

    def get_input_embeddings(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings, under the name of older builds."""
        return self.model._embed(input_ids)  # noqa: SLF001 - its own decoder

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        intermediate_tensors: object = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Final states `[T, 64]`."""
        return self.model(input_ids, positions, intermediate_tensors, inputs_embeds)

    def compute_logits(self, hidden_states: torch.Tensor, *_: object) -> torch.Tensor:
        """Logits `[T, 256]` that are all zero."""
        return torch.zeros(hidden_states.shape[0], VOCAB, dtype=torch.float32, device=hidden_states.device)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Nothing to load."""
        del weights
        return {name for name, _ in self.named_parameters()}

    def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
        """Part of the interface; not used by the generator."""

    def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
        """Part of the interface; not used by the generator."""
        return ()

    def get_eagle3_default_aux_hidden_state_layers(self) -> tuple[int, ...]:
        """Part of the interface; not used by the generator."""
        return ()


def embedding_method() -> str:
    """The name that this build's own decoders give their embedding method."""
    decoder = import_module("vllm.model_executor.models.llama").LlamaModel
    return "embed_input_ids" if hasattr(decoder, "embed_input_ids") else "get_input_embeddings"


def _attention_class() -> Any:
    for module in _ATTENTION:
        try:
            return import_module(module).Attention
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"no Attention layer in {', '.join(_ATTENTION)}")


def both_embedding_names() -> None:
    """Give the decoder the embedding method under its old and its new name."""
    _EMBEDDING_NAMES[:] = ["embed_input_ids", "get_input_embeddings"]


def register() -> None:
    """Make the architecture known to vLLM in this process and in those forked from it."""
    _EMBEDDING_NAMES[:] = [embedding_method()]
    ModelRegistry.register_model(ARCHITECTURE, ProbeForCausalLM)


def write(folder: Path) -> None:
    """Write config.json and a tokenizer, and no weights, into `folder`."""
    config = {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS,
        "head_dim": _HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
    }
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{number}": number for number in range(3, VOCAB)}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }
    special = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer), ("tokenizer_config.json", special)):
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
