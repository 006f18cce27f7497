"""The numeric check: states computed anew by Hugging Face transformers on the same weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Agreement:
    """How one slot of one sample agrees with the reference.

    Attributes:
        index: of the sample.
        layer: id of the slot.
        min_cosine: least cosine over the tokens.
        row: token with that cosine.
        max_difference: largest absolute difference.
        argmax: share of tokens whose `lm_head(norm(last slot))` argmax is the reference's own; None on other slots.
    """

    index: int
    layer: int
    min_cosine: float
    row: int
    max_difference: float
    argmax: float | None = None


@torch.inference_mode()  # type: ignore[untyped-decorator]  # torch is not there where types are checked
def states(model: Any, token_ids: Sequence[int], layer_ids: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """States `[tokens, len(layer_ids), hidden]` in float32 and next-token argmax `[tokens]` by the reference.

    Id k < n is the input of decoder layer k, which transformers gives as `hidden_states[k]`. Its last entry has the
    final norm applied, so id n is taken where it enters that norm.
    """
    entering: list[torch.Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _module, inputs: entering.append(inputs[0]))
    try:
        output = model(torch.tensor([list(token_ids)]), output_hidden_states=True, use_cache=False)
    finally:
        hook.remove()
    layers = [*output.hidden_states[:-1], entering[-1]]
    picked = torch.stack([layers[layer][0] for layer in layer_ids], dim=1)
    return picked.float(), output.logits[0].argmax(dim=-1)


@torch.inference_mode()  # type: ignore[untyped-decorator]  # the same
def compare(
    model: Any, index: int, token_ids: Sequence[int], captured: torch.Tensor, layer_ids: Sequence[int]
) -> list[Agreement]:
    """Compare captured states `[tokens, slots, hidden]` of one sample with the reference, slot by slot."""
    wanted, next_tokens = states(model, token_ids, layer_ids)
    found = []
    for slot, layer in enumerate(layer_ids):
        ours, theirs = captured[:, slot].float(), wanted[:, slot]
        cosine = torch.nn.functional.cosine_similarity(ours, theirs, dim=-1)
        row = int(cosine.argmin())
        argmax = None
        if layer == len(model.model.layers):
            weight = next(model.parameters()).dtype
            logits = model.lm_head(model.model.norm(captured[:, slot].to(weight)))
            argmax = float((logits.argmax(dim=-1) == next_tokens).float().mean())
        found.append(Agreement(index, layer, float(cosine[row]), row, float((ours - theirs).abs().max()), argmax))
    return found
